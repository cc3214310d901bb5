"""Snapshots of which nothing waits and nothing is missing: nobody reads their documents again. Without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.lake.planning.entries import mark_settled, pending_snapshots
from lakeproof.lake.records.documents import Cut
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import Identity
from lakeproof.snapshot.folder import (
    SnapshotEnd,
    SnapshotRequest,
    end_key,
    missing_tables,
    open_points,
    part_key,
    request_key,
    settled_folders,
)
from lakeproof.snapshot.progress import snapshot_status
from tests.edges.planning.plan_steps import ONE, TIME, A, B, cut_of, insert, planned
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable

C = TableName("app", "c")


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """A source with three tables, two of which are copied and not yet in the lake."""
    columns = {"id": "int4", "v": "text"}
    tables = [schema(name, columns, ("id",), Identity.DEFAULT, oid) for oid, name in enumerate("abc", 1)]
    result = SimulatedSource(tmp_path, [SimulatedTable(version) for version in tables])
    result.snapshot(["a", "b"])
    return result


def _request(source: SimulatedSource, point: Lsn, *tables: TableName) -> str:
    folder = source.lake.paths.snapshot(ONE, point)
    source.lake.store.put(request_key(folder), SnapshotRequest(ONE, point, "slot", TIME, tables).to_bytes())
    return folder


def _end(source: SimulatedSource, point: Lsn, *failed: TableName) -> None:
    end = SnapshotEnd(point, TIME, dict.fromkeys(failed, "its data"), (), (), None)
    source.lake.store.put(end_key(source.lake.paths.snapshot(ONE, point)), end.to_bytes())


def _copied(source: SimulatedSource, before: Cut, name: str) -> Cut:
    """Copy one table; return the cut that it enters with."""
    insert(source, name)
    source.flush()
    point = source.snapshot([name])
    _request(source, point, source.table(name).version.table)
    _end(source, point)
    after = cut_of(source, planned(source, before), CycleNumber(before.number + 1), before)
    entered = replace(after.tables[source.table(name).version.table], snapshot_lsn=point)
    return replace(after, tables=dict(after.tables) | {entered.version.table: entered})


def test_what_is_settled_is_not_read_again(source: SimulatedSource) -> None:
    """Its documents are damaged, and nobody notices; those of the next snapshot are read."""
    point = source.chain.head.end_lsn
    folder = _request(source, point, A, B)
    cut = cut_of(source, planned(source, None))
    mark_settled(source.chain, cut)
    assert not settled_folders(source.lake, ONE)
    _end(source, point)
    mark_settled(source.chain, cut)
    assert settled_folders(source.lake, ONE) == {folder}
    for key in (request_key(folder), part_key(folder, 0), end_key(folder)):
        source.lake.store.put(key, b"{}")
    later = Lsn(int(point) + 1)
    assert missing_tables(source.lake, ONE) == set()
    assert pending_snapshots(source.lake, ONE, cut) == {}
    assert open_points(source.lake, ONE) == []
    assert snapshot_status(source.chain, locked=False) is None
    _request(source, later, B)
    assert missing_tables(source.lake, ONE) == {B}
    assert open_points(source.lake, ONE) == [later]
    status = snapshot_status(source.chain, locked=False)
    assert status is not None
    assert (status.consistent_point, status.missing, status.tables_done) == (later, (B,), 0)


def test_a_table_that_failed_is_missing_until_a_later_copy_is_in_the_lake(source: SimulatedSource) -> None:
    """Other copies after it do not settle its snapshot."""
    point = source.chain.head.end_lsn
    folder = _request(source, point, A, B, C)
    _end(source, point, C)
    cut = cut_of(source, planned(source, None))
    mark_settled(source.chain, cut)
    assert not settled_folders(source.lake, ONE)
    assert missing_tables(source.lake, ONE) == {C}
    second = _copied(source, cut, "a")
    mark_settled(source.chain, second)
    assert len(settled_folders(source.lake, ONE)) == 1
    assert missing_tables(source.lake, ONE) == {C}
    third = _copied(source, second, "c")
    assert missing_tables(source.lake, ONE) == set()
    mark_settled(source.chain, second)
    assert folder not in settled_folders(source.lake, ONE)
    mark_settled(source.chain, third)
    assert len(settled_folders(source.lake, ONE)) == 3


def test_a_table_that_failed_and_was_dropped_is_missing_no_more(source: SimulatedSource) -> None:
    """Once the catalog was read after its copy: before that, nobody knows that it is gone."""
    point = source.chain.head.end_lsn
    folder = _request(source, point, A, B, C)
    _end(source, point, C)
    cut = cut_of(source, planned(source, None))
    source.notice("a", Difference.COLUMN_RENAMED, Lsn(int(point) - 2), Lsn(int(point) - 1))
    mark_settled(source.chain, cut)
    assert not settled_folders(source.lake, ONE)
    assert missing_tables(source.lake, ONE) == {C}
    source.notice("a", Difference.COLUMN_RENAMED, Lsn(int(point) - 1), point)
    mark_settled(source.chain, cut)
    assert settled_folders(source.lake, ONE) == {folder}
    assert missing_tables(source.lake, ONE) == set()
