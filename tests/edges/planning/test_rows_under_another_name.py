"""Rows of a table that come under another name: where the range ends, which table is held, which copy is out of date.

With a server it is tested in `tests/scenarios/test_table_renamed_for_a_moment.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.lake.records.held import HeldCause
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.edges.planning.plan_steps import A, B, cut_of, insert, planned
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable, two_tables

X = TableName("app", "x")


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables, snapshotted at the chain's head; rows of the first may come as those of `x`."""
    source = two_tables(tmp_path)
    source.tables[X] = SimulatedTable(replace(source.table("a").version, table=X))
    return source


def landed(source: SimulatedSource, *names: str) -> Lsn:
    """Land a transaction with a row in each table, as a separate segment."""
    end = insert(source, *names)
    source.flush()
    return end


def test_the_table_is_held_before_the_first_of_them(source: SimulatedSource) -> None:
    """The range ends before the transaction, though the table has its old name again; other tables go on."""
    before = landed(source, "a", "b")
    landed(source, "x", "a", "b")
    first = planned(source, None)
    assert (first.end, first.held) == (Lsn(int(source.chain.end) - 1), {})
    second = planned(source, cut_of(source, first))
    assert (set(second.tables), set(second.held)) == ({B}, {A})
    assert before <= second.held[A].at_lsn == first.end
    assert second.held[A].cause is HeldCause.SCHEMA_CHANGE


def test_a_copy_from_before_them_is_out_of_date(source: SimulatedSource) -> None:
    """The lake is past both by then; a copy from after them enters."""
    landed(source, "a", "b")
    cut = cut_of(source, planned(source, None))
    source.snapshot(["a"])
    landed(source, "x")
    landed(source, "a", "b")
    cut = replace(cut, position=source.chain.end)
    assert planned(source, cut).held[A].cause is HeldCause.SNAPSHOT_OUTDATED
    source.snapshot(["a"])
    later = planned(source, cut)
    assert (set(later.tables), later.held) == ({A}, {})
