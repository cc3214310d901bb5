"""A group over its life: the command, views and retention at its cuts, and a source that is recovered.

What is refused by the landings alone is in `tests/core/lake/test_group_position.py`.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.main import main
from lakeproof.commands.check import check_sources, spread_findings
from lakeproof.commands.compact import compact_group
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.commands.recover import recover
from lakeproof.commands.refresh import refresh
from lakeproof.commands.status import status
from lakeproof.compaction.pending import group_has_work
from lakeproof.compaction.retention import old_documents
from lakeproof.config.model import ViewConfig
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.errors import TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.cuts.groups import group_cut_numbers, newest_group_cut
from lakeproof.lake.records.store import cut_numbers
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.servers.two_slots import GROUP, SOURCES, TwoSlots, lake_state
from tests.support.spark.spark_steps import TABLES_ALONE


def _lakes(slots: TwoSlots) -> list[SourceLake]:
    return [SourceLake.open(slots.config.location, name) for name in SOURCES]


@pytest.mark.full
def test_a_group_from_its_first_cut_to_a_recovered_source(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """Status, a proof that goes ahead, a view, maintenance that keeps nothing else, and a source that begins again."""
    slots = TwoSlots.make(database, tmp_path, 7)
    sql = tmp_path / "both.sql"
    sql.write_text("SELECT a.n FROM a JOIN b ON a.n = b.n", encoding="utf-8")
    reads = {"a": ("one", TableName("public", "one_log")), "b": ("two", TableName("public", "two_log"))}
    retention = RetentionConfig(cuts_s=0)
    sources = {name: s.model_copy(update={"retention": retention}) for name, s in slots.config.sources.items()}
    view = ViewConfig(name="both", sql_file=sql, reads=reads)
    config = slots.config = slots.config.model_copy(update={"views": {"both": view}, "sources": sources})
    assert [v.stands_still is not None for v in refresh(config, None, spark)] == [True], "the group has no cut yet"
    slots.transactions(15)
    for name in SOURCES:
        slots.drain(name)
    assert group_has_work(config, GROUP)
    first = compact_group(config, GROUP, spark, silent, Stop()).cut
    assert first is not None
    assert not group_has_work(config, GROUP)
    assert compact_group(config, GROUP, spark, silent, Stop()).cut is None
    slots.transactions(15)
    proof = prove(config, "one", None, spark, request=TABLES_ALONE)
    assert {p.status for p in proof.tables.values()} == {"equal"}
    # Source one is ahead, and the group and its views are where they were.
    state = status(config)
    assert state.groups[GROUP].cut == first
    [problem] = state.groups[GROUP].problems
    assert problem.transient
    assert problem.reason.startswith("two has landed up to")
    [report] = refresh(config, None, spark)
    assert {name: position for name, (_, position) in report.sources.items()} == dict.fromkeys(SOURCES, first.position)
    for name in SOURCES:
        maintain(config, name, spark, silent, MaintenanceRequest(now=datetime.now(timezone.utc) + timedelta(days=30)))
    whole = open_lake(spark, config, group=GROUP)
    assert lake_state(whole).whole
    assert whole.view("both").count() == len(lake_state(whole).logs[0])
    slots.drain("two")
    second = compact_group(config, GROUP, spark, silent, Stop()).cut
    assert second is not None
    assert lake_state(open_lake(spark, config, group=GROUP)) == slots.state()
    maintain(config, "one", spark, silent, MaintenanceRequest(now=datetime.now(timezone.utc) + timedelta(days=30)))
    assert group_cut_numbers(open_store(config.location), GROUP) == [second.number]
    # Another incarnation of one source.
    database.drop_slot(config.sources["two"].slot)
    recover(config, "two", silent, Stop())
    slots.transactions(5)
    with pytest.raises(TransientError, match="one has landed"):
        compact_group(config, GROUP, spark, silent, Stop())
    for name in SOURCES:
        slots.drain(name)
    third = compact_group(config, GROUP, spark, silent, Stop()).cut
    assert third is not None
    assert {name: int(member.incarnation) for name, member in third.sources.items()} == {"one": 1, "two": 2}
    assert lake_state(open_lake(spark, config, group=GROUP)) == slots.state()


def test_old_cuts_stay_as_long_as_the_newest_cut_of_the_group_names_them(
    database: Database, spark: SparkSession, tmp_path: Path
) -> None:
    """The command compacts the group by any of its names; older cuts of the group go before those that they name."""
    slots = TwoSlots.make(database, tmp_path, 8)
    for _ in range(2):
        slots.transactions(5)
        for name in SOURCES:
            slots.drain(name)
        compact_group(slots.config, GROUP, spark, silent, Stop())
    lake = _lakes(slots)[0]
    newest = newest_group_cut(lake.store, GROUP)
    assert newest is not None
    later = datetime.now(timezone.utc) + timedelta(days=1)
    gone = old_documents(lake, RetentionConfig(cuts_s=0), later, newest.names("one"))
    assert gone[0] == lake.paths.group_cut(GROUP, 1)
    assert lake.paths.cut(cut_numbers(lake)[-1]) not in gone
    assert old_documents(lake, RetentionConfig(cuts_s=0), later, cut_numbers(lake)[0])[:1] != gone[:1]


def test_the_command_of_a_grouped_source_compacts_its_group(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With nothing landed beyond, no Spark is needed to say so; before the copy, and behind, it says what is missing."""
    slots = TwoSlots.make(database, tmp_path, 9)
    arguments = ["-c", str(slots.config.path), "--json", "compact"]
    # Source two was copied later, so source one has not landed that far.
    for name in ("one", "two"):
        assert main([*arguments, name]) == 3
        assert "and two can't be read before" in json.dumps(json.loads(capsys.readouterr().out))
    assert main([*arguments, "--group", "shp"]) == 2


# `pg_stat_force_next_flush`: before it, statistics come when they come.
@pytest.mark.since(15)
def test_the_note_of_check_names_the_slot_with_most_changes(database: Database, tmp_path: Path) -> None:
    """By the server's own statistics."""
    slots = TwoSlots.make(database, tmp_path, 10)
    database.execute(
        "INSERT INTO one_log SELECT i FROM generate_series(1000, 4000) i",
        "INSERT INTO one_account SELECT i, 0 FROM generate_series(1000, 3000) i",
        "SELECT pg_stat_force_next_flush()",
    )
    with database.connect() as conn:
        conn.execute("SELECT pg_stat_clear_snapshot()")
    finding = spread_findings(slots.config, check_sources(slots.config, SOURCES))[GROUP]
    assert "one slot has most of the changes" in finding.reason
    assert "from one to two" in finding.remedy
