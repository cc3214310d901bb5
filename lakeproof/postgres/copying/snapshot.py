"""A snapshot that is exact at an LSN: created with a slot, shared by several connections, copied in chunks.

Writing chunks and choosing tables do not belong here (`lakeproof.snapshot`), nor do COPY's bytes (`blocks.py`).

    walsender:    BEGIN READ ONLY REPEATABLE READ ─ CREATE_REPLICATION_SLOT … USE_SNAPSHOT ─ pg_export_snapshot() ─ (idle)
    each copier:  BEGIN … ─ SET TRANSACTION SNAPSHOT ─ LOCK TABLE … ACCESS SHARE ─ compare files ─ COPY chunk
                  ROLLBACK ─ BEGIN … (the next chunk)
    now and then: the catalog at the snapshot against the catalog now (`catalog/unchanged.py`), always before a table counts

Invariant handoff: a commit is in the snapshot if and only if its end LSN is ≤ the consistent point C, at which the slot's
stream begins. An ordinary snapshot has no LSN: with six writers, the LSN read beside it was right in 3 of 60 tries.

Why the lock. After a rewriting ALTER or a TRUNCATE that commits between C and the copy, the snapshot sees the table as
empty, and CLUSTER moves every row's ctid: chunks would be wrong without an error. ACCESS SHARE keeps these commands out
from here on; if one came before, `relfilenode` as the snapshot sees it differs from `pg_relation_filenode` now.

Why each chunk takes the lock by itself, and reads nothing beside it that waits for a table. If one connection held the lock
for the whole table, it would not help other connections: an ALTER that waits for the first makes the second wait behind the
ALTER, for ever. And so an application's ALTER waits for a chunk, not for a table.

Known weakness: creating the slot waits for every transaction that is writing at that moment, for ever if one was prepared
and forgotten; so it has a timeout, and its error names them.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias, final

import psycopg
import pyarrow as pa
from psycopg.sql import SQL, Composed, Identifier, Literal
from pydantic import SecretStr

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import SourceConfig
from lakeproof.errors import SourceError, TableError, TransientError
from lakeproof.events import listed
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.tables import Leaf, PublishedTable, identifier
from lakeproof.postgres.catalog.unchanged import change_since, read_catalog
from lakeproof.postgres.connections.connect import (
    Connection,
    close_quietly,
    connect,
    connect_replication,
    rows,
    set_for_session,
    source_errors,
    translate,
)
from lakeproof.postgres.copying.blocks import BLOCK_BYTES, copy_blocks, typed_batch
from lakeproof.postgres.replication_slot import create_slot
from lakeproof.values.cast import CastError

# Tables with those of their leaves that are read.
_Locked: TypeAlias = Sequence[tuple[PublishedTable, Sequence[Leaf]]]
# The errors of SET TRANSACTION SNAPSHOT after the exporting transaction's end: no file (up to 16), or no process.
_SNAPSHOT_GONE = (
    psycopg.errors.UndefinedObject,
    psycopg.errors.InvalidParameterValue,
    psycopg.errors.ObjectNotInPrerequisiteState,
)


class TableChangedError(TableError):
    """The table was rewritten, truncated or altered after the snapshot, or is locked: it needs a later snapshot."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Pages [from_page, to_page) of a leaf of a table; `to_page` None is open-ended."""

    table: PublishedTable
    leaf: Leaf
    from_page: int
    to_page: int | None


@final
class SnapshotSession:
    """A slot with its snapshot, held open from `__enter__` to `__exit__`.

    `consistent_point` is the snapshot's LSN; `snapshot_name` is the argument for `SET TRANSACTION SNAPSHOT` in the same
    database. A temporary slot goes with the session, also if the process is killed; a lasting slot stays.
    `lock_timeout_s` limits the wait for writing transactions, and for a table's lock.
    """

    def __init__(
        self,
        dsn: SecretStr,
        slot: str,
        *,
        temporary: bool,
        lock_timeout_s: float = 10.0,
    ) -> None:
        self._dsn = dsn
        self.slot = slot
        self.temporary = temporary
        self._lock_timeout_s = lock_timeout_s
        self._lock_timeout_ms = max(1, int(lock_timeout_s * 1000))
        self._holder: Connection | None = None
        self.consistent_point = Lsn.ZERO
        self.snapshot_name = ""

    def __enter__(self) -> SnapshotSession:
        holder = self._holder = connect_replication(self._dsn, "lakeproof snapshot")
        try:
            self._begin(holder)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the snapshot; transactions that have imported it keep it until they end."""
        holder, self._holder = self._holder, None
        if holder is None:
            return
        with suppress(psycopg.Error, OSError):
            holder.execute(SQL("ROLLBACK"))
            if self.temporary and self.consistent_point != Lsn.ZERO:
                holder.execute(SQL("DROP_REPLICATION_SLOT {}").format(Identifier(self.slot)))
        close_quietly(holder)

    @property
    def pids(self) -> list[int]:
        """The backend that holds the snapshot, while there is one."""
        return [] if self._holder is None else [self._holder.info.backend_pid]

    def import_into(self, conn: Connection) -> None:
        """Begin a transaction on `conn` that sees exactly this snapshot. Raises as `source_errors`."""
        try:
            with source_errors(f"snapshot of slot {self.slot}"):
                self._begin_in(conn)
        except BaseException:
            with suppress(psycopg.Error):
                conn.execute(SQL("ROLLBACK"))
            raise

    def open(self, application_name: str = "lakeproof snapshot") -> Connection:
        """Open an ordinary connection for `guard`, with this session's lock timeout."""
        return connect(self._dsn, application_name, lock_timeout_s=self._lock_timeout_s)

    def connect(self, application_name: str = "lakeproof snapshot") -> Connection:
        """Open an ordinary connection inside this snapshot, which may stay there for any time."""
        conn = self.open(application_name)
        try:
            self.import_into(conn)
        except BaseException:
            close_quietly(conn)
            raise
        return conn

    def hold(self, conn: Connection, table: PublishedTable, leaves: Sequence[Leaf]) -> AbstractContextManager[None]:
        """Hold a transaction on `conn` that sees `leaves` as at the snapshot: lock them, then compare their files.

        `conn` must be idle and in autocommit mode, and is so again afterwards. Raises TableChangedError if a file is a
        different one now, or the lock could not be taken, else as `source_errors`.
        """
        return self._locking(conn, [(table, leaves)], waits=True)

    @contextmanager
    def guard(self, conn: Connection, source: SourceConfig, *tables: PublishedTable) -> Iterator[None]:
        """`hold` whole tables, and check that their columns, filters and partitions are as at the snapshot too.

        Of several tables no lock is waited for: one who waits for a lock and holds others may be waited for by its holder.
        """
        with self._locking(conn, [(table, table.leaves) for table in tables], waits=len(tables) == 1):
            then = read_catalog(conn, source, [table.version.oid for table in tables])
            self._check_catalog(then, source, tables)
            yield
            # No lock of a reader keeps a partition from being attached: the next plan has its rows, as far as the snapshot
            # sees them.
            roots = [table for table in tables if table.partitioned]
            if roots:
                self._check_catalog(then, source, roots)

    def _check_catalog(self, then: Fingerprint, source: SourceConfig, tables: Sequence[PublishedTable]) -> None:
        with self.open() as outside:
            now = read_catalog(outside, source, [table.version.oid for table in tables])
        for table in tables:
            reason = change_since(then, now, table.version.oid)
            if reason is not None:
                raise table_changed(table.table, reason)

    @contextmanager
    def _locking(self, conn: Connection, locked: _Locked, *, waits: bool) -> Iterator[None]:
        try:
            self._import_and_lock(conn, locked, waits=waits)
            self._compare_files(conn, locked)
            yield
        finally:
            with suppress(psycopg.Error):
                conn.execute(SQL("ROLLBACK"))

    def _begin_in(self, conn: Connection, *statements: Composed | SQL) -> None:
        """Begin a transaction that sees this snapshot, and run `statements` in it, all in one message to the server.

        Raises psycopg.Error, and TransientError if the snapshot is gone.
        """
        begin = SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        snapshot = SQL("SET TRANSACTION SNAPSHOT {}").format(Literal(self.snapshot_name))
        try:
            conn.execute(SQL("; ").join([begin, snapshot, *statements]), prepare=False)
        except _SNAPSHOT_GONE:
            thing = f"snapshot of slot {self.slot}"
            raise TransientError(thing, "the connection that held it was lost", "try again") from None

    def _begin(self, holder: Connection) -> None:
        try:
            set_for_session(holder, {"lock_timeout": f"{self._lock_timeout_ms}ms"})
            holder.execute(SQL("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"))
            self.consistent_point = create_slot(holder, self.slot, temporary=self.temporary)
            row = holder.execute(SQL("SELECT pg_catalog.pg_export_snapshot()")).fetchone()
        except psycopg.errors.LockNotAvailable:
            raise _blocked(self._dsn, self.slot, self._lock_timeout_ms) from None
        except psycopg.errors.DuplicateObject:
            reason = "another process has created it meanwhile"
            raise TransientError(
                f"slot {self.slot}", reason, "see whether another bootstrap runs, then try again"
            ) from None
        except psycopg.Error as error:
            raise translate(error, f"slot {self.slot}") from None
        if row is None:
            raise SourceError(f"slot {self.slot}", "the server exported no snapshot", "see the server's log")
        self.snapshot_name = str(row[0])

    def _import_and_lock(self, conn: Connection, locked: _Locked, *, waits: bool) -> None:
        names = {name for table, leaves in locked for name in (table.table, *(leaf.table for leaf in leaves))}
        relations = SQL(", ").join(SQL("ONLY {}").format(identifier(name)) for name in sorted(names))
        lock = SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(relations)
        thing = _named(locked)
        try:
            self._begin_in(
                conn,
                SQL("SET LOCAL lock_timeout = {}").format(Literal(f"{self._lock_timeout_ms}ms")),
                lock if waits else lock + SQL(" NOWAIT"),
                # From here on only an index that is being rebuilt can be waited for, and that does not wait for us.
                SQL("SET LOCAL lock_timeout = 0"),
            )
        except psycopg.errors.LockNotAvailable:
            # Most often by a running rewrite: at a later point the table may be free.
            raise TableChangedError(
                thing,
                f"its lock could not be taken within {self._lock_timeout_ms / 1000:g} s",
                "let the ALTER or LOCK finish, then run `lakeproof bootstrap` for it again",
            ) from None
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise _changed(thing, "it, or a partition, was dropped or renamed") from None
        except psycopg.Error as error:
            raise translate(error, thing) from None

    def _compare_files(self, conn: Connection, locked: _Locked) -> None:
        with source_errors(_named(locked)):
            oids = [int(leaf.oid) for _, leaves in locked for leaf in leaves]
            files = rows(conn, queries.FILES, {"oids": oids})
        now = {int(row["oid"]): row for row in files}
        for table, leaves in locked:
            for leaf in leaves:
                row = now.get(int(leaf.oid))
                if row is None or not row["same_name"]:
                    raise table_changed(table.table, f"{leaf.table} was renamed or replaced")
                if row["file_now"] is None or int(row["file_then"]) != int(row["file_now"]):
                    raise table_changed(table.table, f"{leaf.table} was rewritten or truncated")


def chunks(table: PublishedTable, chunk_pages: int) -> list[Chunk]:
    """Return the table in ctid ranges of `chunk_pages` pages, leaf by leaf; the last range of each leaf is open-ended.

    The page counts are hints (see `with_sizes`): if a leaf has grown since, its last chunk is larger. A leaf that is no heap
    is a single chunk.
    """
    result = []
    for leaf in table.leaves:
        starts = list(range(0, max(1, leaf.pages), chunk_pages)) if leaf.heap else [0]
        ends = [*starts[1:], None]
        result += [Chunk(table, leaf, start, end) for start, end in zip(starts, ends, strict=True)]
    return result


def copy_chunk(
    conn: Connection, chunk: Chunk, *, block_bytes: int = BLOCK_BYTES, give_up: Callable[[], bool] | None = None
) -> Generator[MessageBuffer, None, None]:
    """Yield the chunk's rows as blocks for `typed`, over a connection that guards its leaf.

    Raises TableError if this table can't be copied, TransientError if the connection is lost, InterruptedError as
    `blocks`.
    """
    with _table_errors(chunk):
        yield from copy_blocks(conn, chunk_query(chunk), block_bytes=block_bytes, give_up=give_up)


def typed(block: MessageBuffer, chunk: Chunk) -> pa.RecordBatch:
    """Return a block of the chunk's rows with columns `_lp_text`, `c0`, …; any thread may do this. Raises TableError."""
    with _table_errors(chunk):
        return typed_batch(block, chunk.table.version.columns)


@contextmanager
def _table_errors(chunk: Chunk) -> Iterator[None]:
    thing = f"table {chunk.table.table}"
    try:
        yield
    except CastError as error:
        raise TableError(thing, str(error), "name the column in the table's as_text in the configuration") from None
    except (pa.ArrowInvalid, psycopg.errors.CharacterNotInRepertoire, psycopg.errors.UntranslatableCharacter):
        reason = f"a text in pages {chunk.from_page} and on of {chunk.leaf.table} is not UTF-8"
        raise TableError(thing, reason, "correct the text in the source") from None
    except psycopg.errors.QueryCanceled:
        reason = f"the copy of pages {chunk.from_page} and on of {chunk.leaf.table} was cancelled, or took too long"
        remedy = (
            "raise snapshot.statement_timeout_s or lower snapshot.chunk_pages, then run `lakeproof bootstrap` again"
        )
        raise TableError(thing, reason, remedy) from None
    except psycopg.Error as error:
        translated = translate(error, thing)
        if isinstance(translated, TransientError):
            raise translated from None
        if (error.sqlstate or "")[:2] == "42" and not isinstance(error, psycopg.errors.InsufficientPrivilege):
            # The table or a column is unknown by its name: it was altered since the snapshot, which saw it.
            raise table_changed(chunk.table.table, "it was altered") from None
        raise TableError(translated.thing, translated.reason, translated.remedy) from None


def chunk_query(chunk: Chunk) -> Composed:
    """Return the SELECT of a chunk: columns by name, of this leaf only, with the publication's row filter."""
    table = chunk.table
    columns = SQL(", ").join(Identifier(column.name) for column in table.version.columns)
    conditions = [SQL("ctid >= {}::tid").format(Literal(f"({chunk.from_page},0)"))] if chunk.leaf.heap else []
    if chunk.to_page is not None:
        conditions.append(SQL("ctid < {}::tid").format(Literal(f"({chunk.to_page},0)")))
    if table.row_filter is not None:
        # The catalog's own text of the expression, printed and parsed under the same empty search_path.
        conditions.append(SQL("({})").format(SQL(table.row_filter)))
    every = SQL("SELECT {} FROM ONLY {}").format(columns, identifier(chunk.leaf.table))
    return SQL("{} WHERE {}").format(every, SQL(" AND ").join(conditions)) if conditions else every


def table_changed(table: TableName, reason: str) -> TableChangedError:
    """Return the error for a table that was changed after the snapshot."""
    return _changed(f"table {table}", reason)


def _changed(thing: str, reason: str) -> TableChangedError:
    return TableChangedError(thing, f"{reason} after the snapshot", "run `lakeproof bootstrap` for it again")


def _named(locked: _Locked) -> str:
    """Return the table that is locked, or how many."""
    return f"table {locked[0][0].table}" if len(locked) == 1 else f"{len(locked)} tables"


def _blocked(dsn: SecretStr, slot: str, timeout_ms: int) -> TransientError:
    """Return the error that names the transactions waited for: each open writing or prepared one."""
    thing = f"slot {slot}"
    reason = f"it could not be created within {timeout_ms / 1000:g} s, since writing transactions were open"
    with connect(dsn, "lakeproof snapshot") as conn, source_errors(thing):
        writers = rows(conn, queries.WRITERS)
    blockers = [
        f"prepared {row['gid']!r} (xid {row['xid']})"
        if row["pid"] is None
        else f"process {row['pid']} (xid {row['xid']}{_open_for(row['age_s'])})"
        for row in writers
    ]
    reason += f": {listed(blockers)}" if blockers else ""
    return TransientError(thing, reason, "let them end, or raise snapshot.lock_timeout_s, then try again")


def _open_for(age_s: int | None) -> str:
    """Return the age of a transaction; nothing if the role may not see it."""
    return "" if age_s is None else f", open for {age_s} s"
