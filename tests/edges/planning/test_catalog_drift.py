"""The tables that a cycle holds because of the catalog's records in the chain, and the snapshots that settle it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.catalog.differences import Consequence, Difference
from lakeproof.lake.records.documents import Copy, Cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Oid
from lakeproof.snapshot.folder import part_key
from tests.edges.planning.plan_steps import A, B, cut_of, insert, plan, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables

# What ends, and what shows in each row: the rows from before are applied first.
ROWS_FIRST = frozenset({Difference.DROPPED, Difference.RENAMED, Difference.COLUMN_TYPE})


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables, snapshotted at the chain's head."""
    return two_tables(tmp_path)


def landed(source: SimulatedSource) -> Lsn:
    """Land a transaction with a row in each table, as a separate segment."""
    end = insert(source, "a", "b")
    source.flush()
    return end


def in_lake(source: SimulatedSource) -> Cut:
    """The cut after the first cycle."""
    landed(source)
    return cut_of(source, planned(source, None))


@pytest.mark.parametrize("difference", list(Difference), ids=[d.value for d in Difference])
def test_a_table_is_held_by_exactly_the_decisions_that_say_so(source: SimulatedSource, difference: Difference) -> None:
    """The other table goes on."""
    cut = in_lake(source)
    since = source.chain.end
    noticed = landed(source)
    source.notice("a", difference, since, noticed)
    result = planned(source, cut)
    position = since
    if difference in ROWS_FIRST:
        assert (set(result.tables), set(result.held), result.end) == ({A, B}, set(), noticed)
        cut, position = cut_of(source, result, CycleNumber(2)), noticed
        result = planned(source, cut)
    holds = difference.consequence in (Consequence.SNAPSHOT, Consequence.GONE)
    assert set(result.held) == ({A} if holds else set())
    # A range without rows, behind those that came first, names no table.
    assert set(result.tables) == (set() if position == noticed else {B} if holds else {A, B})
    assert result.end == noticed
    if holds:
        assert str(noticed) in result.held[A].reason
        assert result.held[A].at_lsn == position


def test_rows_of_another_type_are_not_from_before(source: SimulatedSource) -> None:
    """The table is held behind the last row of the type that the lake has, however far the stream is."""
    cut = in_lake(source)
    since = source.chain.end
    last = landed(source)
    table = source.table("a")
    before = table.version
    retyped = replace(before.columns[1], type_oid=Oid(2950), kind="uuid")
    table.version = replace(before, columns=(before.columns[0], retyped))
    source.notice("a", Difference.COLUMN_TYPE, since, landed(source))
    result = planned(source, cut)
    assert (result.end, set(result.tables), set(result.held)) == (last, {A, B}, set())
    table.version = before
    result = planned(source, cut_of(source, result, CycleNumber(2)))
    assert (set(result.tables), set(result.held)) == ({B}, {A})
    assert "can't be trusted" not in result.held[A].reason


def test_what_came_before_since_is_applied_first(source: SimulatedSource) -> None:
    """The cycle ends there; the next one holds the table."""
    cut = in_lake(source)
    since = landed(source)
    noticed = landed(source)
    source.notice("a", Difference.FILTER, since, noticed)
    result = planned(source, cut)
    assert (result.end, set(result.tables), set(result.held)) == (since, {A, B}, set())
    result = planned(source, cut_of(source, result, CycleNumber(2), cut))
    assert (result.end, set(result.tables), set(result.held)) == (noticed, {B}, {A})


def test_of_several_doubts_the_earliest_counts(source: SimulatedSource) -> None:
    """The earliest change counts, although rows until the table was dropped would be right."""
    cut = in_lake(source)
    since = source.chain.end
    noticed = landed(source)
    source.notice("a", Difference.FILTER, since, noticed)
    source.notice("a", Difference.DROPPED, since, landed(source))
    result = planned(source, cut)
    assert result.held[A].at_lsn == since


def test_a_table_that_stands_further_on_says_so(source: SimulatedSource) -> None:
    """The difference was noticed late: a cycle without a range holds it, once."""
    cut = in_lake(source)
    since = source.chain.head.end_lsn
    source.notice("a", Difference.REWRITTEN, since, Lsn(int(source.chain.end) + 100))
    result = planned(source, cut)
    assert result.start == result.end
    assert f"it stands at {result.start}, and what it has from {since} on can't be trusted" in result.held[A].reason
    cut = cut_of(source, result, CycleNumber(2), cut)
    assert plan(source, cut) is None


@pytest.mark.parametrize("lag", [0, 3])
def test_a_reading_counts_by_its_positions_and_not_by_its_place(source: SimulatedSource, lag: int) -> None:
    """A drain that is far behind records what is true only later: nothing is held before its time, and nothing missed."""
    cut = in_lake(source)
    position = source.chain.end
    since, noticed = Lsn(int(position) + 1000), Lsn(int(position) + 2000)
    source.notice("a", Difference.FILTER, since, noticed)
    for _ in range(lag):
        landed(source)
    while source.lsn <= int(noticed):
        landed(source)
    number = 2
    while (result := plan(source, cut)) is not None:
        assert (A in result.held) == (result.end > since)
        cut = cut_of(source, result, CycleNumber(number), cut)
        number += 1
    assert A in cut.held


@pytest.mark.parametrize(
    ("place", "fingerprint", "enters"),
    [
        ("after", None, True),
        ("between", "a" * 16, True),
        ("between", "b" * 16, False),
        ("between", None, False),
    ],
)
def test_a_snapshot_settles_what_it_has(
    source: SimulatedSource, place: str, fingerprint: str | None, *, enters: bool
) -> None:
    """A snapshot at or after `noticed` counts; an earlier one only if the catalog had the same table then."""
    cut = in_lake(source)
    since = source.chain.end
    between = landed(source)
    if place == "between":
        source.snapshot(["a"], fingerprint=fingerprint)
    noticed = Lsn(int(landed(source)))
    source.notice("a", Difference.FILTER, since, noticed, after="a" * 16)
    if place == "after":
        source.snapshot(["a"], fingerprint=fingerprint)
    result = planned(source, cut)
    assert (A in result.tables and isinstance(result.tables[A].work, Copy)) == enters
    assert (A in result.held) != enters
    if enters:
        cut = cut_of(source, result, CycleNumber(2), cut)
        existing = {between: fingerprint}
        landed(source)
        again = plan(source, cut, fingerprints=lambda _table, point: existing.get(point))
        assert again is not None
        assert not again.held


def test_a_snapshot_from_before_is_good_until_then(source: SimulatedSource) -> None:
    """The snapshot enters at its point, changes up to `since` are applied, and the table is held there."""
    cut = in_lake(source)
    source.snapshot(["a"])
    since = landed(source)
    noticed = landed(source)
    source.notice("a", Difference.LEFT, since, noticed)
    result = planned(source, cut)
    assert result.end == since
    assert isinstance(result.tables[A].work, Copy)
    result = planned(source, cut_of(source, result, CycleNumber(2), cut))
    assert set(result.held) == {A}


def test_a_snapshot_that_was_finished_late_does_not_slip_through(source: SimulatedSource) -> None:
    """A long copy: by the time it is whole, the other tables are past what was noticed meanwhile."""
    cut = in_lake(source)
    source.snapshot(["a"])
    key = part_key(source.lake.paths.snapshot(source.chain.incarnation, source.chain.end), 0)
    document = source.lake.store.get(key)
    source.lake.store.delete(key)
    since = source.chain.end
    source.notice("a", Difference.REWRITTEN, since, Lsn(int(since) + 1))
    landed(source)
    cut = cut_of(source, planned(source, cut), CycleNumber(2))
    assert A in cut.held
    source.lake.store.put_if_absent(key, document)
    assert plan(source, cut) is None
