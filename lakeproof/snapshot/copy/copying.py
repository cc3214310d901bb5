"""Copies the tables of one snapshot into Parquet files, over several connections at a time.

Choosing tables and slots does not belong here (`run.py`, `attempts.py`).

The calling thread hands chunks to copying threads, each with a connection that guards the chunk's leaf during the copy, and
collects the results. At most one table more than there are threads is in progress at a time. Beside each copying thread a
second thread turns its blocks into Parquet. Memory: two blocks of rows per thread.

A table counts as copied once a part names it (`parts.py`), whatever happens to other tables. The files of a table that
failed are removed by this process, or, if it is killed, by the next run.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakeproof.errors import TableError, TransientError
from lakeproof.events import counted
from lakeproof.failpoints import failpoint
from lakeproof.names import TableName
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.connections.connect import Connection, close_quietly, set_for_session, source_errors
from lakeproof.postgres.copying.blocks import BLOCK_BYTES
from lakeproof.postgres.copying.snapshot import (
    Chunk,
    SnapshotSession,
    TableChangedError,
    chunks,
    copy_chunk,
    table_changed,
    typed,
)
from lakeproof.snapshot.context import SnapshotContext
from lakeproof.snapshot.copy.parts import SnapshotParts
from lakeproof.snapshot.copy.rate_limit import RateLimiter
from lakeproof.snapshot.progress import SnapshotProgress
from lakeproof.snapshot.state import SnapshotFile, SnapshotTable
from lakeproof.storage.store import NewFile

if TYPE_CHECKING:
    from lakeproof.snapshot.copy.chunk_rows import ChunkFile

_POLL_S = 0.5
# How often the catalog is asked for alterations of the tables that are being copied.
CATALOG_CHECK_INTERVAL_S = 2.0
BLOCK_BYTES_MIN = 1 << 16
# A chunk with less, which is its only block, is written by the thread that copied it: handing it over would cost more.
FEW_BYTES = BLOCK_BYTES_MIN // 2


@dataclass(slots=True)
class CopiedTable:
    """A table whose chunks are all durable."""

    document: SnapshotTable
    seconds: float


@dataclass(slots=True)
class CopyOutcome:
    """The tables under one snapshot: copied; changed since the snapshot, so to be copied at a later one; or refused."""

    done: dict[TableName, CopiedTable] = field(default_factory=dict)
    changed: dict[TableName, TableChangedError] = field(default_factory=dict)
    failed: dict[TableName, TableError] = field(default_factory=dict)


@dataclass(slots=True)
class _Running:
    """A table whose chunks are being copied."""

    table: PublishedTable
    started: float
    futures: list[Future[tuple[SnapshotFile, NewFile] | None]]

    @property
    def over(self) -> bool:
        return all(future.done() for future in self.futures)

    def error(self) -> BaseException | None:
        """Return the error of the first chunk that failed, None as long as none has."""
        done = (f for f in self.futures if f.done() and not f.cancelled())
        return next((error for error in (f.exception() for f in done) if error is not None), None)


class TableCopier:
    """Copies tables of `session` into `parts`; a context manager that ends its threads and connections."""

    def __init__(
        self, context: SnapshotContext, session: SnapshotSession, parts: SnapshotParts, progress: SnapshotProgress
    ) -> None:
        limits = context.source.snapshot
        self._context = context
        self._source = context.source
        self._session = session
        self._parts = parts
        self._progress = progress
        self._limiter = RateLimiter(limits.bytes_per_s)
        self._stop = context.stop
        # Part of each file's name: two snapshots may be made at the same point, and one may have been killed before.
        self._writer = secrets.token_hex(4)
        self._catalog_checked_at = time.monotonic()
        self._abandoned = threading.Event()
        self._local = threading.local()
        self._opened: list[tuple[Connection, int]] = []
        self._threads = limits.connections
        # With a limited speed a block takes a quarter of a second, not minutes.
        limit = limits.bytes_per_s
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

    def copy(self, tables: Iterable[PublishedTable]) -> CopyOutcome:
        """Copy each table; raise TransientError if a stop was requested or the connection was lost."""
        waiting, running, result = deque(tables), list[_Running](), CopyOutcome()
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
                self._progress.emit()
                if self._parts.due():
                    self._publish(result)
                self._check_catalog(running, result)
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

    def _advance(self, running: _Running, result: CopyOutcome) -> bool:
        """Collect the result of a table; True if it is over."""
        error = running.error()
        if error is not None:
            self._give_up(running)
            if isinstance(error, TableChangedError):
                result.changed[running.table.table] = error
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

    def _check_catalog(self, running: list[_Running], result: CopyOutcome) -> None:
        """Give up altered tables now and then, rather than at the end of their copies."""
        if time.monotonic() - self._catalog_checked_at < CATALOG_CHECK_INTERVAL_S:
            return
        self._catalog_checked_at = time.monotonic()
        catalog = self._parts.catalog
        changed = catalog.changed_tables({each.table.table: each.table.version.oid for each in running})
        for table in [each for each in running if each.table.table in changed]:
            self._give_up(table)
            running.remove(table)
            self._progress.table_done(table.table)
        self._record_changed(changed, result)
        self._progress.cost = catalog.cost(pid for conn, pid in self._opened if not conn.closed)

    def _publish(self, result: CopyOutcome) -> None:
        published, changed = self._parts.publish()
        self._record_changed(changed, result)
        for table in published:
            copied = result.done[table]
            document, chunks = copied.document, len(copied.document.chunks)
            self._context.emit(
                "bootstrap.table",
                f"{table}: {counted(document.rows, 'row')} in {counted(chunks, 'chunk')}",
                table=table.key,
                consistent_point=str(self._session.consistent_point),
                rows=document.rows,
                bytes=document.bytes,
                chunks=chunks,
                seconds=round(copied.seconds, 3),
            )

    def _record_changed(self, changed: Mapping[TableName, str], result: CopyOutcome) -> None:
        for table, reason in changed.items():
            result.done.pop(table, None)
            result.changed[table] = table_changed(table, reason)

    def _document(self, running: _Running) -> SnapshotTable:
        """Return the table's entry; chunks without rows are left out."""
        written = (future.result() for future in running.futures)
        return SnapshotTable.of(running.table.version, [each[0] for each in written if each is not None])

    def _copy_chunk(self, number: int, chunk: Chunk) -> tuple[SnapshotFile, NewFile] | None:
        """Copy a chunk and return its entry and its file, or None if it has no rows."""
        if self._given_up():
            raise InterruptedError("asked to stop")
        # All in one folder: a folder for each of 10,000 tables would have to be made, and synced, as well as its file.
        path = f"{number:06d}-{chunk.table.version.oid}-{self._writer}.parquet"
        # Imported here because it imports the compiler, which only a process that copies should load.
        from lakeproof.snapshot.copy.chunk_rows import ChunkFile, ChunkRows

        rows = ChunkRows(chunk.table.version, number, self._session.consistent_point)
        file = ChunkFile(self._context.lake.store, self._parts.folder, path, rows)
        try:
            self._write(file, chunk)
            entry = file.finish((chunk.from_page, chunk.to_page), chunk.leaf.table.key)
        except BaseException:
            file.abandon()
            # It is in the middle of COPY, or in a failed transaction: useless, and its lock must go.
            close_quietly(getattr(self._local, "connection", None))
            self._local.connection = None
            raise
        failpoint("snapshot.after_chunk")
        self._progress.ended(chunk)
        return None if entry is None or file.file is None else (entry, file.file)

    def _write(self, file: ChunkFile, chunk: Chunk) -> None:
        def write(block: MessageBuffer) -> None:
            file.write(typed(block, chunk))

        conn = self._connection()
        written: Future[None] | None = None
        few: MessageBuffer | None = None
        with self._session.hold(conn, chunk.table, [chunk.leaf]):
            try:
                with closing(copy_chunk(conn, chunk, block_bytes=self._block_bytes, give_up=self._given_up)) as blocks:
                    for block in blocks:
                        self._progress.received(chunk, len(block), block.size)
                        self._limiter.acquire(block.size, self._given_up)
                        if few is not None:
                            # It was not the only one after all.
                            written, few = self._writers.submit(write, few), None
                        if written is None and block.size < FEW_BYTES:
                            few = block
                            continue
                        if written is not None:
                            written.result()
                        written = self._writers.submit(write, block)
            finally:
                # Also after a failed connection: the file may only be abandoned when no thread writes to it.
                if written is not None:
                    wait([written])
        if written is not None:
            written.result()
        if few is not None:
            write(few)

    def _connection(self) -> Connection:
        """Return the calling thread's connection, opened the first time."""
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
            raise TransientError(
                f"snapshot of {self._source.name}",
                "it was stopped before it was complete",
                "run it again: it copies the tables that are left",
            )

    def _give_up(self, running: _Running) -> None:
        for future in running.futures:
            future.cancel()
        wait([future for future in running.futures if not future.cancelled()])
        for future in running.futures:
            written = None if future.cancelled() or future.exception() is not None else future.result()
            if written is not None:
                written[1].abandon()


def largest_first(tables: Iterable[PublishedTable]) -> Sequence[PublishedTable]:
    """Sort by size, the largest first, so that the last thread to finish has the least left to do."""
    return sorted(tables, key=lambda table: (-table.pages, table.table))
