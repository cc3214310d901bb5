"""A table's changes in the cut of a repair, with and without Spark: they lead a subscriber to what the source has.

The repair itself is in `test_repair_by_keys.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.prove import prove
from lakeproof.lake.records.store import cut_numbers
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter
from tests.support.lake.repair_steps import REPAIR, Keyed, largest_file, make_config, run
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres]
INTS = Keyed("ints", "id int", "id", "i")
LOST, DOUBLED = 4, 7


def _doubled(rows: pa.Table, *, altered: bool) -> pa.Table:
    """Put a row there twice, with another value if `altered`, in the place of one that is lost."""
    other = rows.filter(pc.field("n") == DOUBLED)
    if altered:
        other = other.set_column(other.column_names.index("v"), "v", pa.array(["wrong"], other["v"].type))
    return pa.concat_tables([rows.filter(pc.field("n") != LOST), other])


@pytest.mark.full
@pytest.mark.parametrize("altered", [True, False], ids=["altered", "equal"])
def test_a_key_that_was_there_twice_does_not_end_a_feed(
    database: Database, spark: SparkSession, tmp_path: Path, *, altered: bool
) -> None:
    """Whoever keeps the rows by their keys has the source's afterwards, whichever of the two rows came to him first."""
    config = make_config(database, tmp_path, [INTS])
    into_the_lake(config, spark)
    run(database, "UPDATE ints SET v = 'later' WHERE id = 9")
    into_the_lake(config, spark)
    alter(largest_file(config, INTS), lambda rows: _doubled(rows, altered=altered))
    before = lakeproof.read(config).table("shop", INTS.table).arrow().select(["id", "v"]).to_pylist()
    last = cut_numbers(SourceLake.open(config.location, "shop"))[-1]
    assert prove(config, "shop", None, spark, None, REPAIR).tables[INTS.table].status == "equal"
    expected = dict(database.rows("SELECT id, v FROM ints"))
    feed = [r.asDict(recursive=True) for r in lakeproof.changes(spark, config, last).table(INTS.table).collect()]
    alone = [r for step in lakeproof.read_changes(config, last) for r in step.table(INTS.table).arrow().to_pylist()]
    for changes in (feed, alone):
        for rows in (before, before[::-1]):
            kept = {row["id"]: row["v"] for row in rows}
            for change in changes:
                _apply(kept, change)
            assert kept == expected
    shown = [sorted((r["kind"], str(r["before"]), str(r["after"])) for r in changes) for changes in (feed, alone)]
    assert shown[0] == shown[1]
    assert "delete" not in {r["kind"] for r in feed}


def _apply(kept: dict[int, str], change: dict[str, Any]) -> None:
    if change["after"] is None:
        kept.pop(change["before"]["id"])
    else:
        kept[change["after"]["id"]] = change["after"]["v"]
