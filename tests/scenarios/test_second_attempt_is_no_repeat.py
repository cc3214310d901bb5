"""A compaction is killed between its commits: the next one's are none that the table has already, whoever writes them.

Seen once: what the dead one had written was taken back, and the table still had the cycle's number. Delta skips a write of
Spark's with such a number in silence, so the cut had a table without its changes.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.model import TableConfig
from lakeproof.failpoints import watched
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.names import TableName
from lakeproof.schema import Identity
from tests.support.faults.crashes import Crash
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = pytest.mark.spark
BAGS, KEYED = ("bag", "portable", "emptied"), "keyed"


def write(source: SimulatedSource, number: int) -> None:
    """Change each table; one is emptied before."""
    for table in source.tables.values():
        if table.version.table.name == "emptied":
            source.truncate(table)
        elif table.rows:
            source.update(table, table.rows[0], (table.rows[0][0], f"changed {number}"))
        source.insert(table, (number, f"v{number}"))
    source.commit(random.Random(number))
    source.flush()


@pytest.mark.full
def test_what_was_taken_back_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    """Bags, which Spark writes: with vectors, with MERGE and by overwriting; and a table that this process writes.

    The process ends after the first history, after the first current, before the cut, and while it takes back.
    """
    columns = {"id": "int4", "v": "text"}
    bags = [schema(name, columns, (), Identity.FULL, oid) for oid, name in enumerate(BAGS, start=1)]
    versions = [*bags, schema(KEYED, columns, ("id",), Identity.DEFAULT, 9)]
    source, config = SimulatedSource(tmp_path, list(map(SimulatedTable, versions))), make_config(tmp_path)
    portable = {TableName("app", "portable"): TableConfig(readers="portable")}
    shop = config.sources[SOURCE].model_copy(update={"table": portable})
    config = config.model_copy(update={"sources": {SOURCE: shop}})
    names = [*BAGS, KEYED]
    source.snapshot(names)
    write(source, 0)
    run_compact(spark, config)

    def crash_at(place: str) -> None:
        def passing(name: str) -> None:
            if name == place:
                raise Crash(name)

        with watched(passing), pytest.raises(Crash):
            run_compact(spark, config)

    for number, place in enumerate(("cycle.after_history", "cycle.after_current", "cycle.after_tables"), start=1):
        write(source, number)
        crash_at(place)
        crash_at("cycle.after_tables" if place != "cycle.after_tables" else "cycle.after_taken_back")
        run_compact(spark, config)
        check(config, source, names)
    for name in names:
        history = read_lake(config).history(SOURCE, TableName("app", name))
        inserted = [row["id"] for row in history.arrow().to_pylist() if row["_lp_op"] == "insert"]
        assert sorted(inserted) == list(range(4)), f"each change of {name} once"
