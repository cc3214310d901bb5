"""The time at which a held table may be copied without being asked, by the lake's record of earlier copies."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.config.model import Config, SourceConfig
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut, write_cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.snapshot.folder import SnapshotRequest, request_key
from lakeproof.state.due_copies import Recopy, recopy
from tests.edges.planning.plan_steps import A, B, cut_of, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables

NOW = datetime(2026, 1, 2, tzinfo=timezone.utc)


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """A source of which `a` is held right after the first cycle."""
    result = two_tables(tmp_path)
    first = cut_of(result, planned(result, None))
    held = {A: Held(first.position, HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "its data"})}
    write_cut(result.lake, replace(first, held=held))
    return result


def copied(source: SimulatedSource, point: int, ago: timedelta, *tables: TableName) -> None:
    """A snapshot was to copy these."""
    document = SnapshotRequest(Incarnation(1), Lsn(point), "slot", (NOW - ago).isoformat(), tables)
    folder = source.lake.paths.snapshot(Incarnation(1), Lsn(point))
    source.lake.store.put(request_key(folder), document.to_bytes())


def looked(source: SimulatedSource) -> Recopy:
    """The tables due at `NOW`."""
    given = SourceConfig(name="shop", dsn=SecretStr("host=nowhere"), publication="pub", slot="slot")
    lake = str(source.folder)
    assert source.lake.source == "shop"
    return recopy(Config(path=source.folder / "w.yaml", lake=lake, sources={"shop": given}), "shop", NOW)


def test_a_table_held_right_after_its_first_copy_is_copied_at_once(source: SimulatedSource) -> None:
    """The first copy is older than the hold, so it does not show that copies fail to help."""
    copied(source, int(source.chain.head.end_lsn), timedelta(minutes=1), A, B)
    assert (set(looked(source).due), looked(source).paused) == ({A}, {})


def test_a_table_whose_history_is_lost_waits_for_a_person(source: SimulatedSource) -> None:
    """A copy would begin the table's history again, which can't be undone."""
    cut = newest_cut(source.lake)
    assert cut is not None
    held = {table: replace(why, history_lost=True) for table, why in cut.held.items()}
    write_cut(source.lake, replace(cut, number=CycleNumber(cut.number + 1), held=held))
    assert looked(source) == Recopy()


def test_copies_after_the_first_one_count(source: SimulatedSource) -> None:
    """Earlier snapshots of other tables don't count."""
    point = int(source.chain.head.end_lsn)
    copied(source, point, timedelta(days=3), B)
    copied(source, point + 1, timedelta(days=2), B)
    copied(source, point + 2, timedelta(minutes=2), A)
    assert set(looked(source).due) == {A}
    copied(source, point + 3, timedelta(minutes=1), A)
    assert looked(source).paused == {A: NOW + timedelta(minutes=9)}


def test_a_copy_of_today_counts_where_the_first_one_was_long_ago(source: SimulatedSource) -> None:
    """The copy was made since the table was held, and did not help."""
    point = int(source.chain.head.end_lsn)
    copied(source, point, timedelta(days=3), A, B)
    copied(source, point + 3, timedelta(minutes=1), A)
    assert looked(source).paused == {A: NOW + timedelta(minutes=9)}
