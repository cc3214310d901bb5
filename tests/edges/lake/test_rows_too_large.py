"""A row that would not go through the driver's memory holds its table before anything is read; the others go on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.held import describe_held
from lakeproof.lake.rows import memory
from lakeproof.names import TableName
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = pytest.mark.spark
ITEM = {"id": "int4", "doc": "text"}


@pytest.mark.full
def test_a_row_too_large_holds_its_table_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers a change and a snapshot; with more memory a snapshot brings the table back, and the cut has its rows' size."""
    rng = random.Random(1)
    large, good = tables = [
        SimulatedTable(schema("large", ITEM, ("id",), Identity.DEFAULT, 1)),
        SimulatedTable(schema("good", ITEM, ("id",), Identity.DEFAULT, 2)),
    ]
    source, config = SimulatedSource(tmp_path, tables), make_config(tmp_path, engine="spark")
    source.snapshot(["large", "good"])
    source.insert(large, (1, "x" * 100_000))
    source.insert(good, (1, "x"))
    source.commit(rng)
    source.flush()
    with monkeypatch.context() as small:
        # As if the heap were the size of some hundred of these rows.
        # inside: a row that is too large for a real driver takes its memory
        small.setattr(memory, "COPIES", memory.heap_bytes(spark) // 50_000)
        for number in (2, 3):
            (held,) = run_compact(spark, config)[-1].held.values()
            assert held.reason.startswith("it has a row of up to 0 MiB, more than goes through a heap of ")
            remedy = describe_held(held, SOURCE, TableName("app", "large")).remedy
            assert "set spark.driver_memory, and on a cluster spark.executor.memory, to " in remedy
            assert f"bootstrap {SOURCE} --tables app.large" in remedy
            check(config, source, ["good"])
            source.snapshot(["large"])
            source.insert(good, (number, "y"))
            source.commit(rng)
            source.flush()

    assert run_compact(spark, config)[-1].held == {}
    check(config, source, ["large", "good"])
    rows = {t.name: position.row_bytes for t, position in read_lake(config).cuts[SOURCE].tables.items()}
    assert rows["good"] < 1_000
    assert 100_000 <= rows["large"] < 101_000
