"""Begins a new incarnation of a source whose slot and landing do not meet any more.

The comparison of slot and landing is in `lakeproof.continuity`; record, slot and head are in
`lakeproof.snapshot.incarnation`. The lake follows by itself, with the next compaction
(`lakeproof.lake.planning.next_incarnation`).

    plan     why the old incarnation can't go on; nothing is changed yet
    record   incarnation.json of the new one: from here on the old one is closed
    slot     a lost slot is dropped and made again with a snapshot; one that only does not meet is taken as it stands
    head     the new chain begins at the slot's point
    copy     every published table, under one snapshot

If it is killed at any point, it is run again and goes on from there: the record says that the new incarnation was asked
for, and an incarnation without a snapshot gets one. A slot that is alive and meets its landing is left alone, unless its
stream is stuck (`lakeproof.landing.stuck`) and a person has confirmed that it is to be abandoned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from lakeproof.config.model import Config, SourceConfig
from lakeproof.continuity.same_history import check_meets
from lakeproof.errors import GapError, LakeError, SourceError
from lakeproof.events import Event, Report, Stop, silent
from lakeproof.failpoints import failpoint
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.incarnation_record import Follows, read_incarnation_record, unfinished
from lakeproof.landing.segments.manifest import ChainSource
from lakeproof.landing.segments.row_order import later_head
from lakeproof.landing.stuck import Stuck, is_abandoned, note_stuck, read_stuck
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.checks.findings import refuse
from lakeproof.postgres.checks.source import examine
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.replication_slot import SlotState, drop_slot, read_free_slot, slot_problem
from lakeproof.postgres.replication_stream import StreamFailedError
from lakeproof.postgres.server import ServerIdentity, identify, other_database
from lakeproof.snapshot.folder import may_be_applied
from lakeproof.snapshot.incarnation import next_incarnation
from lakeproof.snapshot.paused import read_paused
from lakeproof.snapshot.run import SnapshotReport, SnapshotRun
from lakeproof.storage.disk import disk_errors
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class RecoverPlan:
    """The steps that `recover` will take.

    `incarnation` is the new one's number (if `resumes`, that of a killed recover), `follows` the one before;
    `end_lsn` is where the landing of `follows` ends, None if that can't be read; `reason` is why it can't go on. `drops` are
    slots that go, `keeps_slot` says that the slot exists and is taken as it stands. `abandons` says that the slot is alive,
    and goes since its stream is stuck; `released_bytes` is the WAL that it keeps. `moved` says that the server or the
    database is a different one, None if it is the same.
    """

    source: str
    incarnation: Incarnation
    resumes: bool
    follows: Incarnation
    end_lsn: Lsn | None
    reason: str
    slot: str
    keeps_slot: bool
    drops: tuple[str, ...]
    tables: tuple[TableName, ...]
    moved: str | None
    abandons: bool = False
    released_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Why:
    """The answer to why the newest incarnation can't go on: if it waits for its snapshot itself, and where it ends."""

    resumes: bool
    end_lsn: Lsn | None
    reason: str
    abandons: bool = False


@dataclass(frozen=True, slots=True)
class _Look:
    """A plan with what was read for it."""

    plan: RecoverPlan
    server: ServerIdentity
    slot: SlotState | None


def plan_recover(config: Config, name: str, *, abandon_slot: bool = False) -> RecoverPlan:
    """Return what `recover` would do for the source `name`; nothing is changed.

    `abandon_slot` is as for `recover`. Raises StuckError if the slot would have to be abandoned and that is not asked for,
    SourceError if there is nothing to recover, or the source stands in the way; TransientError if the slot is in use or the
    server can't be reached.
    """
    source = config.source(name)
    with connect(source.dsn, "lakeproof recover") as conn:
        return _Recover(config, source, silent, Stop(), abandon_slot=abandon_slot).look(conn).plan


def recover(
    config: Config,
    name: str,
    report: Report = silent,
    stop: Stop | None = None,
    *,
    other_system: bool = False,
    abandon_slot: bool = False,
) -> SnapshotReport:
    """Begin a new incarnation of the source `name`, or finish one whose recover was killed, and copy every table into it.

    `other_system` confirms that the server behind the DSN may differ from the lake's, `abandon_slot` that a slot goes which
    is alive, but stuck: of what it has not sent, the copies have the outcome, and the changes are lost. Raises as
    `plan_recover` and as `bootstrap`, and SourceError if that confirmation is missing.
    """
    with disk_errors(config.lake):
        run = _Recover(config, config.source(name), report, stop or Stop(), abandon_slot=abandon_slot)
        return run.run(other_system=other_system)


class _Recover:
    """The state of one call."""

    def __init__(self, config: Config, source: SourceConfig, report: Report, stop: Stop, *, abandon_slot: bool) -> None:
        self._abandon_slot = abandon_slot
        self._source = source
        self._report = report
        self._stop = stop
        self._lake = SourceLake.open(config.location, source.name)
        self._snapshot = SnapshotRun(config, source, report, stop)

    def run(self, *, other_system: bool) -> SnapshotReport:
        with ExitStack() as stack:
            return self._run(stack, other_system=other_system)

    def _run(self, stack: ExitStack, *, other_system: bool) -> SnapshotReport:
        timeout_s = self._source.snapshot.lock_timeout_s
        with connect(self._source.dsn, "lakeproof recover", lock_timeout_s=timeout_s) as conn:
            self._landed()
            self._snapshot.take_lock(stack)
            look = self.look(conn)
            plan = look.plan
            if plan.moved is not None and not other_system:
                remedy = f"see that the dsn is right, then run `lakeproof recover {plan.source} --other-system`"
                raise SourceError(f"source {plan.source}", plan.moved, remedy)
            if plan.resumes:
                self._report_event(
                    "recover.resume", f"incarnation {plan.incarnation} has begun, its snapshot is not whole yet"
                )
                return self._snapshot.copy_into(plan.incarnation, plan.tables)
            self._snapshot.drop_orphan_slot(conn, look.server)
            follows = Follows(plan.follows, plan.end_lsn, plan.reason, self._first_ordinal(plan.follows))
            # Before a slot goes: from now on there is a record that this incarnation was asked for, and with which slot.
            self._snapshot.create_incarnation(look.server, creates_slot=not plan.keeps_slot, follows=follows)
            failpoint("recover.after_record")
            for slot in plan.drops:
                if drop_slot(conn, slot):
                    self._report_event(
                        "recover.slot_dropped", f"slot {slot} is gone: it could not be read on", slot=slot
                    )
            failpoint("recover.after_drop")
        slot_now = look.slot if plan.keeps_slot else None
        return self._snapshot.copy_into_new(plan.tables, look.server, slot_now, follows=follows)

    def look(self, conn: Connection) -> _Look:
        incarnation = self._landed()
        server = identify(conn)
        slot = read_free_slot(conn, self._source.slot)
        lost = slot is not None and slot.lost
        # A paused table stays out: it has a copy when it is resumed.
        findings = examine(conn, self._source, paused=read_paused(self._lake))
        refuse([f for f in findings if not (lost and f.about_slot)])
        published = read_tables(conn, self._source)
        tables = self._snapshot.choose_tables(conn, published.keys(), None)
        self._snapshot.report_left_out(published.values())
        head = self._head(incarnation)
        why = self._why(conn, incarnation, head, slot)
        abandons = slot if why.abandons else None
        plan = RecoverPlan(
            source=self._source.name,
            incarnation=incarnation if why.resumes else next_incarnation(self._lake, self._source, server),
            resumes=why.resumes,
            follows=incarnation,
            end_lsn=why.end_lsn,
            reason=why.reason,
            slot=self._source.slot,
            keeps_slot=slot is not None and not lost and abandons is None,
            drops=() if why.resumes else tuple(self._to_drop(conn, server, head, slot, abandons=why.abandons)),
            tables=tuple(tables),
            moved=_moved(server, head),
            abandons=why.abandons,
            released_bytes=None if abandons is None else abandons.retained_bytes,
        )
        return _Look(plan, server, slot)

    def _first_ordinal(self, follows: Incarnation) -> int:
        """Return the first ordinal of the next landing: above all that the one before and the newest cut name."""
        named = [0]
        # What can't be read is why somebody recovers. Then the other says enough: a cycle raises ordinals that are too low.
        with suppress(LakeError):
            named.append(Chain.open(self._lake, follows).next_ordinal)
        with suppress(LakeError):
            cut = newest_cut(self._lake)
            named.append(0 if cut is None else cut.ordinals.end)
        return later_head(max(named))

    def _landed(self) -> Incarnation:
        incarnation = newest_incarnation(self._lake)
        if incarnation is None:
            remedy = f"run `lakeproof bootstrap {self._source.name}`"
            raise SourceError(f"source {self._source.name}", "it has no landing that could be recovered", remedy)
        return incarnation

    def _why(self, conn: Connection, incarnation: Incarnation, head: ChainSource, slot: SlotState | None) -> _Why:
        left = unfinished(self._lake)
        try:
            chain = Chain.open(self._lake, incarnation)
        except LakeError as error:
            return _Why(False, None, f"its landing can't be read: {error.thing}: {error.reason}")
        if left is not None and left.follows is not None:
            confirmed = None if slot is None or not left.creates_slot else slot.confirmed_flush_lsn
            abandons = is_abandoned(confirmed, left.follows.end_lsn)
            return _Why(False, chain.end, left.follows.reason, abandons)
        # Under the names that the landing knows: a slot that was renamed in the configuration may be alive.
        source_then = self._source.model_copy(update={"slot": head.slot, "publication": head.publication})
        try:
            check_meets(conn, source_then, chain, self._stop)
        except GapError as error:
            return _Why(False, chain.end, f"{error.thing}: {error.reason}")
        except StreamFailedError as error:
            # It failed at once, at the first place that is compared with the landing.
            return self._stuck(chain, read_stuck(chain) or note_stuck(chain, head.slot, error.reason))
        except LakeError as error:
            return _Why(False, chain.end, error.reason)
        except SourceError as error:
            # The old slot is of another kind now, and the configuration has another name.
            return _Why(False, chain.end, f"{error.thing}: {error.reason}")
        stuck = read_stuck(chain)
        if stuck is not None and not stuck.other_history:
            return self._stuck(chain, stuck)
        record = read_incarnation_record(self._lake, incarnation)
        waits = record is not None and record.follows is not None
        if waits and not may_be_applied(self._lake, incarnation) and source_then == self._source:
            return _Why(True, chain.end, "its recover was not finished")
        remedy = f"run `lakeproof drain {self._source.name}`"
        if source_then != self._source:
            remedy = f"configure slot {head.slot} and publication {head.publication}, or drop that slot first"
        raise SourceError(
            f"slot {head.slot}",
            f"it is alive and meets its landing at {chain.end}: there is nothing to recover",
            remedy,
        )

    def _stuck(self, chain: Chain, stuck: Stuck) -> _Why:
        """Return that the slot is abandoned; raises StuckError if nobody has confirmed that."""
        if not self._abandon_slot:
            raise stuck.error(self._source.name)
        return _Why(False, chain.end, stuck.words, abandons=True)

    def _to_drop(
        self, conn: Connection, server: ServerIdentity, head: ChainSource, slot: SlotState | None, *, abandons: bool
    ) -> Sequence[str]:
        drops = [slot.name] if slot is not None and (slot.lost or abandons) else []
        if head.slot != self._source.slot and (head.system_id, head.database_oid) == (
            server.system_id,
            server.database_oid,
        ):
            old = read_free_slot(conn, head.slot)
            problem = None if old is None else slot_problem(old, server.database)
            if old is not None and (problem is None or old.lost):
                drops.append(old.name)
        return drops

    def _head(self, incarnation: Incarnation) -> ChainSource:
        head = Chain.open_head(self._lake, incarnation).source
        if head is None:
            thing = f"landing {self._lake.url(self._lake.paths.landing(incarnation))}"
            raise LakeError(thing, "its head does not say what it belongs to", "restore it from a backup")
        return head

    def _report_event(self, kind: str, message: str, **fields: object) -> None:
        self._report(Event(kind, message, {"source": self._source.name, **fields}))


def _moved(server: ServerIdentity, head: ChainSource) -> str | None:
    if server.system_id != head.system_id:
        return f"the server is system {server.system_id}, the landing belongs to {head.system_id}"
    if server.database_oid != head.database_oid:
        return other_database("the landing", head.database, head.database_oid, server)
    return None
