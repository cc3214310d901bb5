"""Progress of a snapshot: pages and time left from counters alone, and a file that is never in anybody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.tables import Leaf, PublishedTable
from lakeproof.postgres.copying.snapshot import chunks
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.progress import SnapshotProgress, read_progress, sentence
from lakeproof.storage.source_lake import SourceLake

T, EMPTY = TableName("s", "t"), TableName("s", "empty")


def _table(name: TableName, oid: int, pages: int, toast_pages: int = 0) -> PublishedTable:
    column = Column("id", Oid(20), -1, "bigint", "int8", 1, identity=True)
    version = SchemaVersion(name, Oid(oid), Identity.DEFAULT, (column,), ("id",))
    leaf = Leaf(Oid(oid), name, Identity.DEFAULT, pages, toast_pages=toast_pages)
    return PublishedTable(version, None, frozenset(), (leaf,), partitioned=False, publications=("p",))


@pytest.fixture
def lake(tmp_path: Path) -> SourceLake:
    """An empty one."""
    return SourceLake.open(tmp_path, "shop")


class _Run:
    """A progress with a clock that the test moves."""

    def __init__(self, lake: SourceLake, *tables: PublishedTable) -> None:
        self.now = 0.0
        self.events: list[Event] = []
        self.progress = SnapshotProgress(lake, Lsn(0x1000), self.events.append, lambda: self.now)
        self.progress.expect(tables)


def test_pages_done_and_time_left_go_together(lake: SourceLake) -> None:
    """Chunks count when they are written, and for what came of them before; at the end all is done, whatever came."""
    table = _table(T, 20_000, pages=100, toast_pages=300)
    run = _Run(lake, table, _table(EMPTY, 20_001, pages=0))
    parts = chunks(table, 25)
    assert run.progress.now().seconds_left is None
    fractions = []
    for part in parts:
        run.now += 10.0
        run.progress.received(part, 1000, 500_000)
        fractions.append(run.progress.now().fraction)
        run.now += 10.0
        run.progress.received(part, 1000, 500_000)
        run.progress.ended(part)
        fractions.append(run.progress.now().fraction)
    assert fractions == sorted(fractions)
    assert run.progress.now().pages == 400
    run.progress.ended(chunks(_table(EMPTY, 20_001, pages=0), 25)[0])
    run.progress.table_done(table)
    position = run.progress.now()
    assert (position.fraction, position.seconds_left, position.rows, position.bytes, position.tables_done) == (
        1.0,
        0.0,
        8000,
        4_000_000,
        1,
    )
    assert position.rows_per_s == 100.0
    assert sentence(position) == "1 of 2 tables, 8,000 rows, 4.0 MB, 100 rows/s, about 0 s left"


def test_half_done_is_as_long_again(lake: SourceLake) -> None:
    """All pages take equally long."""
    table = _table(T, 20_000, pages=100)
    run = _Run(lake, table)
    for part in chunks(table, 10)[:5]:
        run.now += 2.0
        run.progress.received(part, 10, 80_000)
        run.progress.ended(part)
    assert run.progress.now().seconds_left == 10.0


def test_progress_is_reported_once_a_second_and_can_be_read(lake: SourceLake) -> None:
    """Progress is an event, and a file that goes with the run."""
    table = _table(T, 20_000, pages=100)
    run = _Run(lake, table)
    for _ in range(10):
        run.now += 0.25
        run.progress.received(chunks(table, 10)[0], 1, 100)
        run.progress.emit()
    assert [event.fields["rows"] for event in run.events] == [4, 8]
    assert run.events[0].fields["copying"] == {"s/t": {"rows": 4, "bytes": 400, "pages": 0}}
    read = read_progress(lake)
    assert read is not None
    assert (read.rows, read.consistent_point) == (8, "0/1000")
    run.progress.close()
    assert lake.store.list("") == []


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "lakeproof.snapshotprogress/1"}', "\x00", "null", "{" * 50]
)
def test_a_file_that_is_something_else_is_nothing(lake: SourceLake, text: str) -> None:
    """Only people read the file, so no command fails because of it."""
    lake.store.put(lake.paths.snapshot_progress, text.encode())
    assert read_progress(lake) is None


def test_a_file_that_can_not_be_written_stops_nothing(lake: SourceLake) -> None:
    """A file stands where its folder has to be."""
    lake.store.put("shop", b"")
    run = _Run(lake, _table(T, 20_000, pages=100))
    run.now = 5.0
    run.progress.emit()
    run.progress.close()
    assert len(run.events) == 1
