"""Copying tables of one snapshot into Parquet chunks, several connections at a time.

Which tables, and under which slot, belongs to `lakeproof.commands.bootstrap`.

The calling thread hands chunks to copying threads, each with a connection that guards the chunk's leaf while it is copied,
and collects them. At most one table more than there are threads is in the works at a time. Beside each copying thread
another one turns its blocks into Parquet.
Memory: two blocks of rows per thread.

A table counts from the part on that names it (`snapshot_parts`), whatever happens to the others. The files of a table that
did not come through are removed, as far as this process lives to do it; else by the next run.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from dataclasses import dataclass, field

import pyarrow.parquet as pq

from lakeproof.config.model import SourceConfig
from lakeproof.errors import TableError, TransientError
from lakeproof.events import Event, Report, Stop
from lakeproof.failpoints import failpoint
from lakeproof.landing.decoded_size import DecodedCount
from lakeproof.names import TableName
from lakeproof.postgres.catalog_published import PublishedTable
from lakeproof.postgres.connection import Connection, close_quietly, set_for_session, source_errors
from lakeproof.postgres.copy_blocks import BLOCK_BYTES, Block
from lakeproof.postgres.copy_snapshot import (
    Chunk,
    SnapshotSession,
    TableMovedError,
    chunks,
    copy_chunk,
    table_moved,
    typed,
)
from lakeproof.snapshot.parts import SnapshotParts
from lakeproof.snapshot.progress import SnapshotProgress
from lakeproof.snapshot.rate_limit import Pace
from lakeproof.snapshot.state import Chunk as ChunkDoc
from lakeproof.snapshot.state import SnapshotTable as TableDoc
from lakeproof.storage.parquet import open_parquet
from lakeproof.storage.store import NewFile, Store

_POLL_S = 0.5
# How often the catalog is asked whether a table that is being copied was altered.
LOOK_INTERVAL_S = 2.0
BLOCK_BYTES_MIN = 1 << 16


@dataclass(slots=True)
class CopiedTable:
    """A table whose chunks are all durable."""

    document: TableDoc
    seconds: float

    @property
    def bytes(self) -> int:
        """Of its files."""
        return sum(chunk.bytes for chunk in self.document.chunks)


@dataclass(slots=True)
class Copied:
    """What became of the tables: copied; moved away under the snapshot, so to be copied at a later one; or refused."""

    done: dict[TableName, CopiedTable] = field(default_factory=dict)
    moved: dict[TableName, TableMovedError] = field(default_factory=dict)
    failed: dict[TableName, TableError] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    """A table with its chunks on their way."""

    table: PublishedTable
    started: float
    futures: list[Future[tuple[ChunkDoc, NewFile] | None]]

    @property
    def over(self) -> bool:
        return all(future.done() for future in self.futures)

    def error(self) -> BaseException | None:
        """The first chunk's that failed, None as long as none has."""
        done = (f for f in self.futures if f.done() and not f.cancelled())
        return next((error for error in (f.exception() for f in done) if error is not None), None)


class _Draft:
    """A chunk's file, made with its first rows: of 10,000 empty tables none is made."""

    def __init__(self, store: Store, key: str, chunk: Chunk) -> None:
        self.file: NewFile | None = None
        self.rows = 0
        self.decoded = DecodedCount()
        self._store = store
        self._key = key
        self._chunk = chunk
        self._writer: pq.ParquetWriter | None = None

    def write(self, block: Block) -> None:
        """Append a block as a row group."""
        batch = typed(block, self._chunk)
        if self._writer is None:
            self.file = self._store.create(self._key)
            self._writer = open_parquet(self.file, batch.schema)
        self._writer.write_batch(batch)
        self.decoded.add(batch)
        self.rows += batch.num_rows

    def finish(self) -> None:
        """Make its contents durable, where there are any."""
        if self._writer is not None and self.file is not None:
            self._writer.close()
            self.file.finish()

    def abandon(self) -> None:
        """Let go of it and remove it."""
        if self.file is not None:
            self.file.abandon()
        if self._writer is not None:
            with suppress(OSError, ValueError):
                self._writer.close()


class TableCopier:
    """Copies tables of `session` into `parts`; a context manager that ends its threads and connections."""

    def __init__(
        self,
        source: SourceConfig,
        session: SnapshotSession,
        store: Store,
        parts: SnapshotParts,
        *,
        progress: SnapshotProgress,
        report: Report,
        stop: Stop,
    ) -> None:
        self._source = source
        self._session = session
        self._store = store
        self._parts = parts
        self._catalog = parts.catalog
        self._progress = progress
        self._pace = Pace(source.snapshot.bytes_per_s)
        self._folder = parts.folder
        self._report = report
        self._stop = stop
        # Two snapshots at the same point may be made at the same time, and one may have been killed before: no name twice.
        self._writer = secrets.token_hex(4)
        self._looked = time.monotonic()
        self._abandoned = threading.Event()
        self._local = threading.local()
        self._opened: list[tuple[Connection, int]] = []
        self._threads = source.snapshot.connections
        # Where the speed is limited, in steps of a quarter of a second, not of minutes.
        limit = source.snapshot.bytes_per_s
        self._block_bytes = min(BLOCK_BYTES, max(BLOCK_BYTES_MIN, limit // 4)) if limit else BLOCK_BYTES
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="lakeproof-copy")
        self._writers = ThreadPoolExecutor(self._threads, thread_name_prefix="lakeproof-parquet")

    def __enter__(self) -> TableCopier:
        return self

    def __exit__(self, *_: object) -> None:
        self._abandoned.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._writers.shutdown(wait=True)
        for conn, _pid in self._opened:
            close_quietly(conn)

    def copy(self, tables: Iterable[PublishedTable]) -> Copied:
        """Copy each table; raises TransientError where the stop was requested or the connection lost."""
        waiting, running, result = deque(tables), list[_Running](), Copied()
        self._progress.expect(waiting)
        try:
            while waiting or running:
                self._check_stop()
                while waiting and len(running) <= self._threads:
                    running.append(self._begin(waiting.popleft()))
                pending = [f for table in running for f in table.futures if not f.done()]
                if pending:
                    wait(pending, timeout=_POLL_S, return_when=FIRST_COMPLETED)
                for table in list(running):
                    if self._advance(table, result):
                        running.remove(table)
                        self._progress.table_done(table.table)
                self._progress.tell()
                if self._parts.due():
                    self._publish(result)
                self._look(running, result)
            failpoint("bootstrap.after_chunks")
            self._publish(result)
        except BaseException:
            self._abandoned.set()
            for table in running:
                self._give_up(table)
            raise
        return result

    def _begin(self, table: PublishedTable) -> _Running:
        parts = chunks(table, self._source.snapshot.chunk_pages)
        started = time.monotonic()
        return _Running(table, started, [self._pool.submit(self._copy_chunk, *part) for part in enumerate(parts)])

    def _advance(self, running: _Running, result: Copied) -> bool:
        """Look after one table; True when it is over."""
        error = running.error()
        if error is not None:
            self._give_up(running)
            if isinstance(error, TableMovedError):
                result.moved[running.table.table] = error
                return True
            if isinstance(error, TableError):
                result.failed[running.table.table] = error
                return True
            self._check_stop()
            raise error
        if not running.over:
            return False
        document = self._document(running)
        result.done[running.table.table] = CopiedTable(document, time.monotonic() - running.started)
        self._parts.add(running.table.table, document)
        return True

    def _look(self, running: list[_Running], result: Copied) -> None:
        """Now and then: give up tables that were altered, rather than find it out at their end."""
        if time.monotonic() - self._looked < LOOK_INTERVAL_S:
            return
        self._looked = time.monotonic()
        moved = self._catalog.moved({each.table.table: each.table.version.oid for each in running})
        for table in [each for each in running if each.table.table in moved]:
            self._give_up(table)
            running.remove(table)
            self._progress.table_done(table.table)
        self._note(moved, result)
        self._progress.cost = self._catalog.cost(pid for conn, pid in self._opened if not conn.closed)

    def _publish(self, result: Copied) -> None:
        put, moved = self._parts.publish()
        self._note(moved, result)
        for table in put:
            self._report(self._told(table, result.done[table]))

    def _note(self, moved: Mapping[TableName, str], result: Copied) -> None:
        for table, reason in moved.items():
            result.done.pop(table, None)
            result.moved[table] = table_moved(table, reason)

    def _told(self, table: TableName, copied: CopiedTable) -> Event:
        document = copied.document
        return Event(
            "bootstrap.table",
            f"{table}: {document.rows:,} rows in {len(document.chunks)} chunks",
            {
                "source": self._source.name,
                "table": table.key,
                "consistent_point": str(self._session.consistent_point),
                "rows": document.rows,
                "bytes": copied.bytes,
                "chunks": len(document.chunks),
                "seconds": round(copied.seconds, 3),
            },
        )

    def _document(self, running: _Running) -> TableDoc:
        """The table's entry, its files' names made durable; chunks without rows are left out."""
        written = (future.result() for future in running.futures)
        kept = [each[0] for each in written if each is not None]
        self._store.settle(f"{self._folder}/{chunk.path}" for chunk in kept)
        return TableDoc(running.table.version, sum(chunk.rows for chunk in kept), tuple(kept))

    def _copy_chunk(self, number: int, chunk: Chunk) -> tuple[ChunkDoc, NewFile] | None:
        """The chunk's entry and file; None where it has no rows."""
        if self._given_up():
            raise InterruptedError("asked to stop")
        path = f"{chunk.table.table.key}/{number:06d}-{self._writer}.parquet"
        draft = _Draft(self._store, f"{self._folder}/{path}", chunk)
        try:
            self._write(draft, chunk)
        except BaseException:
            draft.abandon()
            # In the middle of COPY, or in a transaction that has failed: of no more use, and its lock is to go.
            close_quietly(getattr(self._local, "connection", None))
            self._local.connection = None
            raise
        failpoint("snapshot.after_chunk")
        self._progress.ended(chunk)
        if draft.file is None:
            return None
        pages, file, decoded = (chunk.from_page, chunk.to_page), draft.file, draft.decoded.so_far
        return ChunkDoc(path, draft.rows, file.bytes_written, file.sha256, decoded, pages, chunk.leaf.table.key), file

    def _write(self, draft: _Draft, chunk: Chunk) -> None:
        conn = self._connection()
        written: Future[None] | None = None
        with self._session.hold(conn, chunk.table, [chunk.leaf]):
            try:
                with closing(copy_chunk(conn, chunk, block_bytes=self._block_bytes, give_up=self._given_up)) as blocks:
                    for block in blocks:
                        self._progress.received(chunk, block.rows, block.wire.size)
                        self._pace.take(block.wire.size, self._given_up)
                        if written is not None:
                            written.result()
                        written = self._writers.submit(draft.write, block)
            finally:
                # Also where the connection failed: the file may only be let go of when nobody writes to it.
                if written is not None:
                    wait([written])
        if written is not None:
            written.result()
        draft.finish()

    def _connection(self) -> Connection:
        """The calling thread's."""
        conn: Connection | None = getattr(self._local, "connection", None)
        if conn is None:
            conn = self._local.connection = self._session.open()
            self._opened.append((conn, conn.info.backend_pid))
            limit_s = self._source.snapshot.statement_timeout_s
            if limit_s:
                with source_errors("the source"):
                    set_for_session(conn, {"statement_timeout": f"{max(1, int(limit_s * 1000))}ms"})
        return conn

    def _given_up(self) -> bool:
        return self._abandoned.is_set() or self._stop.requested

    def _check_stop(self) -> None:
        if self._stop.requested:
            what = f"snapshot of {self._source.name}"
            raise TransientError(
                what, "it was stopped before it was complete", "run it again: it copies the tables that are left"
            )

    def _give_up(self, running: _Running) -> None:
        for future in running.futures:
            future.cancel()
        wait([future for future in running.futures if not future.cancelled()])
        for future in running.futures:
            written = None if future.cancelled() or future.exception() is not None else future.result()
            if written is not None:
                written[1].abandon()


def order(tables: Iterable[PublishedTable]) -> Sequence[PublishedTable]:
    """The largest first, so that the last thread to finish has the least left to do."""
    return sorted(tables, key=lambda table: (-table.pages, table.table))
