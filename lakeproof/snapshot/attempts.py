"""Copy chosen tables under as many snapshots as it takes, a bounded number: one for all, then one for those that moved.

Which tables, and what is there already, belongs to `lakeproof.commands.bootstrap`; the copying of one snapshot to `copying`.

    C1  a b c d e      all of them under one snapshot
    C2      c   e      c was truncated after C1 and e renamed: again, under the name that it has now
    C3      c          and again, after a pause that grows; a table that was dropped meanwhile is said and skipped

A table that moves each time is given up after `snapshot.attempts` with the reason; the others are complete by then.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakeproof.config.model import SourceConfig
from lakeproof.errors import DefiniteError, LakeproofError, TableError
from lakeproof.events import Event, Report, Stop
from lakeproof.failpoints import failpoint
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.postgres.catalog_published import PublishedTable, measured, read_tables
from lakeproof.postgres.catalog_unchanged import shapes
from lakeproof.postgres.check_findings import refusals
from lakeproof.postgres.check_tables import shape_findings
from lakeproof.postgres.connection import Connection, close_quietly
from lakeproof.postgres.copy_snapshot import SnapshotSession
from lakeproof.snapshot.copying import Copied, TableCopier, order
from lakeproof.snapshot.folder import Wanted
from lakeproof.snapshot.parts import CatalogNow, SnapshotParts
from lakeproof.snapshot.progress import SnapshotProgress
from lakeproof.storage.fields import now_text
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

# Before the second attempt, and twice as long before each further one: whoever alters a table often goes on doing so.
PAUSE_S = 0.2
PAUSE_S_MAX = 10.0
_SLOT_NAME_MAX = 63


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A copied table; `bytes` are those of its Parquet files, `seconds` None where another run had copied it."""

    rows: int
    bytes: int
    chunks: int
    seconds: float | None
    consistent_point: Lsn


@dataclass(slots=True)
class Outcome:
    """What became of the tables. `skipped` were dropped, or taken out of the publication, after they had been chosen."""

    tables: dict[TableName, SnapshotTable] = field(default_factory=dict)
    failed: dict[TableName, TableError] = field(default_factory=dict)
    skipped: list[TableName] = field(default_factory=list)


class Attempts:
    """The snapshots of one run into one incarnation; `point` and `slot` are the first one's, once it is there."""

    def __init__(
        self,
        source: SourceConfig,
        store: Store,
        paths: LakePaths,
        incarnation: Incarnation,
        *,
        report: Report,
        stop: Stop,
    ) -> None:
        self.point = Lsn.ZERO
        self.slot = ""
        self._source = source
        self._store = store
        self._paths = paths
        self._incarnation = incarnation
        self._report = report
        self._stop = stop
        self._outcome = Outcome()
        # By these a table that was renamed is found again.
        self._oids: dict[TableName, Oid] = {}

    def run(self, names: Sequence[TableName], *, makes_slot: bool, begin: Callable[[SnapshotSession], None]) -> Outcome:
        """Copy `names`, the first time by the lasting slot where this `makes_slot`; `begin` is called with that session.

        Raises as `lakeproof.commands.bootstrap.bootstrap`; what is complete by then is complete.
        """
        left, most = list(names), self._source.snapshot.attempts
        for attempt in range(1, most + 1):
            lasting = makes_slot and attempt == 1
            slot = self._source.slot if lasting else self._temporary_name()
            session = SnapshotSession(
                self._source.dsn,
                slot,
                temporary=not lasting,
                lock_timeout_s=self._source.snapshot.lock_timeout_s,
            )
            with session:
                point = session.consistent_point
                self._tell("bootstrap.slot", f"slot {slot} is exact at {point}", slot=slot, consistent_point=str(point))
                failpoint("bootstrap.after_slot")
                if attempt == 1:
                    begin(session)
                    self.point, self.slot = point, slot
                copied = self._copy(session, left, last=attempt == most)
            left = list(copied.moved)
            if not left or attempt == most:
                break
            self._tell_moved(copied, attempt, most)
            self._stop.wait(min(PAUSE_S * 2 ** (attempt - 1), PAUSE_S_MAX))
        return self._outcome

    def _copy(self, session: SnapshotSession, names: Sequence[TableName], *, last: bool) -> Copied:
        point = session.consistent_point
        conn = session.connect("lakeproof bootstrap")
        try:
            found, gone, unfit = self._find(conn, names)
            tables = order(measured(conn, found.values()))
            # What the catalog says of them at the snapshot: it tells a change that came before from one that came after.
            catalog = shapes(conn, self._source, [t.version.oid for t in tables])
        finally:
            close_quietly(conn)
        wanted = Wanted(self._incarnation, point, session.slot, now_text(), (*found, *gone, *unfit))
        now = CatalogNow(session, self._source, catalog)
        parts = SnapshotParts(self._store, self._paths.snapshot(self._incarnation, point), wanted, now)
        parts.begin()
        place = Path(self._paths.url(self._paths.snapshot_progress))
        progress = SnapshotProgress(self._source.name, point, place, self._report)
        try:
            with TableCopier(
                self._source, session, self._store, parts, progress=progress, report=self._report, stop=self._stop
            ) as copier:
                copied = copier.copy(tables)
            copied.failed.update(unfit)
            self._conclude(parts, copied, gone, last=last)
        except BaseException as error:
            parts.interrupted(error.reason if isinstance(error, LakeproofError) else type(error).__name__)
            raise
        finally:
            now.close()
            progress.close()
        return copied

    def _find(
        self, conn: Connection, names: Sequence[TableName]
    ) -> tuple[dict[TableName, PublishedTable], list[TableName], dict[TableName, TableError]]:
        """The tables as the snapshot has them, under the names that they have there; those gone; those that can't go on.

        Whoever looked before the snapshot saw them as they were then.
        """
        unread: dict[TableName, DefiniteError] = {}
        found = read_tables(conn, self._source, only=set(names), refused=unread)
        unfit = {name: TableError(error.thing, error.reason, error.remedy) for name, error in unread.items()}
        gone = [name for name in names if name not in found and name not in unfit]
        renamed = {self._oids[name]: name for name in gone if name in self._oids}
        for table in read_tables(conn, self._source, refused={}).values() if renamed else ():
            old = renamed.get(table.version.oid)
            if old is not None:
                found[table.table] = table
                gone.remove(old)
                self._tell("bootstrap.renamed", f"{old} is {table.table} now", table=table.table.key, was=old.key)
        self._oids |= {name: table.version.oid for name, table in found.items()}
        unfit |= refusals(finding for table in found.values() for finding in shape_findings(table, self._source))
        return {name: table for name, table in found.items() if name not in unfit}, gone, unfit

    def _conclude(self, parts: SnapshotParts, copied: Copied, gone: Sequence[TableName], *, last: bool) -> None:
        # What was altered meanwhile is copied at a later point, but not for ever.
        failed = copied.failed | (copied.moved if last else {})
        parts.end({name: str(error) for name, error in failed.items()}, gone)
        self._outcome.failed |= failed
        for name in gone:
            self._outcome.skipped.append(name)
            message = f"{name} was dropped, or is not published any more: skipped"
            self._tell("bootstrap.skipped", message, table=name.key)
        for name, table in copied.done.items():
            chunks = len(table.document.chunks)
            self._outcome.tables[name] = SnapshotTable(
                table.document.rows, table.bytes, chunks, table.seconds, parts.consistent_point
            )

    def _tell_moved(self, copied: Copied, attempt: int, most: int) -> None:
        for name, error in copied.moved.items():
            self._tell(
                "bootstrap.moved",
                f"{name} is copied again at a later point: {error.reason} (attempt {attempt + 1} of {most})",
                table=name.key,
                reason=error.reason,
                attempt=attempt + 1,
                attempts_max=most,
            )

    def _temporary_name(self) -> str:
        suffix = f"_snap_{secrets.token_hex(4)}"
        return self._source.slot[: _SLOT_NAME_MAX - len(suffix)] + suffix

    def _tell(self, kind: str, message: str, **fields: object) -> None:
        self._report(Event(kind, message, {"source": self._source.name, **fields}))
