"""Tables without new rows: the cycle in which they get the schema that the catalog was read to have.

All the way, with a server, it is tested in `test_schema_change.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.lake.records.documents import Cut, CycleKind, SchemaChange
from lakeproof.lake.records.held import HeldCause
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.schema import SchemaVersion
from tests.edges.planning.plan_steps import A, B, cut_of, insert, plan, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables, snapshotted at the chain's head."""
    return two_tables(tmp_path)


def landed(source: SimulatedSource, *names: str) -> Lsn:
    """Land a transaction with a row in each table, as a separate segment."""
    end = insert(source, *names)
    source.flush()
    return end


def renamed(source: SimulatedSource) -> SchemaVersion:
    """The first table with another name for its second column."""
    version = source.table("a").version
    return replace(version, columns=(version.columns[0], replace(version.columns[1], name="w")))


def begun(source: SimulatedSource) -> Cut:
    """The cut after the first cycle."""
    landed(source, "a", "b")
    return cut_of(source, planned(source, None))


def test_the_range_ends_where_the_catalog_was_read_and_the_schema_comes_there(source: SimulatedSource) -> None:
    """The next cycle gives the table its schema, and nothing is left to do."""
    cut, new = begun(source), renamed(source)
    since = source.chain.end
    noticed = landed(source, "b")
    landed(source, "b")
    source.notice("a", Difference.COLUMN_RENAMED, since, noticed, version=new)
    result = planned(source, cut)
    assert (result.kind, result.end, set(result.tables)) == (CycleKind.APPLY, noticed, {B})
    cut = cut_of(source, result, CycleNumber(2), cut)
    result = planned(source, cut)
    assert (result.kind, result.start, result.end, set(result.tables)) == (CycleKind.SCHEMA, noticed, noticed, {A})
    change = result.tables[A].work
    assert isinstance(change, SchemaChange)
    assert change.version == new
    cut = replace(cut, number=CycleNumber(3), tables={**cut.tables, A: replace(cut.tables[A], version=new)})
    result = planned(source, cut)
    assert (result.kind, result.end) == (CycleKind.APPLY, source.chain.end)


def test_also_where_nothing_else_has_come(source: SimulatedSource) -> None:
    """An idle source: the lake stands where the catalog was read."""
    cut = begun(source)
    source.notice("a", Difference.COLUMN_RENAMED, source.chain.end, cut.position, version=renamed(source))
    assert planned(source, cut).kind is CycleKind.SCHEMA


def test_not_where_the_reading_is_ahead_of_the_stream(source: SimulatedSource) -> None:
    """Rows of the old schema may still come."""
    cut = begun(source)
    ahead = Lsn(int(source.chain.end) + 1_000_000)
    source.notice("a", Difference.COLUMN_RENAMED, source.chain.end, ahead, version=renamed(source))
    assert plan(source, cut) is None


def test_not_where_more_than_its_schema_differs(source: SimulatedSource) -> None:
    """The table is in doubt then, and held."""
    cut = begun(source)
    source.notice("a", Difference.FILTER, source.chain.end, cut.position, version=renamed(source))
    result = planned(source, cut)
    assert (result.kind, set(result.held)) == (CycleKind.APPLY, {A})


def test_a_copy_that_waits_gets_the_schema_that_came_after_it(source: SimulatedSource) -> None:
    """The table is in no cut yet: the first cycle ends where the catalog was read, the second one gives the schema."""
    new, since = renamed(source), source.chain.end
    noticed = landed(source, "b")
    landed(source, "b")
    source.notice("a", Difference.COLUMN_RENAMED, since, noticed, version=new)
    result = planned(source, None)
    assert (result.kind, result.end, set(result.tables)) == (CycleKind.APPLY, noticed, {A, B})
    result = planned(source, cut_of(source, result))
    assert (result.kind, result.start, set(result.tables)) == (CycleKind.SCHEMA, noticed, {A})


def test_a_copy_whose_schema_changed_before_it_could_enter_is_made_again(source: SimulatedSource) -> None:
    """The lake is past both the copy and the look at the catalog by then."""
    cut, new = begun(source), renamed(source)
    point = source.snapshot(["a"])
    noticed = landed(source, "b")
    source.notice("a", Difference.COLUMN_RENAMED, point, noticed, version=new)
    landed(source, "b")
    cut = replace(cut, position=source.chain.end, tables={**cut.tables, A: replace(cut.tables[A], version=new)})
    result = planned(source, cut)
    assert result.held[A].cause is HeldCause.SNAPSHOT_OUTDATED
