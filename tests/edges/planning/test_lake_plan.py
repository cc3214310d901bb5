"""The plan of a cycle: ends of ranges, held tables, snapshots that wait. No Spark and no rows are needed to plan."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.errors import LakeError, TableError, TransientError
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.planning.next_incarnation import plan_switch
from lakeproof.lake.planning.plan import RangeLimit, plan_cycle
from lakeproof.lake.planning.schema_changes import older_versions
from lakeproof.lake.records.cuts import documents as cut_documents
from lakeproof.lake.records.documents import Copy, Cut, CutOrdinals, CycleKind, SchemaChange
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.lease import hold_lease, newest_epoch
from lakeproof.lake.records.store import cut_at, read_cut, write_cut
from lakeproof.landing.chain import Chain
from lakeproof.landing.retention import put_chain_start, remove_below
from lakeproof.landing.segments.reader import slices
from lakeproof.landing.segments.row_order import ROOM
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid
from lakeproof.schema import Identity, SchemaVersion
from tests.edges.planning.plan_steps import ONE, A, B, cut_of, insert, plan, planned
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import START, SimulatedSource, SimulatedTable
from tests.support.workloads.counted_calls import python_calls


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables that have just been snapshotted, at the chain's head."""
    tables = [
        SimulatedTable(schema(name, {"id": "int4", "v": "text"}, ("id",), Identity.DEFAULT, oid))
        for name, oid in (("a", 1), ("b", 2))
    ]
    return SimulatedSource(tmp_path, tables)


def altered(version: SchemaVersion) -> SchemaVersion:
    """The table with one column more."""
    extra = replace(version.columns[1], name="extra", attnum=3)
    return replace(version, columns=(*version.columns, extra))


def test_nothing_to_do_is_no_cycle(source: SimulatedSource) -> None:
    """A chain without links and no snapshot."""
    assert plan(source, None) is None


def test_a_snapshot_at_the_head_enters_at_once(source: SimulatedSource) -> None:
    """The first cycle may have an empty range."""
    source.snapshot(["a", "b"])
    result = planned(source, None)
    assert (result.start, result.end) == (Lsn(START), Lsn(START))
    assert set(result.tables) == {A, B}
    assert all(isinstance(i.work, Copy) for i in result.tables.values())
    assert plan(source, cut_of(source, result)) is None


def test_a_table_without_a_snapshot_is_left_alone(source: SimulatedSource) -> None:
    """The table's changes wait in the landing."""
    source.snapshot(["a"])
    insert(source, "a", "b")
    source.flush()
    assert set(planned(source, None).tables) == {A}


def test_a_snapshot_waits_for_the_chain(source: SimulatedSource) -> None:
    """C lies beyond what is durable: it enters with the cycle that reaches C."""
    insert(source, "a")
    source.flush()
    insert(source, "a")
    source.snapshot(["a"])
    assert not planned(source, None).tables
    source.flush()
    assert isinstance(planned(source, None).tables[A].work, Copy)


def test_a_cycle_ends_with_a_segment_once_it_has_enough_rows(source: SimulatedSource) -> None:
    """A cycle never ends in the middle of the remaining segments."""
    source.snapshot(["a"])
    ends = []
    for _ in range(3):
        insert(source, "a", "b")
        source.flush()
        ends.append(source.chain.end)
    assert planned(source, None, cycle_rows=1).end == ends[0]
    assert planned(source, None, cycle_rows=3).end == ends[1]
    assert planned(source, None).end == ends[2]


def test_an_end_may_lie_inside_a_segment_and_ordinals_go_on(source: SimulatedSource) -> None:
    """A proof's C; each segment has the landing's place."""
    source.snapshot(["a"])
    inside = insert(source, "a")
    insert(source, "a")
    source.flush()
    insert(source, "a")
    source.flush()
    result = planned(source, None, end=inside)
    assert result.end == inside
    rest = planned(source, cut_of(source, result))
    assert rest.ordinals.segments == {1: ROOM, 2: 2 * ROOM + 2}
    # Nothing of the cut's own: the rest of the segment has the landing's ordinals.
    assert result.ordinals.cut == CutOrdinals(ROOM, ROOM + 2)


def changed_in_stream(source: SimulatedSource, version: SchemaVersion, row: tuple[int | str, ...]) -> Cut:
    """A's schema becomes `version` with a row; the cut of the cycle before, which ends right before that transaction."""
    source.snapshot(["a", "b"])
    insert(source, "a", "b")
    last = insert(source, "b")
    source.flush()
    old, source.tables[A].version = source.tables[A].version, version
    source.insert(source.table("a"), row)
    changed = source.commit(random.Random(1))
    source.flush()
    before = planned(source, None)
    assert last < before.end == Lsn(int(changed) - 1)
    assert (before.kind, before.held) == (CycleKind.APPLY, {})
    cut = cut_of(source, before)
    return replace(cut, tables={**cut.tables, A: replace(cut.tables[A], version=old)})


def test_a_schema_that_can_be_given_in_place_is_a_cycle_of_its_own(source: SimulatedSource) -> None:
    """An empty range and that table alone; then the transaction is applied with the others."""
    old = source.tables[A].version
    new = replace(old, columns=(old.columns[0], replace(old.columns[1], name="w")))
    cut = changed_in_stream(source, new, (7, "x"))
    result = planned(source, cut)
    assert (result.kind, result.start, result.end) == (CycleKind.SCHEMA, cut.position, cut.position)
    assert (result.ordinals.segments, result.ordinals.cut) == ({}, cut.ordinals)
    assert {t: isinstance(i.work, SchemaChange) and i.work.version for t, i in result.tables.items()} == {A: new}
    cut = replace(cut, tables={**cut.tables, A: replace(cut.tables[A], version=new)})
    after = planned(source, cut)
    assert (after.kind, after.end, set(after.tables), after.held) == (CycleKind.APPLY, source.chain.end, {A}, {})


def test_a_table_whose_new_schema_cant_be_given_in_place_is_held_and_the_others_go_on(source: SimulatedSource) -> None:
    """Right before the first transaction of the new schema."""
    old = source.tables[A].version
    retyped = replace(old.columns[1], type_oid=Oid(23), type_name="int4", kind="int4")
    cut = changed_in_stream(source, replace(old, columns=(old.columns[0], retyped)), (7, 8))
    result = planned(source, cut)
    assert (result.end, result.tables) == (source.chain.end, {})
    assert result.held[A].at_lsn == cut.position
    assert "the type of v is not a wider one" in result.held[A].reason


def test_an_added_column_waits_until_the_catalog_was_read(source: SimulatedSource) -> None:
    """The value in older rows is unknown: no cycle passes it before the record; without an answer the table is held."""
    cut = changed_in_stream(source, altered(source.tables[A].version), (7, "x", "y"))
    assert plan(source, cut) is None
    source.chain.newest = replace(source.chain.newest, catalog_lsn=source.chain.end)
    result = planned(source, cut)
    assert result.end == source.chain.end
    assert "columns added: extra" in result.held[A].reason
    assert "the catalog's records do not have extra" in result.held[A].reason


def test_rows_of_an_older_schema_are_read_though_the_link_that_named_it_is_gone(source: SimulatedSource) -> None:
    """A drain names a schema once, and may outlive the links: a cut's schemas know it, or the table is held."""
    # Another test of this process may have read the same schema: no lake but this one is to know it.
    cut_documents._schemas.clear()
    source.snapshot(["a", "b"])
    for _ in range(10):
        insert(source, "a")
        source.flush()
    old, start = source.tables[A].version, source.chain.end
    cut = cut_of(source, planned(source, None))
    insert(source, "a")
    source.flush()
    put_chain_start(source.chain, 5)
    remove_below(Chain.open(source.lake, ONE), 5)
    chain = Chain.open(source.lake, ONE)
    pieces = list(slices(chain, start, chain.end, A))
    assert len(pieces) == 1
    with pytest.raises(TableError, match="no kept manifest names the schema"):
        older_versions(chain, altered(old), pieces, start, chain.end)
    write_cut(source.lake, cut)
    assert older_versions(chain, altered(old), pieces, start, chain.end) == {old: pieces}


def test_a_schema_named_again_is_no_change(source: SimulatedSource) -> None:
    """Every drain names a table's schema when it first meets it."""
    source.snapshot(["a"])
    for _ in range(2):
        source._announced.clear()
        insert(source, "a")
        source.flush()
    result = planned(source, None)
    assert result.end == source.chain.end
    assert not result.held


def test_what_is_lost_of_a_history_stays_lost_through_every_plan(source: SimulatedSource) -> None:
    """The loss survives a dropped table, a copy that comes too late, and another incarnation."""
    source.snapshot(["a", "b"])
    cut = cut_of(source, planned(source, None))
    cause, way_out = HeldCause.HISTORY_UNREADABLE, WayOut.RESTORE_FILE_OR_SNAPSHOT
    lost = {t: Held(cut.position, cause, way_out, {"file": "/x"}, history_lost=True) for t in (A, B)}
    cut = replace(cut, held=lost)
    since = source.chain.end
    insert(source, "a", "b")
    source.flush()
    source.snapshot(["b"])
    end = insert(source, "a")
    source.flush()
    source.notice("a", Difference.DROPPED, since, end)
    source.notice("b", Difference.FILTER, since, end)
    held = planned(source, cut).held
    assert {t: h.history_lost for t, h in held.items()} == {A: True, B: True}
    assert held[A].reason.startswith("it was dropped")
    assert held[B].reason.startswith("the publication's row filter")
    switch = plan_switch(source.chain, replace(cut, incarnation=Incarnation(2)), {})
    assert switch is None, "no snapshot has come"
    actual = pending_snapshots(source.lake, ONE, None)
    switch = plan_switch(source.chain, cut, {B: actual[B]})
    assert switch is not None
    assert switch.held[A].history_lost


def test_a_snapshot_older_than_its_tables_schema_does_not_enter(source: SimulatedSource) -> None:
    """The changes since can't be applied to it: the table is held, with the reason."""
    source.snapshot(["b"])
    cut = cut_of(source, planned(source, None))
    insert(source, "b")
    source.snapshot(["a"])
    source.tables[A].version = altered(source.tables[A].version)
    source.insert(source.table("a"), (7, "x", "y"))
    source.commit(random.Random(1))
    source.flush()
    passed = source.chain.end
    insert(source, "b")
    source.flush()
    result = planned(source, replace(cut, position=passed))
    assert set(result.tables) == {B}
    assert "after its snapshot its schema changed: columns added: extra" in result.held[A].reason


def _known_by_two_names(source: SimulatedSource) -> Lsn:
    """Let `b` be the new name of `a`, whose rows come by the old one before and after a copy of `b`; return its point."""
    source.tables[B].version = replace(source.tables[B].version, oid=source.tables[A].version.oid)
    insert(source, "a")
    source.flush()
    source.snapshot(["b"])
    point = source.chain.end
    insert(source, "a")
    source.flush()
    return point


def test_rows_that_come_by_a_former_name_hold_the_table(source: SimulatedSource) -> None:
    """No schema announces them: the stream goes on with the name that it first had."""
    point = _known_by_two_names(source)
    first = planned(source, None)
    assert (set(first.tables), first.end) == ({B}, point)
    second = planned(source, cut_of(source, first))
    assert not second.tables
    assert "its rows came under another name" in second.held[B].reason
    assert second.end == source.chain.end


def test_a_copy_whose_rows_came_by_a_former_name_does_not_enter(source: SimulatedSource) -> None:
    """The lake is past them."""
    source.snapshot(["b"])
    cut = replace(cut_of(source, planned(source, None)), tables={})
    _known_by_two_names(source)
    result = planned(source, replace(cut, position=source.chain.end))
    assert not result.tables
    assert "after its snapshot its schema changed: the table was renamed" in result.held[B].reason


def test_a_position_finds_the_newest_cut_before_it(source: SimulatedSource) -> None:
    """A position before the first cut finds none."""
    source.snapshot(["a"])
    result = cut_of(source, planned(source, None))
    for number, position in ((1, 0x1000), (2, 0x2000), (3, 0x2000), (4, 0x3000)):
        write_cut(source.lake, replace(result, number=CycleNumber(number), position=Lsn(position)))
    actual = [cut_at(source.lake, Lsn(p)).number for p in (0x1000, 0x1FFF, 0x2000, 0x9000)]
    assert actual == [1, 1, 3, 4]
    with pytest.raises(LakeError, match="no cut at or before"):
        cut_at(source.lake, Lsn(1))
    with pytest.raises(LakeError, match="no such cut"):
        read_cut(source.lake, CycleNumber(9))
    number = CycleNumber(4)
    with pytest.raises(TransientError, match="another process"):
        write_cut(source.lake, replace(result, number=number, position=Lsn(0x3001)))


def test_one_lease_at_a_time(source: SimulatedSource) -> None:
    """A second holder is turned away while the first lives; a holder that was followed notices."""
    with hold_lease(source.lake) as lease:
        lease.check()
        with pytest.raises(TransientError, match="another process"), hold_lease(source.lake):
            pass
        taken = source.lake.store.get(source.lake.paths.lease(lease.epoch))
        source.lake.store.put_if_absent(source.lake.paths.lease(lease.epoch + 1), taken)
        with pytest.raises(TransientError, match="taken over"):
            lease.check()
    with hold_lease(source.lake):
        assert newest_epoch(source.lake) == 3


def test_a_snapshot_whose_landing_was_removed_concerns_its_table_alone(source: SimulatedSource) -> None:
    """A copy that came back from a backup, say: it can't be followed to now, and its table says what to do."""
    source.snapshot(["a"])
    for _ in range(10):
        insert(source, "a", "b")
        source.flush()
    cut = cut_of(source, planned(source, None))
    source.snapshot(["b"])
    insert(source, "a")
    source.flush()
    put_chain_start(source.chain, 5)
    remove_below(Chain.open(source.lake, ONE), 5)
    late = plan_cycle(
        Chain.open(source.lake, ONE),
        cut,
        {B: replace(pending_snapshots(source.lake, ONE, cut)[B], consistent_point=Lsn(START))},
        RangeLimit(source.chain.end, 1000),
    )
    assert late is not None
    assert set(late.tables) == {A}
    assert set(late.held) == {B}
    assert "what followed its snapshot" in late.held[B].reason
    assert late.held[B].way_out is WayOut.SNAPSHOT


def test_work_grows_with_the_tables_and_not_with_their_square(tmp_path: Path) -> None:
    """A drain announces each table once after it has connected: of thousands, all in one segment."""
    few, many = (_calls_of_a_plan(tmp_path / str(tables), tables) for tables in (50, 200))
    assert many < 5 * few


def _calls_of_a_plan(folder: Path, tables: int) -> int:
    names = [f"t{number}" for number in range(tables)]
    versions = [
        schema(name, {"id": "int4", "v": "text"}, ("id",), Identity.DEFAULT, oid) for oid, name in enumerate(names, 1)
    ]
    source = SimulatedSource(folder, [SimulatedTable(version) for version in versions])
    source.snapshot(names)
    cut = cut_of(source, planned(source, None))
    insert(source, *names)
    source.flush()
    called = python_calls(lambda: planned(source, cut))
    assert len(planned(source, cut).tables) == tables
    return called
