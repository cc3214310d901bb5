"""One run of a snapshot: which tables are copied, under which lock, and how it ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from lakeproof.config.mistakes import nearest
from lakeproof.config.model import Config, SourceConfig
from lakeproof.continuity.gap import check_no_gap
from lakeproof.errors import RECOVER, DefiniteError, LakeError, SourceError, TableError, TransientError
from lakeproof.events import Event, Report, Stop
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.incarnation_record import Follows, read_beginning, unfinished
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.postgres.catalog_births import read_horizon, read_rules
from lakeproof.postgres.catalog_fingerprint import Reading, Settling, read, read_at_snapshot
from lakeproof.postgres.catalog_published import PublishedTable, publications_of, read_tables
from lakeproof.postgres.check_findings import refusals
from lakeproof.postgres.check_source import examine, refuse
from lakeproof.postgres.connection import Connection, close_quietly, connect, source_errors
from lakeproof.postgres.copy_snapshot import SnapshotSession
from lakeproof.postgres.replication_slot import SlotState, read_slot, slot_problem
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.schema import LeftOutColumn, describe_left_out
from lakeproof.snapshot.attempts import Attempts, Outcome, SnapshotTable
from lakeproof.snapshot.folder import Ended, Pending, finished_tables, may_enter, missing_tables, read_wanted
from lakeproof.snapshot.incarnation import check_lake_is_ours, claim_lake, drop_orphan, make_head, record
from lakeproof.snapshot.lock import alone
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """What was copied.

    `slot` made the snapshot at `consistent_point`, where all tables were copied but those altered meanwhile, which have
    a later point of their own. `failed` says why tables could not be copied; `kept` are those that a run which was
    interrupted had finished, so that they were not copied again; `skipped` were dropped, or taken out of the publication,
    after the run had begun. `left_out` are the columns that the publication leaves out of tables, which nothing copies.
    """

    source: str
    incarnation: Incarnation
    consistent_point: Lsn
    slot: str
    tables: Mapping[TableName, SnapshotTable]
    failed: Mapping[TableName, str] = field(default_factory=dict)
    kept: Mapping[TableName, SnapshotTable] = field(default_factory=dict)
    skipped: Sequence[TableName] = ()
    left_out: Mapping[TableName, Sequence[LeftOutColumn]] = field(default_factory=dict)


class SnapshotIncompleteError(TableError):
    """Some tables could not be copied; `report` has the others, which are complete and visible."""

    exit_status = 1

    def __init__(self, first: TableError, report: SnapshotReport) -> None:
        more = f" (and {len(report.failed) - 1} more tables)" if len(report.failed) > 1 else ""
        super().__init__(first.thing, first.reason + more, first.remedy)
        self.report = report


class Bootstrap:
    """The state of one call of `bootstrap`, or of `lakeproof.commands.recover`, which begins an incarnation by it."""

    def __init__(self, config: Config, source: SourceConfig, report: Report, stop: Stop) -> None:
        self._config = config
        self._source = source
        self._report = report
        self._stop = stop
        self._store: Store = open_store(config.lake)
        self._paths = LakePaths(config.lake, source.name)
        self._result = Outcome()
        self._kept: dict[TableName, SnapshotTable] = {}
        self._unfit: dict[TableName, TableError] = {}
        self._left_out: dict[TableName, Sequence[LeftOutColumn]] = {}
        self._killed: dict[Incarnation, list[Ended]] = {}

    def run(self, wanted: Sequence[TableName] | None, *, again: bool | None = None) -> SnapshotReport:
        with ExitStack() as held:
            conn = connect(self._source.dsn, "lakeproof bootstrap", lock_timeout_s=self._source.snapshot.lock_timeout_s)
            try:
                names = self._choose_fit(conn, wanted)
                server = identify(conn)
                begun, _ = self._look(conn, server)
                if begun is not None:
                    self._check_read(conn, Chain.open(self._store, self._paths, begun), names)
                self.alone(held)
                # Once more: another run may have ended just now.
                incarnation, slot = self._look(conn, server)
                if incarnation is None:
                    self.drop_orphan(conn, server)
            finally:
                close_quietly(conn)
            if incarnation is None:
                return self.begin(names, server, slot, follows=None)
            return self.copy(names, incarnation, again=wanted is not None if again is None else again)

    def _choose_fit(self, conn: Connection, wanted: Sequence[TableName] | None) -> list[TableName]:
        """The tables to be copied; those that can't be are told at the end, beside the others."""
        findings = examine(conn, self._source, only=wanted)
        unfit = refusals(findings)
        unread: dict[TableName, DefiniteError] = {}
        published = read_tables(conn, self._source, refused=unread)
        chosen = self.choose([*published, *unread], wanted)
        self._unfit = {name: unfit[name] for name in sorted(unfit)}
        names = [name for name in chosen if name not in unfit]
        if not names:
            refuse(findings)
        self.note_left_out(published[name] for name in names)
        return names

    def note_left_out(self, tables: Iterable[PublishedTable]) -> None:
        """Tell which columns are not copied, since they are not published; the report has them too."""
        self._left_out = {table.table: table.left_out for table in tables if table.left_out}
        for table, columns in self._left_out.items():
            message = f"{table}: not published, so not in the lake: {describe_left_out(columns)}"
            self._tell("bootstrap.left_out", message, table=table.key, columns=[column.name for column in columns])

    def alone(self, held: ExitStack) -> None:
        """Take the source's snapshot lock until `held` ends, and end what killed runs have left open."""
        self._killed = held.enter_context(alone(self._store, self._paths))

    def _look(self, conn: Connection, server: ServerIdentity) -> tuple[Incarnation | None, SlotState | None]:
        """The newest incarnation and the slot; refuses where the two, or the lake, are not what a snapshot needs."""
        incarnation = newest_incarnation(self._store, self._paths)
        slot = read_slot(conn, self._source.slot)
        if incarnation is None:
            check_lake_is_ours(self._store, self._paths, server)
            self.check_slot_is_free(slot, server)
        else:
            self._check_not_recovering(incarnation)
            check_no_gap(conn, self._source, Chain.open(self._store, self._paths, incarnation))
        return incarnation, slot

    def _check_read(self, conn: Connection, chain: Chain, names: Sequence[TableName]) -> None:
        """Raises TransientError where a table is published by what the drain does not read yet: changes would be missing."""
        recorded = newest_catalog(chain)
        if recorded is None:
            return
        unread = [name for name in publications_of(conn, self._source) if name not in recorded.publication_names]
        known = {table.table for table in recorded.tables.values()}
        missing = [name for name in names if name not in known]
        if unread and missing:
            raise TransientError(
                f"table {missing[0]}",
                f"the drain does not read publication {unread[0]} yet, and changes after the snapshot would be missing",
                "let the drain run until it has seen it (drain.catalog_interval_s), then try again",
            )

    def begin(
        self, names: Sequence[TableName], server: ServerIdentity, slot: SlotState | None, follows: Follows | None
    ) -> SnapshotReport:
        """Begin an incarnation and copy `names` into it, by `slot` where there is one, else by one made here."""
        incarnation = self.record(server, makes_slot=slot is None, follows=follows)
        if slot is not None:
            self._make_head(incarnation, server, slot.confirmed_flush_lsn or Lsn.ZERO, self._reading_now())
        return self._snapshots(names, incarnation, server if slot is None else None)

    def record(self, server: ServerIdentity, *, makes_slot: bool, follows: Follows | None) -> Incarnation:
        """Put the record of the incarnation that is to begin; once it is there, the same call gives its number again."""
        return record(self._store, self._paths, self._source, server, makes_slot=makes_slot, follows=follows)

    def copy(self, names: Sequence[TableName], incarnation: Incarnation, *, again: bool = False) -> SnapshotReport:
        """Copy those of `names` that are not finished (all, where `again`) into an incarnation that has begun."""
        left = names if again else self._left(names, incarnation)
        if left:
            return self._snapshots(left, incarnation, None)
        newest = max(self._kept.values(), key=lambda table: table.consistent_point)
        return self._finish(incarnation, newest.consistent_point, self._slot_of(incarnation, newest.consistent_point))

    def _left(self, names: Sequence[TableName], incarnation: Incarnation) -> Sequence[TableName]:
        """What of `names` is to be copied: what is missing, where something is or a run was killed, else all."""
        finished = finished_tables(self._store, self._paths, incarnation)
        missing = missing_tables(self._store, self._paths, incarnation, finished)
        left = [name for name in names if name not in finished or name in missing]
        kept = {name: finished[name] for name in names if name not in set(left)}
        if not kept or not (
            left or (self._killed.get(incarnation) and may_enter(self._store, self._paths, incarnation))
        ):
            return names
        self._kept = {name: _kept(found) for name, found in kept.items()}
        points = sorted({found.consistent_point for found in kept.values()})
        at = str(points[0]) if len(points) == 1 else f"{points[0]} and later points"
        self._tell(
            "bootstrap.continues",
            f"{len(kept)} of {len(names)} tables were finished at {at}; "
            + (f"copying the other {len(left)} at a new point" if left else "nothing is left to copy"),
            finished=len(kept),
            left=len(left),
        )
        return left

    def _slot_of(self, incarnation: Incarnation, point: Lsn) -> str:
        wanted = read_wanted(self._store, self._paths, self._paths.snapshot(incarnation, point))
        return "" if wanted is None else wanted.slot

    def drop_orphan(self, conn: Connection, server: ServerIdentity) -> None:
        """Drop the slot that a killed run had made under another name than the configuration's."""
        left = unfinished(self._store, self._paths)
        others = [source.slot for source in self._config.sources.values()]
        dropped = drop_orphan(conn, left, self._source, server, others)
        if dropped is not None:
            message = f"slot {dropped} is gone: a run that was killed had made it for this source"
            self._tell("bootstrap.orphan", message, slot=dropped)

    def choose(self, published: Collection[TableName], wanted: Sequence[TableName] | None) -> list[TableName]:
        missing = sorted(str(table) for table in wanted or () if table not in published)
        if missing:
            reason = f"not published: {', '.join(missing)}"
            near = {name: nearest(name, map(str, published)) for name in missing}
            hints = [f"did you mean {there}?" for there in near.values() if there is not None]
            remedy = " ".join(
                [*hints, "Run `lakeproof apply`, or name others" if hints else "run `lakeproof apply`, or name others"]
            )
            raise SourceError(f"publication {self._source.publication}", reason, remedy)
        chosen = list(published) if wanted is None else list(dict.fromkeys(wanted))
        if not chosen:
            thing = f"publication {self._source.publication}"
            raise SourceError(thing, "it has no table", "name tables in the configuration and run `lakeproof apply`")
        return chosen

    def _check_not_recovering(self, incarnation: Incarnation) -> None:
        """A recover that was killed before its snapshot is ended by another: with it every table enters at once."""
        begun = read_beginning(self._store, self._paths, incarnation)
        if begun is None or begun.follows is None or may_enter(self._store, self._paths, incarnation):
            return
        thing = f"source {self._source.name}: incarnation {incarnation}"
        raise LakeError(thing, "it has begun, and the recover that began it was not finished", RECOVER)

    def check_slot_is_free(self, slot: SlotState | None, server: ServerIdentity) -> None:
        """Before there is a landing nobody but a stranger can be reading the slot."""
        if slot is None:
            return
        problem = slot_problem(slot, server.database)
        if problem is not None:
            raise problem
        if slot.active:
            reason = f"it is in use by process {slot.active_pid}, and this lake has no landing that it could belong to"
            raise SourceError(
                f"slot {slot.name}", reason, "end that process, or name another slot in the configuration"
            )

    def _make_head(self, incarnation: Incarnation, server: ServerIdentity, start: Lsn, reading: Reading) -> None:
        if newest_incarnation(self._store, self._paths) is None:
            claim_lake(self._store, self._paths, server)
        make_head(self._store, self._paths, self._source, server, incarnation, start, reading)
        self._tell("bootstrap.head", f"the landing begins at {start}", start_lsn=str(start), slot=self._source.slot)

    def _snapshots(
        self, names: Sequence[TableName], incarnation: Incarnation, server: ServerIdentity | None
    ) -> SnapshotReport:
        """Copy `names`; where `server` is given, the lasting slot is made with the first snapshot, and the head at it."""

        def begin(session: SnapshotSession) -> None:
            if server is not None:
                self._make_head(incarnation, server, session.consistent_point, self._reading_at(session))

        attempts = Attempts(self._source, self._store, self._paths, incarnation, report=self._report, stop=self._stop)
        self._result = attempts.run(names, makes_slot=server is not None, begin=begin)
        return self._finish(incarnation, attempts.point, attempts.slot)

    def _reading_at(self, session: SnapshotSession) -> Reading:
        """The catalog exactly at the session's consistent point; the horizon is a little later."""
        conn, now = session.connect("lakeproof bootstrap"), connect(self._source.dsn, "lakeproof bootstrap")
        try:
            names = publications_of(conn, self._source)
            fingerprint = read_at_snapshot(conn, names)
            with source_errors("the source's catalog"):
                rules, horizon = read_rules(conn, names), read_horizon(now)
        finally:
            close_quietly(conn)
            close_quietly(now)
        return Reading(fingerprint, session.consistent_point, session.consistent_point, rules, horizon)

    def _reading_now(self) -> Reading:
        """The catalog now: of tables that will be copied later, so nothing of them is missed."""
        conn = connect(self._source.dsn, "lakeproof bootstrap")
        try:
            return read(conn, publications_of(conn, self._source), Settling(Lsn.ZERO))
        finally:
            close_quietly(conn)

    def _finish(self, incarnation: Incarnation, point: Lsn, slot: str) -> SnapshotReport:
        errors = self._unfit | self._result.failed
        failed = {name: str(error) for name, error in sorted(errors.items())}
        tables = dict(sorted(self._result.tables.items()))
        skipped = tuple(sorted(self._result.skipped))
        result = SnapshotReport(
            self._source.name, incarnation, point, slot, tables, failed, self._kept, skipped, self._left_out
        )
        rows = sum(table.rows for table in tables.values())
        self._tell(
            "bootstrap.done",
            f"{len(tables)} tables, {rows:,} rows at {point}" + (f"; {len(failed)} tables failed" if failed else ""),
            consistent_point=str(point),
            tables=len(tables),
            rows=rows,
        )
        if errors:
            raise SnapshotIncompleteError(next(iter(errors.values())), result)
        return result

    def _tell(self, kind: str, message: str, **fields: object) -> None:
        self._report(Event(kind, message, {"source": self._source.name, **fields}))


def _kept(found: Pending) -> SnapshotTable:
    chunks = found.table.chunks
    size = sum(chunk.bytes for chunk in chunks)
    return SnapshotTable(found.table.rows, size, len(chunks), None, found.consistent_point)
