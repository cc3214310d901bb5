"""A cycle that gives a table another schema: its rows have to fit into the driver, and a lost race is reported as one.

What becomes of columns and rows is tested in `test_schema_change.py`.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.catalog.differences import Difference
from lakeproof.config.model import TableConfig
from lakeproof.errors import TransientError
from lakeproof.lake.delta import schema as delta_schema
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.delta.schema import ColumnChanges, SchemaRequest, change_schema
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.rows import memory
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from tests.support.lake.lake_steps import make_config, run_compact
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, two_tables

pytestmark = pytest.mark.spark


def _table(source: SimulatedSource, name: str) -> TableName:
    return source.table(name).version.table


def _schema(source: SimulatedSource) -> SchemaVersion:
    cut = newest_cut(source.lake)
    assert cut is not None
    return next(position.version for table, position in cut.tables.items() if table.name == "a")


def test_rows_that_are_too_large_hold_the_table_before_its_schema_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large rows hold the table in any cycle in which Spark reads and writes them; the other table goes on.

    A portable table's rows are written anew for a new name; of any other it is metadata, and no row is read.
    """
    source, config = two_tables(tmp_path), make_config(tmp_path)
    portable = {_table(source, "a"): TableConfig(readers="portable")}
    shop = config.sources[SOURCE].model_copy(update={"table": portable})
    config = config.model_copy(update={"sources": {SOURCE: shop}})
    for name, size in (("a", 100_000), ("b", 1)):
        source.insert(source.table(name), (1, "x" * size))
    position = source.commit(random.Random(1))
    source.flush()
    run_compact(spark, config)
    old = _schema(source)
    new = replace(old, columns=(old.columns[0], replace(old.columns[1], name="w")))
    source.notice("a", Difference.COLUMN_RENAMED, source.chain.end, position, version=new)
    # inside: a row that is too large for a real driver takes its memory
    monkeypatch.setattr(memory, "COPIES", memory.heap_bytes(spark) // 50_000)
    (held,) = run_compact(spark, config)[-1].held.values()
    assert held.reason.startswith("it has a row of up to 0 MiB, more than goes through a heap of ")
    assert _schema(source) == old


@pytest.mark.full
def test_a_race_lost_by_a_change_of_columns_is_reported_as_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody commits between the look at the table and the commit: nothing of ours is made, and it is tried again."""
    path, session = str(tmp_path / "table"), spark.newSession()
    rows = session.createDataFrame([(1, "x")], "id int, v string")
    apply_change(session, CommitRequest(path, NetChange(images=rows), CommitInfo("try", 1, "{}"), create=TableSpec()))
    look = delta_schema._change

    def strange() -> None:
        other = spark.newSession()
        other.createDataFrame([(2, "y")], "id int, v string").write.format("delta").mode("append").save(path)

    def meanwhile(*given: Any, **options: Any) -> Any:
        # In its own thread: the session of a thread is the one that was used last in it.
        with ThreadPoolExecutor(1) as stranger:
            stranger.submit(strange).result()
        return look(*given, **options)

    # inside: no failpoint lies between Delta's look and its commit
    monkeypatch.setattr(delta_schema, "_change", meanwhile)
    change = ColumnChanges(renamed={"v": "w"}, order=("id", "w"))
    with pytest.raises(TransientError, match="someone else committed to the table meanwhile"):
        change_schema(SparkOnDemand.of(session), SchemaRequest(path, change, CommitInfo("try", 2, "{}"), 0))
    assert newest_version(path) == 1
    assert session.read.format("delta").load(path).columns == ["id", "v"]
