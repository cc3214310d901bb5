"""The tables that a person's *Materialize* leaves out, since they have a copy already. By documents, without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.config.model import Config, SourceConfig
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut, write_cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.snapshot.folder import SnapshotRequest, request_key
from lakeproof.state.due_copies import already_copied
from tests.edges.planning.plan_steps import A, B, cut_of, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables

C = TableName("app", "c")
ALL = [A, B, C]


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """A source whose two tables are copied and not yet in the lake; a third one never was."""
    return two_tables(tmp_path)


def _left_out(source: SimulatedSource) -> set[TableName]:
    given = SourceConfig(name="shop", dsn=SecretStr("host=nowhere"), publication="pub", slot="slot")
    config = Config(path=source.folder / "w.yaml", lake=str(source.folder), sources={"shop": given})
    return set(already_copied(config, "shop", ALL))


def test_a_copy_that_waits_and_one_that_has_entered_are_not_made_again(source: SimulatedSource) -> None:
    """At once after a copy, and once it is in the lake; the table that never was is copied."""
    assert _left_out(source) == {A, B}
    write_cut(source.lake, cut_of(source, planned(source, None)))
    assert _left_out(source) == {A, B}


def test_a_held_table_is_copied(source: SimulatedSource) -> None:
    """A copy is its way out; once it is held no more, it is left out again."""
    first = cut_of(source, planned(source, None))
    held = {A: Held(first.position, HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "its data"})}
    write_cut(source.lake, replace(first, held=held))
    assert _left_out(source) == {B}
    cut = newest_cut(source.lake)
    assert cut is not None
    write_cut(source.lake, replace(cut, number=CycleNumber(cut.number + 1), held={}))
    assert _left_out(source) == {A, B}


def test_a_copy_that_did_not_come_to_its_end_is_made(source: SimulatedSource) -> None:
    """Whoever asked for it had to say `copy_again`, and need not say so twice."""
    write_cut(source.lake, cut_of(source, planned(source, None)))
    point = Lsn(int(source.chain.head.end_lsn) + 1)
    document = SnapshotRequest(Incarnation(1), point, "slot", "2026-01-01T00:00:00.000000Z", (B,))
    source.lake.store.put(request_key(source.lake.paths.snapshot(Incarnation(1), point)), document.to_bytes())
    assert _left_out(source) == {A}
