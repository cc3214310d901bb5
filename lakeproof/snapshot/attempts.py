"""Copies tables under several snapshots, a bounded number: one for all tables, then one for those changed meanwhile.

Choosing the tables is `run.py`'s; copying under one snapshot is `copying.py`'s.

    C1  a b c d e      all tables under one snapshot
    C2      c   e      c was truncated after C1 and e renamed: both again, e under its new name
    C3      c          and again, after a growing pause; a table dropped meanwhile is reported and skipped

A table that changes each time is given up after `snapshot.attempts`, with the reason; all other tables are complete by then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakeproof.errors import DefiniteError, LakeproofError, TableError
from lakeproof.failpoints import failpoint
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.postgres.catalog.published import read_tables, with_sizes
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.catalog.unchanged import read_catalog
from lakeproof.postgres.checks.findings import refused_tables
from lakeproof.postgres.checks.tables import schema_findings
from lakeproof.postgres.connections.connect import Connection, close_quietly
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.snapshot.context import SnapshotContext
from lakeproof.snapshot.copy.copying import CopyOutcome, TableCopier, largest_first
from lakeproof.snapshot.copy.parts import CatalogNow, SnapshotParts
from lakeproof.snapshot.folder import SnapshotRequest
from lakeproof.snapshot.progress import SnapshotProgress
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.times import now_text

# The pause before the second attempt; it doubles before each further one: a person who alters a table often continues to.
PAUSE_S = 0.2
PAUSE_S_MAX = 10.0
_SLOT_NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class SnapshotTableReport:
    """A copied table; `bytes` counts its Parquet files, `seconds` is None if another run had copied it."""

    rows: int
    bytes: int
    chunks: int
    seconds: float | None
    consistent_point: Lsn

    @classmethod
    def of(cls, table: SnapshotTable, point: Lsn, seconds: float | None = None) -> SnapshotTableReport:
        """Return the report of a copy at `point`."""
        return cls(table.rows, table.bytes, len(table.chunks), seconds, point)


@dataclass(slots=True)
class AttemptsOutcome:
    """The outcome for each table. `skipped` tables were dropped or unpublished after they had been chosen."""

    tables: dict[TableName, SnapshotTableReport] = field(default_factory=dict)
    failed: dict[TableName, TableError] = field(default_factory=dict)
    skipped: list[TableName] = field(default_factory=list)


@dataclass(slots=True)
class _Resolved:
    """The requested tables as a snapshot sees them: the copyable ones, those gone, and those that can't be copied."""

    tables: dict[TableName, PublishedTable]
    gone: list[TableName]
    refused: dict[TableName, TableError]


class Attempts:
    """The snapshots of one run into one incarnation; `point` and `slot` are those of the first snapshot, once it exists."""

    def __init__(self, context: SnapshotContext, incarnation: Incarnation) -> None:
        self.point = Lsn.ZERO
        self.slot = ""
        self._context = context
        self._source = context.source
        self._incarnation = incarnation
        self._outcome = AttemptsOutcome()
        # These identify a table after a rename.
        self._oids: dict[TableName, Oid] = {}

    def run(
        self, names: Sequence[TableName], *, creates_slot: bool, on_first: Callable[[SnapshotSession], None]
    ) -> AttemptsOutcome:
        """Copy `names`; the first attempt uses the lasting slot if this run creates it (`creates_slot`).

        `on_first` is called with the first attempt's session before anything is copied. Raises as
        `lakeproof.commands.bootstrap.bootstrap`; tables that are complete by then stay complete.
        """
        left, attempts_max = list(names), self._source.snapshot.attempts
        for attempt in range(1, attempts_max + 1):
            lasting = creates_slot and attempt == 1
            slot = self._source.slot if lasting else self._temporary_name()
            session = SnapshotSession(
                self._source.dsn,
                slot,
                temporary=not lasting,
                lock_timeout_s=self._source.snapshot.lock_timeout_s,
            )
            with session:
                point = session.consistent_point
                message = f"slot {slot} is exact at {point}"
                self._context.emit("bootstrap.slot", message, slot=slot, consistent_point=str(point))
                failpoint("bootstrap.after_slot")
                if attempt == 1:
                    on_first(session)
                    self.point, self.slot = point, slot
                copied = self._copy(session, left, last=attempt == attempts_max)
            left = list(copied.changed)
            if not left or attempt == attempts_max:
                break
            self._report_changed(copied, attempt, attempts_max)
            self._context.stop.wait(min(PAUSE_S * 2 ** (attempt - 1), PAUSE_S_MAX))
        return self._outcome

    def _copy(self, session: SnapshotSession, names: Sequence[TableName], *, last: bool) -> CopyOutcome:
        point, lake = session.consistent_point, self._context.lake
        conn = session.connect("lakeproof bootstrap")
        try:
            resolved = self._resolve(conn, names)
            tables = largest_first(with_sizes(conn, resolved.tables.values()))
            # The catalog at the snapshot: it separates changes that came before the snapshot from those that came after.
            catalog = read_catalog(conn, self._source, [t.version.oid for t in tables])
        finally:
            close_quietly(conn)
        requested = (*resolved.tables, *resolved.gone, *resolved.refused)
        request = SnapshotRequest(self._incarnation, point, session.slot, now_text(), requested)
        now = CatalogNow(session, self._source, catalog)
        parts = SnapshotParts(lake.store, lake.paths.snapshot(self._incarnation, point), request, now)
        parts.begin()
        progress = SnapshotProgress(lake, point, self._context.report)
        try:
            with TableCopier(self._context, session, parts, progress) as copier:
                copied = copier.copy(tables)
            copied.failed.update(resolved.refused)
            self._conclude(parts, copied, resolved.gone, last=last)
        except BaseException as error:
            parts.interrupted(error.reason if isinstance(error, LakeproofError) else type(error).__name__)
            raise
        finally:
            now.close()
            progress.close()
        return copied

    def _resolve(self, conn: Connection, names: Sequence[TableName]) -> _Resolved:
        """Read the tables as the snapshot sees them, under the names that they have there.

        What was read before the snapshot is older than it.
        """
        unread: dict[TableName, DefiniteError] = {}
        tables = read_tables(conn, self._source, only=set(names), refused=unread)
        refused = {name: TableError(error.thing, error.reason, error.remedy) for name, error in unread.items()}
        gone = [name for name in names if name not in tables and name not in refused]
        renamed = {self._oids[name]: name for name in gone if name in self._oids}
        for table in read_tables(conn, self._source, refused={}).values() if renamed else ():
            old = renamed.get(table.version.oid)
            if old is not None:
                tables[table.table] = table
                gone.remove(old)
                message = f"{old} is {table.table} now"
                self._context.emit("bootstrap.renamed", message, table=table.table.key, was=old.key)
        self._oids |= {name: table.version.oid for name, table in tables.items()}
        refused |= refused_tables(
            finding for table in tables.values() for finding in schema_findings(table, self._source)
        )
        return _Resolved({name: table for name, table in tables.items() if name not in refused}, gone, refused)

    def _conclude(self, parts: SnapshotParts, copied: CopyOutcome, gone: Sequence[TableName], *, last: bool) -> None:
        # A table altered meanwhile is copied at a later point, but not for ever.
        failed = copied.failed | (copied.changed if last else {})
        parts.end({name: str(error) for name, error in failed.items()}, gone)
        self._outcome.failed |= failed
        for name in gone:
            self._outcome.skipped.append(name)
            message = f"{name} was dropped, or is not published any more: skipped"
            self._context.emit("bootstrap.skipped", message, table=name.key)
        for name, table in copied.done.items():
            report = SnapshotTableReport.of(table.document, parts.consistent_point, table.seconds)
            self._outcome.tables[name] = report

    def _report_changed(self, copied: CopyOutcome, attempt: int, attempts_max: int) -> None:
        for name, error in copied.changed.items():
            self._context.emit(
                "bootstrap.changed",
                f"{name} is copied again at a later point: {error.reason} (attempt {attempt + 1} of {attempts_max})",
                table=name.key,
                reason=error.reason,
                attempt=attempt + 1,
                attempts_max=attempts_max,
            )

    def _temporary_name(self) -> str:
        suffix = f"_snap_{secrets.token_hex(4)}"
        return self._source.slot[: _SLOT_NAME_MAX - len(suffix)] + suffix
