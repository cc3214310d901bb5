"""Data that can't be applied hold their table, wholly, and nothing else; a commit of someone else's stops everything."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.schema import Identity
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = pytest.mark.spark
ITEM = {"id": "int4", "doc": "text"}


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.full)])
def test_refused_tables_are_held_and_a_new_snapshot_brings_them_back(
    spark: SparkSession, tmp_path: Path, *, whole: bool
) -> None:
    """A row that is not there to be deleted, a large value that is nowhere, a key that is not unique; one good table.

    The whole has a key that turns out not to be unique in a later cycle, and then in a snapshot too.
    """
    rng = random.Random(1)
    tables = [
        SimulatedTable(schema("bag", {"a": "text"}, (), Identity.FULL, 1)),
        SimulatedTable(schema("toast", ITEM, ("id",), Identity.DEFAULT, 2), large=(1,)),
        SimulatedTable(schema("twice", ITEM, ("id",), Identity.FULL, 3)),
        SimulatedTable(schema("good", ITEM, ("id",), Identity.DEFAULT, 4)),
        SimulatedTable(schema("later", ITEM, ("id",), Identity.FULL, 5)),
    ]
    bag, toast, twice, good, later = tables
    source = SimulatedSource(tmp_path, tables if whole else tables[:-1])
    config = make_config(tmp_path)
    names = ["bag", "toast", "twice", "good", *(["later"] if whole else [])]
    if whole:
        source.insert(later, (5, "the first of its key"))
        source.commit(rng)
    source.flush()
    source.snapshot(names)
    run_compact(spark, config)

    source.insert(bag, ("ghost",), lost=True)
    source.insert(toast, (1, "large"), lost=True)
    source.commit(rng)
    source.delete(bag, ("ghost",))
    source.update(toast, (1, "large"), (2, "large"))
    source.insert(twice, (1, "one"))
    source.insert(twice, (1, "other"))
    if whole:
        source.insert(later, (5, "the second of its key, in a later cycle"))
    source.insert(good, (1, "x"))
    source.commit(rng)
    source.flush()
    (report,) = run_compact(spark, config)

    held = {t.name: h.reason for t, h in report.held.items()}
    assert held == {
        "bag": "a row that the source deleted or updated is not in the lake, or not as often",
        "toast": "the row that an unchanged large value would come from is not in the lake",
        "twice": "the configured key is not unique",
        **({"later": "the configured key is not unique"} if whole else {}),
    }
    check(config, source, ["good"])
    lake = read_lake(config)
    for table in (bag, toast, twice):
        assert lake.table(SOURCE, table.version.table).arrow().num_rows == 0
        assert lake.history(SOURCE, table.version.table).arrow().num_rows == 0

    source.delete(twice, (1, "other"))
    source.commit(rng)
    if whole:
        # As long as the key is none, a snapshot does not bring the table back.
        source.snapshot(["later"])
        source.flush()
        assert [h.reason for h in run_compact(spark, config)[-1].held.values()].count(
            "the configured key is not unique"
        ) == 2
        source.delete(later, (5, "the second of its key, in a later cycle"))
    source.insert(good, (2, "y"))
    source.commit(rng)
    source.snapshot(list(held))
    source.flush()
    (report,) = run_compact(spark, config)
    assert not report.held
    check(config, source, names)


def _insert(path: str, rows: DataFrame, info: CommitInfo, **options: Any) -> CommitRequest:
    return CommitRequest(path, NetChange(images=rows), info, **options)


@pytest.mark.full
def test_a_commit_is_made_once_and_a_foreign_one_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    """A repeat is an error, someone else's commit too."""
    session, path = spark.newSession(), str(tmp_path / "t")
    rows = session.createDataFrame([(1, "a"), (2, "b")], "id int, `odd, name` string")
    first = CommitInfo("app", 1, "{}")
    assert apply_change(session, _insert(path, rows, first, create=TableSpec(), expected_version=-1)).inserted == 2
    with pytest.raises(TransientError, match="meanwhile"):
        apply_change(session, _insert(path, rows, first, create=TableSpec(), expected_version=-1))

    gone = session.createDataFrame([(9,)], "id int")
    nothing = apply_change(
        session, CommitRequest(path, NetChange(Removed(("id",), gone)), CommitInfo("app", 2, "{}"), expected_version=0)
    )
    assert (nothing.inserted, nothing.deleted) == (0, 0)
    before = newest_version(path)
    assert nothing.version == before

    replaced = NetChange(Removed(("id",), rows.select("id")), rows.limit(1))
    change = apply_change(session, CommitRequest(path, replaced, CommitInfo("app", 3, "{}")))
    assert (change.version, change.inserted, change.deleted) == (before + 1, 1, 2)
    with pytest.raises(LakeError, match="committed by someone else"):
        apply_change(session, _insert(path, rows, CommitInfo("other", 1, "{}"), expected_version=before))
    wiped = apply_change(session, CommitRequest(path, NetChange(AllRows(), rows), CommitInfo("app", 4, "{}")))
    assert wiped.version == before + 2
    assert session.read.format("delta").load(path).count() == 2
