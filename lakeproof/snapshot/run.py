"""One run of a snapshot: it chooses the tables, takes the lock, starts an incarnation if there is none, and copies.

`copy_tables` is the whole of it; `lakeproof.commands.recover` drives the same steps one by one. The
attempts under several snapshots do not belong here (`attempts.py`), nor do the files (`copying.py`, `parts.py`).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from lakeproof.config.mistakes import nearest_table
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.table_names import table_text
from lakeproof.continuity.same_history import check_meets
from lakeproof.errors import RECOVER, ConfigError, DefiniteError, LakeError, SourceError, TableError, TransientError
from lakeproof.events import Report, Stop, counted
from lakeproof.landing.catalog_history import newest_catalog
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.incarnation_record import Follows, read_incarnation_record, unfinished
from lakeproof.landing.stuck import read_stuck
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.postgres.catalog.fingerprint import CatalogReading, CommitVisibility, observe_catalog, read_at_snapshot
from lakeproof.postgres.catalog.origins import read_horizon, read_rules
from lakeproof.postgres.catalog.published import publications_of, read_tables
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.checks.findings import refuse, refused_tables
from lakeproof.postgres.checks.source import examine
from lakeproof.postgres.connections.connect import Connection, close_quietly, connect, source_errors
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.postgres.publications import read_publications
from lakeproof.postgres.replication_slot import SlotState, read_slot, slot_problem
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.schema import LeftOutColumn, describe_left_out
from lakeproof.snapshot.attempts import Attempts, AttemptsOutcome, SnapshotTableReport
from lakeproof.snapshot.context import SnapshotContext
from lakeproof.snapshot.folder import (
    SnapshotEnd,
    finished_tables,
    may_be_applied,
    missing_tables,
    read_request,
    snapshot_lock,
)
from lakeproof.snapshot.incarnation import (
    check_lake_is_ours,
    claim_lake,
    create_chain,
    create_incarnation,
    drop_orphan_slot,
)
from lakeproof.snapshot.paused import end_resuming, read_paused
from lakeproof.storage.disk import disk_errors
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class SnapshotReport:
    """The result of a run.

    `slot` made the snapshot at `consistent_point`, which all tables share but those altered meanwhile: each of these has a
    later point of its own. `failed` says why tables could not be copied; `kept` are tables that an interrupted run had
    finished, so they were not copied again; `skipped` were dropped or unpublished after the run had begun. `left_out` are
    the columns of tables that are not published, which nothing copies.
    """

    source: str
    incarnation: Incarnation
    consistent_point: Lsn
    slot: str
    tables: Mapping[TableName, SnapshotTableReport]
    failed: Mapping[TableName, str] = field(default_factory=dict)
    kept: Mapping[TableName, SnapshotTableReport] = field(default_factory=dict)
    skipped: Sequence[TableName] = ()
    left_out: Mapping[TableName, Sequence[LeftOutColumn]] = field(default_factory=dict)


class SnapshotIncompleteError(TableError):
    """Some tables could not be copied; `report` has the tables that are complete and visible."""

    exit_status = 1

    def __init__(self, first: TableError, report: SnapshotReport) -> None:
        more = f" (and {len(report.failed) - 1} more tables)" if len(report.failed) > 1 else ""
        super().__init__(first.thing, first.reason + more, first.remedy)
        self.report = report


def _check_not_stuck(chain: Chain) -> None:
    """Raise StuckError if no drain can bring the landing up to the place of a copy; the history is compared again."""
    stuck = read_stuck(chain)
    if stuck is not None and not stuck.other_history:
        raise stuck.error(chain.lake.source)


class SnapshotRun:
    """One run over the tables of a source.

    `run` does all of it, for `bootstrap`. `recover` takes the lock (`take_lock`), chooses (`choose_tables`,
    `report_left_out`), clears up (`drop_orphan_slot`), and then either starts an incarnation (`create_incarnation`,
    `copy_into_new`) or goes on with one (`copy_into`).
    """

    def __init__(self, config: Config, source: SourceConfig, report: Report, stop: Stop) -> None:
        self._config = config
        self._source = source
        self._lake = SourceLake.open(config.location, source.name)
        self._context = SnapshotContext(source, self._lake, report, stop)
        self._outcome = AttemptsOutcome()
        self._kept: dict[TableName, SnapshotTableReport] = {}
        self._refused: dict[TableName, TableError] = {}
        self._left_out: dict[TableName, Sequence[LeftOutColumn]] = {}
        self._abandoned: dict[Incarnation, list[SnapshotEnd]] = {}
        self._resuming: set[TableName] = set()

    def run(self, requested: Sequence[TableName] | None, *, again: bool | None = None) -> SnapshotReport:
        """Copy the `requested` tables, or all published ones if None.

        `again` copies them even if a finished copy exists; it defaults to true if tables are requested.
        """
        with ExitStack() as stack:
            conn = connect(self._source.dsn, "lakeproof bootstrap", lock_timeout_s=self._source.snapshot.lock_timeout_s)
            try:
                names = self._choose_copyable(conn, requested)
                server = identify(conn)
                begun, _ = self._incarnation_and_slot(conn, server)
                if begun is not None:
                    chain = Chain.open(self._lake, begun)
                    self._check_drain_reads(conn, chain, names)
                self.take_lock(stack)
                # Again under the lock: another run may have ended just now.
                incarnation, slot = self._incarnation_and_slot(conn, server)
                if incarnation is None:
                    self.drop_orphan_slot(conn, server)
            finally:
                close_quietly(conn)
            if incarnation is None:
                return self.copy_into_new(names, server, slot, follows=None)
            return self.copy_into(incarnation, names, again=requested is not None if again is None else again)

    def take_lock(self, stack: ExitStack) -> None:
        """Take the source's snapshot lock until `stack` closes, and end the snapshots that killed runs have left open."""
        self._abandoned = stack.enter_context(snapshot_lock(self._lake))

    def choose_tables(
        self, conn: Connection, published: Collection[TableName], requested: Sequence[TableName] | None
    ) -> list[TableName]:
        """Return the requested tables, or all published ones; raise SourceError if one is not published or none is left.

        A publication of everything may have none yet: the snapshot is empty, and every table comes in from the stream.
        """
        missing = sorted(table for table in requested or () if table not in published)
        if missing:
            reason = f"not published: {', '.join(str(table) for table in missing)}"
            near = [nearest_table(table, published) for table in missing]
            hints = [f"did you mean {name}?" for name in near if name is not None]
            remedy = " ".join(
                [*hints, "Run `lakeproof apply`, or name others" if hints else "run `lakeproof apply`, or name others"]
            )
            raise SourceError(f"publication {self._source.publication}", reason, remedy)
        chosen = list(published) if requested is None else list(dict.fromkeys(requested))
        if not chosen and not self._awaits_tables(conn):
            thing = f"publication {self._source.publication}"
            raise SourceError(thing, "it has no table", "name tables in the configuration and run `lakeproof apply`")
        return chosen

    def _awaits_tables(self, conn: Connection) -> bool:
        publications = read_publications(conn, publications_of(conn, self._source))
        return any(publication.is_whole for publication in publications.values())

    def report_left_out(self, tables: Iterable[PublishedTable]) -> None:
        """Report which columns are not copied because they are not published; the final report has them too."""
        self._left_out = {table.table: table.left_out for table in tables if table.left_out}
        for table, columns in self._left_out.items():
            message = f"{table}: not published, so not in the lake: {describe_left_out(columns)}"
            names = [column.name for column in columns]
            self._context.emit("bootstrap.left_out", message, table=table.key, columns=names)

    def drop_orphan_slot(self, conn: Connection, server: ServerIdentity) -> None:
        """Drop the slot that a killed run created under another name than the configuration's."""
        left = unfinished(self._lake)
        others = [source.slot for source in self._config.sources.values()]
        dropped = drop_orphan_slot(conn, left, self._source, server, others)
        if dropped is not None:
            message = f"dropped slot {dropped}: a killed run had created it for this source"
            self._context.emit("bootstrap.orphan_dropped", message, slot=dropped)

    def create_incarnation(self, server: ServerIdentity, *, creates_slot: bool, follows: Follows | None) -> Incarnation:
        """Put the record of the new incarnation and return its number; the same call later returns the same number."""
        return create_incarnation(self._context, server, creates_slot=creates_slot, follows=follows)

    def copy_into_new(
        self, names: Sequence[TableName], server: ServerIdentity, slot: SlotState | None, follows: Follows | None
    ) -> SnapshotReport:
        """Start an incarnation and copy `names` into it; its slot is `slot`, or one created with the first snapshot."""
        incarnation = self.create_incarnation(server, creates_slot=slot is None, follows=follows)
        if slot is not None:
            self._create_chain(incarnation, server, slot.confirmed_flush_lsn or Lsn.ZERO, self._reading_now())
        return self._copy(names, incarnation, server if slot is None else None)

    def copy_into(self, incarnation: Incarnation, names: Sequence[TableName], *, again: bool = False) -> SnapshotReport:
        """Copy the tables of `names` without a finished copy (all of them if `again`) into an existing incarnation."""
        left = names if again else self._still_to_copy(names, incarnation)
        if left:
            return self._copy(left, incarnation, None)
        if not names:
            return self._copy(names, incarnation, None)
        newest = max(self._kept.values(), key=lambda table: table.consistent_point)
        return self._finish(incarnation, newest.consistent_point, self._slot_of(incarnation, newest.consistent_point))

    def _choose_copyable(self, conn: Connection, requested: Sequence[TableName] | None) -> list[TableName]:
        """Choose the tables that can be copied; the refused ones are reported at the end, beside the others."""
        paused = read_paused(self._lake)
        self._resuming = {table for table, entry in paused.items() if entry.resuming}
        out = paused.keys() - self._resuming
        _refuse_paused(self._source.name, out.intersection(requested or ()))
        findings = examine(conn, self._source, only=requested, paused=paused)
        refused = refused_tables(findings)
        unread: dict[TableName, DefiniteError] = {}
        published = read_tables(conn, self._source, refused=unread)
        chosen = self.choose_tables(conn, [t for t in (*published, *unread) if t not in out], requested)
        self._refused = {name: refused[name] for name in sorted(refused)}
        names = [name for name in chosen if name not in refused]
        if not names:
            refuse(findings)
        self.report_left_out(published[name] for name in names)
        return names

    def _incarnation_and_slot(
        self, conn: Connection, server: ServerIdentity
    ) -> tuple[Incarnation | None, SlotState | None]:
        """Return the newest incarnation and the slot; raise if these, or the lake, do not allow a snapshot."""
        incarnation = newest_incarnation(self._lake)
        slot = read_slot(conn, self._source.slot)
        if incarnation is None:
            check_lake_is_ours(self._lake, server)
            _check_slot_is_free(slot, server)
        else:
            self._check_not_recovering(incarnation)
            chain = Chain.open(self._lake, incarnation)
            _check_not_stuck(chain)
            check_meets(conn, self._source, chain, self._context.stop)
        return incarnation, slot

    def _check_drain_reads(self, conn: Connection, chain: Chain, names: Sequence[TableName]) -> None:
        """Raise TransientError if the drain does not read a table's publication yet: changes would be missing."""
        recorded = newest_catalog(chain)
        if recorded is None:
            return
        unread = [name for name in publications_of(conn, self._source) if name not in recorded.publication_names]
        recorded_tables = {table.table for table in recorded.tables.values()}
        missing = [name for name in names if name not in recorded_tables]
        if unread and missing:
            raise TransientError(
                f"table {missing[0]}",
                f"the drain does not read publication {unread[0]} yet, and changes after the snapshot would be missing",
                "let the drain run until it has seen it (drain.catalog_interval_s), then try again",
            )

    def _check_not_recovering(self, incarnation: Incarnation) -> None:
        """Raise LakeError if a recover was killed before its snapshot: another recover, which copies all tables, ends it."""
        record = read_incarnation_record(self._lake, incarnation)
        if record is None or record.follows is None or may_be_applied(self._lake, incarnation):
            return
        thing = f"source {self._source.name}: incarnation {incarnation}"
        raise LakeError(thing, "it has begun, and the recover that began it was not finished", RECOVER)

    def _still_to_copy(self, names: Sequence[TableName], incarnation: Incarnation) -> Sequence[TableName]:
        """Return the missing tables of `names` if some are missing or a run was killed, else all of `names`."""
        finished = finished_tables(self._lake, incarnation)
        # The copy of a table that is being resumed may be from before it was paused.
        missing = missing_tables(self._lake, incarnation) | self._resuming
        left = [name for name in names if name not in finished or name in missing]
        kept = {name: finished[name] for name in names if name not in set(left)}
        if not kept or not (left or (self._abandoned.get(incarnation) and may_be_applied(self._lake, incarnation))):
            return names
        self._kept = {name: SnapshotTableReport.of(copy.table, copy.consistent_point) for name, copy in kept.items()}
        points = sorted({copy.consistent_point for copy in kept.values()})
        positions = str(points[0]) if len(points) == 1 else f"{points[0]} and later points"
        self._context.emit(
            "bootstrap.resume",
            f"{len(kept):,} of {counted(len(names), 'table')} finished at {positions}; "
            + (f"copying the other {len(left)} at a new point" if left else "nothing is left to copy"),
            finished=len(kept),
            left=len(left),
        )
        return left

    def _slot_of(self, incarnation: Incarnation, point: Lsn) -> str:
        request = read_request(self._lake, self._lake.paths.snapshot(incarnation, point))
        return "" if request is None else request.slot

    def _create_chain(self, incarnation: Incarnation, server: ServerIdentity, start: Lsn, now: CatalogReading) -> None:
        if newest_incarnation(self._lake) is None:
            claim_lake(self._lake, server)
        create_chain(self._context, incarnation, server, start, now)
        message = f"the landing begins at {start}"
        self._context.emit("bootstrap.head", message, start_lsn=str(start), slot=self._source.slot)

    def _copy(
        self, names: Sequence[TableName], incarnation: Incarnation, new_for: ServerIdentity | None
    ) -> SnapshotReport:
        """Copy `names`; with `new_for`, the first snapshot creates the lasting slot on that server, and the chain there."""

        def on_first(session: SnapshotSession) -> None:
            if new_for is not None:
                self._create_chain(incarnation, new_for, session.consistent_point, self._reading_at(session))

        attempts = Attempts(self._context, incarnation)
        self._outcome = attempts.run(names, creates_slot=new_for is not None, on_first=on_first)
        return self._finish(incarnation, attempts.point, attempts.slot)

    def _reading_at(self, session: SnapshotSession) -> CatalogReading:
        """Read the catalog exactly at the session's consistent point; the horizon is a little later."""
        with ExitStack() as connections:
            conn = session.connect("lakeproof bootstrap")
            connections.callback(close_quietly, conn)
            now = connect(self._source.dsn, "lakeproof bootstrap")
            connections.callback(close_quietly, now)
            names = publications_of(conn, self._source)
            fingerprint = read_at_snapshot(conn, names)
            with source_errors("the source's catalog"):
                rules, horizon = read_rules(conn, names), read_horizon(now)
        return CatalogReading(fingerprint, session.consistent_point, session.consistent_point, rules, horizon)

    def _reading_now(self) -> CatalogReading:
        """Read the catalog as it is now: its tables are copied later, so nothing of them is missed."""
        conn = connect(self._source.dsn, "lakeproof bootstrap")
        try:
            return observe_catalog(conn, publications_of(conn, self._source), CommitVisibility(Lsn.ZERO))
        finally:
            close_quietly(conn)

    def _finish(self, incarnation: Incarnation, point: Lsn, slot: str) -> SnapshotReport:
        errors = self._refused | self._outcome.failed
        failed = {name: str(error) for name, error in sorted(errors.items())}
        tables = dict(sorted(self._outcome.tables.items()))
        skipped = tuple(sorted(self._outcome.skipped))
        result = SnapshotReport(
            self._source.name, incarnation, point, slot, tables, failed, self._kept, skipped, self._left_out
        )
        rows = sum(table.rows for table in tables.values())
        self._context.emit(
            "bootstrap.done",
            f"{counted(len(tables), 'table')}, {counted(rows, 'row')} at {point}"
            + (f"; {counted(len(failed), 'table')} failed" if failed else ""),
            consistent_point=str(point),
            tables=len(tables),
            rows=rows,
        )
        if errors:
            raise SnapshotIncompleteError(next(iter(errors.values())), result)
        return result


def _refuse_paused(source: str, paused: Collection[TableName]) -> None:
    """Raise ConfigError for a table that is paused: the next `apply` would take it out of its publication again."""
    for table in sorted(paused):
        remedy = f"publish and copy it with `lakeproof resume {source} --tables {shlex.quote(table_text(table))}`"
        raise ConfigError(f"table {table}", "it is paused", remedy)


def _check_slot_is_free(slot: SlotState | None, server: ServerIdentity) -> None:
    """Raise SourceError unless the slot can serve this source: without a landing, only a stranger can be reading it."""
    if slot is None:
        return
    problem = slot_problem(slot, server.database)
    if problem is not None:
        raise problem
    if slot.active:
        reason = f"it is in use by process {slot.active_pid}, and this lake has no landing that it could belong to"
        raise SourceError(f"slot {slot.name}", reason, "end that process, or name another slot in the configuration")


def copy_tables(
    config: Config,
    name: str,
    tables: Sequence[TableName] | None,
    report: Report,
    stop: Stop | None = None,
    *,
    again: bool | None = None,
) -> SnapshotReport:
    """Run a snapshot of these tables; what is copied, also by one that is incomplete, is no longer being resumed."""
    lake = SourceLake.open(config.location, name)
    with disk_errors(config.lake):
        try:
            result = SnapshotRun(config, config.source(name), report, stop or Stop()).run(tables, again=again)
        except SnapshotIncompleteError as error:
            end_resuming(lake, error.report.tables)
            raise
        end_resuming(lake, result.tables)
        return result
