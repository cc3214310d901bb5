"""What the lake lacks of a source, by its documents alone: tables, proofs, days, views. No server and no Spark."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import date, datetime, timezone
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.catalog.differences import Difference
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.lake.delta.log.commits import commit_name
from lakeproof.lake.records.days import DayEntry, note_day
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.records.views.cuts import ViewCut, put_cut, view_path
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.lake_state import LakeSamples
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.proof.lake.history import HistoryProof
from lakeproof.proof.record import record
from lakeproof.proof.result import LakeProof, ProofReport, Status, TableProof
from lakeproof.schema import Identity
from lakeproof.state.absent import AbsentCause
from lakeproof.state.due import DueDays, due_days
from lakeproof.state.problem import Problems
from lakeproof.state.shortfall import Shortfall, shortfall
from lakeproof.state.source_state import SourceState
from tests.edges.planning.plan_steps import A, B, cut_of, planned
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable

C = TableName("app", "c")
# A simulated source commits on the first days of 2026.
NOW = datetime(2026, 1, 5, 7, tzinfo=timezone.utc)


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """A source with two tables in the lake, and a third that has no row yet."""
    columns = {"id": "int4", "v": "text"}
    tables = [
        SimulatedTable(schema(name, columns, ("id",), Identity.DEFAULT, oid))
        for oid, name in enumerate(("a", "b", "c"), 1)
    ]
    result = SimulatedSource(tmp_path / "lake", tables)
    result.snapshot(["a", "b"])
    put(result)
    return result


def put(source: SimulatedSource, held: tuple[TableName, ...] = ()) -> Cut:
    """Put the first cut, at which these tables are held."""
    first = cut_of(source, planned(source, None))
    why = Held(first.position, HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "its data"})
    cut = replace(first, held=dict.fromkeys(held, why), created_at="2026-01-01T00:00:00Z")
    write_cut(source.lake, cut)
    return cut


def config_of(source: SimulatedSource, **more: object) -> Config:
    """A configuration of the source, with view `v` over its first table."""
    given = SourceConfig(name="shop", dsn=SecretStr("host=nowhere"), publication="pub", slot="slot")
    view = ViewConfig(name="v", sql_file=source.folder / "v.sql", reads={"a": ("shop", A)})
    sources = {"shop": given.model_copy(update=more)}
    return Config(path=source.folder / "w.yaml", lake=str(source.folder), sources=sources, views={"v": view})


def looked(source: SimulatedSource, **more: object) -> Shortfall:
    """What the lake lacks at `NOW`."""
    config = config_of(source, **more)
    return shortfall(config, SourceState.of(config, "shop"), NOW)


def proved(source: SimulatedSource, **results: Status) -> None:
    """Tables were compared, with these results."""
    tables = {TableName("app", name): TableProof(result, 1, 1) for name, result in results.items()}
    record(source.lake, Incarnation(1), ProofReport("shop", Lsn(0x2000), tables))


def test_tables_that_were_never_compared_are_lacking_until_they_are(source: SimulatedSource) -> None:
    """An attempt that was blocked compares nothing; a held table is none of them; one that differed is named as such."""
    assert looked(source).unproved == (A, B)
    proved(source, a="equal", b="blocked")
    assert looked(source).unproved == (B,)
    proved(source, b="equal")
    assert not looked(source)
    proved(source, b="differs")
    assert list(looked(source).differing) == [B]
    proved(source, b="blocked")
    assert looked(source).differing == {B: "it differed at 0/2000"}
    proved(source, b="equal")
    assert not looked(source)


def test_a_history_that_differed_is_lacking(source: SimulatedSource) -> None:
    """The table itself may be equal."""
    proved(source, a="equal", b="equal")
    lake = LakeProof(1, Lsn(1), {A: HistoryProof("differs", 1, reason="a row is gone")}, {})
    record(source.lake, Incarnation(1), ProofReport("shop", None, {}, lake))
    assert looked(source).differing == {A: "its history differed at cut 1"}


def test_rows_that_landed_since_the_catalog_was_read_name_their_table(source: SimulatedSource) -> None:
    """Nothing but the stream knows the table yet; a copy of it needs no person, as the next reading lets it in."""
    proved(source, a="equal", b="equal")
    end = source.chain.end
    source.notice("a", Difference.COLUMN_ALTERED, end, end)
    assert not looked(source)
    source.insert(source.table("c"), (1, "x"))
    source.insert(source.table("a"), (1, "x"))
    source.commit(random.Random(1))
    source.flush()
    absent = looked(source).absent
    assert {table: why.cause for table, why in absent.items()} == {C: AbsentCause.WAITS_FOR_LANDING}
    assert "waits for the next reading of the catalog; run `lakeproof drain shop --once`" in str(absent[C])


def test_days_are_missing_from_the_first_one_to_yesterday(source: SimulatedSource) -> None:
    """One that was made before it was over counts once the lake has a later commit; the night is left to a schedule."""
    proved(source, a="equal", b="equal")

    def made(day: int, *, is_over: bool) -> None:
        note_day(source.lake, A, date(2026, 1, day), DayEntry(Lsn(1), 0, "", is_over, ""))

    assert looked(source).days == {}
    made(1, is_over=True)
    made(3, is_over=False)
    assert looked(source, daily=(A,)).days == {A: ("2026-01-02", "2026-01-04")}
    assert "2 days are missing: 2026-01-02, 2026-01-04; run `lakeproof daily shop --days 2026-01-02..2026-01-04`" in (
        "".join(looked(source, daily=(A,)).sentences("shop"))
    )
    cut = SourceState.of(config_of(source), "shop").cut
    assert cut is not None
    write_cut(source.lake, replace(cut, number=CycleNumber(2), commit_time="2026-01-04T00:00:01Z"))
    assert looked(source, daily=(A,)).days == {A: ("2026-01-02", "2026-01-03", "2026-01-04")}
    config = config_of(source, daily=(A,))
    early = shortfall(config, SourceState.of(config, "shop"), NOW.replace(hour=5))
    assert early.days == {A: ("2026-01-02", "2026-01-03")}


def test_days_are_due_in_a_row_as_soon_as_they_have_ended(source: SimulatedSource) -> None:
    """The oldest of the last week comes first, for all tables that lack it; what is further back is for a person."""

    def made(table: TableName, day: int) -> None:
        note_day(source.lake, table, date(2026, 1, day), DayEntry(Lsn(1), 0, "", True, ""))

    def due(now: datetime, listed: tuple[TableName, ...] = (A, B)) -> DueDays | None:
        return due_days(SourceState.of(config_of(source, daily=(A, B)), "shop"), listed, now)

    made(A, 1)
    made(B, 1)
    made(B, 3)
    midnight = datetime(2026, 1, 5, 0, 10, tzinfo=timezone.utc)
    assert due(midnight) == DueDays(date(2026, 1, 2), date(2026, 1, 2), (A, B))
    made(B, 2)
    assert due(midnight) == DueDays(date(2026, 1, 2), date(2026, 1, 4), (A,))
    assert due(midnight, (B,)) == DueDays(date(2026, 1, 4), date(2026, 1, 4), (B,))
    assert due(midnight.replace(day=20)) == DueDays(date(2026, 1, 13), date(2026, 1, 19), (A, B))
    made(A, 2)
    assert due(midnight.replace(day=3)) is None


def test_a_view_that_somebody_else_wrote_is_lacking_and_a_refresh_at_work_is_not(source: SimulatedSource) -> None:
    """So is one whose table was moved away; what changes no rows harms nobody."""
    proved(source, a="equal", b="equal")
    store, then = source.lake.store, "2026-01-01T00:00:00Z"
    log = Path(view_path(store, "v"))

    def commit(version: int, app: str, *, changes: bool = True) -> None:
        (log / "_delta_log").mkdir(parents=True, exist_ok=True)
        actions = ({"txn": {"appId": app, "version": version}}, {"add": {"path": "x", "dataChange": changes}})
        (log / commit_name(version)).write_text("\n".join(map(json.dumps, actions)))

    assert not looked(source)
    commit(0, "lakeproof/views/v")
    sources = {"shop": CycleNumber(1)}
    put_cut(
        store,
        ViewCut(CycleNumber(1), "v", 0, "0" * 64, sources, 2, 1, then, 1, "full", None, None, 0, then, {}, None),
    )
    assert not looked(source)
    commit(1, "somebody", changes=False)
    commit(2, "lakeproof/views/v")
    assert not looked(source)
    commit(3, "somebody")
    assert looked(source).views == {"v": "somebody else wrote its table: version 3 was committed by someone else"}
    for version in range(4):
        (log / commit_name(version)).unlink()
    assert "not there any more: version 0" in looked(source).views["v"]


def test_a_document_is_read_once_and_its_error_is_raised_at_each_use(source: SimulatedSource) -> None:
    """What needs no damaged document is known all the same, and a list of problems names it once."""
    source.lake.store.put(source.lake.paths.cut(CycleNumber(1)), b"{}")
    state, problems = SourceState.of(config_of(source), "shop"), Problems()
    assert problems.read(SourceState.cut, state, None) is None
    assert problems.read(SourceState.position, state, None) is None
    source.lake.store.delete(source.lake.paths.cut(CycleNumber(1)))
    assert problems.read(SourceState.cut, state, None) is None
    assert len(problems.listed) == 1
    assert state.chain is not None


def test_damage_of_one_document_hides_no_other_part(source: SimulatedSource) -> None:
    """Its part has no count, and is shown with its reason; a damaged cut hides what comes of it alone."""
    source.lake.store.put(source.lake.paths.days(A), b"{}")
    actual = looked(source, daily=(A,))
    assert (actual.unproved, list(actual.unread), bool(actual)) == ((A, B), ["days"], True)
    assert actual.counts == {"absent_tables": 0, "unproved_tables": 2, "differing_tables": 0, "overwritten_views": 0}
    assert source.lake.paths.days(A) in str(actual.unread["days"])
    proved(source, a="equal", b="equal")
    assert not looked(source, daily=(A,))
    assert not looked(source).unread
    source.lake.store.put(source.lake.paths.cut(CycleNumber(1)), b"{}")
    assert looked(source).counts == {"overwritten_views": 0}


def test_a_held_table_is_no_table_that_was_never_compared(tmp_path: Path) -> None:
    """It stands still, which has a line and a status of its own."""
    columns = {"id": "int4", "v": "text"}
    tables = [
        SimulatedTable(schema(name, columns, ("id",), Identity.DEFAULT, oid)) for oid, name in ((1, "a"), (2, "b"))
    ]
    source = SimulatedSource(tmp_path / "lake", tables)
    source.snapshot(["a", "b"])
    put(source, (B,))
    assert looked(source).unproved == (A,)


def test_metrics_have_the_numbers_of_what_is_lacking(source: SimulatedSource) -> None:
    """At the first scrape, whatever else there is to read."""
    values = {sample.metric: sample.value for sample in LakeSamples(config_of(source), "shop")()}
    lacking = (m.ABSENT_TABLES, m.UNPROVED_TABLES, m.MISSING_DAYS, m.OVERWRITTEN_VIEWS)
    assert [values[metric] for metric in lacking] == [0, 2, 0, 0]
