"""The drain across its connections: it checks, connects, waits out faults and ends."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakeproof.config.model import Config, SourceConfig
from lakeproof.continuity.gap import Meeting, check_no_gap
from lakeproof.continuity.same_history import check_past
from lakeproof.drain.acknowledge import acknowledge
from lakeproof.drain.catalog_resolver import CatalogResolver
from lakeproof.drain.catalog_watch import CatalogWatch
from lakeproof.drain.counts import DrainReport, Flush, Totals
from lakeproof.drain.flush import Flushed, Flusher
from lakeproof.drain.large_transactions import LargeProgress
from lakeproof.drain.loop import Ended, Goal, Session
from lakeproof.drain.publications import Publications, PublicationsChangedError, recorded_names
from lakeproof.drain.transactions.spill import SpillLimitError
from lakeproof.drain.until import Mode, Until
from lakeproof.errors import InvariantError, LakeError, LakeproofError, NoRoomError, TransientError
from lakeproof.events import Event, Report, Stop
from lakeproof.landing.chain import Chain, FencedError
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.postgres.catalog_published import INSERTS_SUFFIX, publications_of
from lakeproof.postgres.connection import close_quietly, connect, source_errors
from lakeproof.postgres.connection_timeouts import ASKED_TO_STOP, Patience, aside, within
from lakeproof.postgres.replication_stream import LostPublicationError, ReplicationStream
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths

# After a lost connection; then twice as long each time, up to `drain.backoff_max_s`.
BACKOFF_FIRST_S = 0.2


# A walsender whose client was killed lets go of the slot within milliseconds on one machine.
SLOT_WAIT_S = 1.0


# How long another holder of the slot may not move the landing before we stop waiting for it: it need not be a drain of ours.
FOLLOW_PATIENCE_S = 60.0


FOLLOW_POLL_S = 0.1


# How long the catalog may still answer after a stop: what is complete needs its tables' shapes to be made durable.
STOP_GRACE_S = 3.0


FOLLOWED = "followed"


class _Drain:
    """The state of one call of `drain`."""

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        until: Until,
        *,
        report: Report,
        stop: Stop,
        on_flush: Callable[[Flush], None] | None,
    ) -> None:
        self._source = source
        self._until = until
        self._report = report
        self._on_flush = on_flush
        self._streaming = True
        self._totals = Totals()
        self._publications = Publications()
        self._confirmed: Lsn | None = None
        self._backoff_s = BACKOFF_FIRST_S
        self._goal = Goal(stop, until.target)
        if until.duration_s is not None:
            self._goal.deadline = time.monotonic() + until.duration_s
        self._chain = _open_chain(config, source)
        self._start = self._chain.end
        removed = sweep(self._chain)
        if removed:
            self._tell("drain.swept", f"removed {len(removed)} data files that no manifest names", files=len(removed))

    def run(self) -> DrainReport:
        while True:
            try:
                reason = self._attempt_in_room()
            except FencedError:
                raise
            except PublicationsChangedError as error:
                self._tell("drain.publications", f"{error.thing}: {error.reason}; connecting again")
                self._chain.refresh()
            except (TransientError, NoRoomError) as error:
                if self._goal.stop.requested and isinstance(error, TransientError):
                    return self._result(Ended.STOPPED.value)
                if not self._waits_out(error) or not self._wait_after(error):
                    raise
                if self._goal.stop.requested:
                    return self._result(Ended.STOPPED.value)
                self._chain.refresh()
            else:
                if reason is not None:
                    return self._result(reason)

    def _attempt_in_room(self) -> str | None:
        try:
            return self._attempt()
        except SpillLimitError as error:
            if error.alone and not self._streaming:
                kind = NoRoomError if error.by_room else LakeError
                raise kind(error.thing, error.reason, error.remedy) from error
            # From here on the server keeps what is open.
            self._streaming = False
            self._tell("drain.spill_limit", f"{error.reason}; connecting again, for one transaction after the other")
            self._chain.refresh()
            return None

    def _attempt(self) -> str | None:
        """Why it has ended; None where it is to go on with another connection."""
        meeting, publications = self._check()
        if self._goal.target is None and self._until.mode is Mode.CAUGHT_UP:
            self._goal.target = meeting.server.current_lsn
        reached = self._goal.target is not None and self._chain.end >= self._goal.target
        # A publication that is new is taken up all the same: until then no table of it can be copied.
        recorded = recorded_names(self._chain)
        if reached and set(publications) <= (recorded or set(publications)):
            self._count_followed()
            return Ended.REACHED.value
        if meeting.slot.active and not self._until.lasting:
            if self._follow(meeting):
                return Ended.STOPPED.value if self._goal.stop.requested else FOLLOWED
            recorded = recorded_names(self._chain)
        there = publications or [self._source.publication]
        names, goal = self._readable(recorded, there, meeting.server.current_lsn)
        # What landed of a publication that is gone, the server sends no more.
        if (recorded or set()) <= set(names):
            self._look_back(meeting, names)
        while True:
            start = self._chain.end
            with self._open_stream(names, start) as stream:
                # Whoever had the slot before may have appended after we looked: the stream must begin at the chain's end.
                self._chain.refresh()
                if self._chain.end == start:
                    # And whoever had it may have told it of more than that: only now can nobody move it but us.
                    self._check()
                    ended = self._session(stream, names, there, goal)
                    return None if goal is not self._goal and ended is Ended.REACHED else ended.value

    def _readable(self, recorded: set[str] | None, there: Sequence[str], now: Lsn) -> tuple[list[str], Goal]:
        """The publications to read, and how far to go with them."""
        names, until = self._publications.readable(recorded, there, now, self._chain.end)
        if until is None or (self._goal.target is not None and self._goal.target <= until):
            return names, self._goal
        left = ", ".join(sorted(set(there) - set(names)))
        self._tell("drain.publications", f"{left} was made later, and is read from {until} on")
        return names, replace(self._goal, target=until)

    def _look_back(self, meeting: Meeting, publications: Sequence[str]) -> None:
        """Where the slot stands behind, the server may have another past than the one that landed."""
        compared = check_past(
            self._source.name,
            self._chain,
            meeting.slot.confirmed_flush_lsn,
            confirmed_now=lambda: self._check()[0].slot.confirmed_flush_lsn,
            open_stream=lambda start: self._open_stream(publications, start),
            stop=self._goal.stop,
        )
        if compared is not None:
            self._tell("drain.past", f"{compared} commits that landed are the server's too", transactions=compared)

    def _check(self) -> tuple[Meeting, list[str]]:
        with within(self._patience()):
            conn = connect(self._source.dsn, "lakeproof drain check")
            try:
                return check_no_gap(conn, self._source, self._chain), publications_of(conn, self._source)
            finally:
                close_quietly(conn)

    def _open_stream(self, publications: Sequence[str], start: Lsn) -> ReplicationStream:
        """Beside this thread, which meanwhile hears of a stop: a server may take its time before it starts to send."""
        given = self._source.drain

        def opened() -> ReplicationStream:
            return ReplicationStream.open(
                self._source.dsn,
                self._source.slot,
                publications,
                start,
                status_interval_s=given.status_interval_s,
                silence_timeout_s=given.silence_timeout_s,
                application_name=f"lakeproof drain {self._source.name}"[:63],
                wait_s=SLOT_WAIT_S,
                streaming=self._streaming,
                messages=bool(given.messages),
            )

        with within(self._patience()), source_errors(f"slot {self._source.slot}"):
            return aside(opened, self._asked_to_stop, ReplicationStream.close)

    def _asked_to_stop(self) -> str | None:
        return ASKED_TO_STOP if self._goal.stop.requested else None

    def _patience(self, grace_s: float = 0.0) -> Patience:
        return Patience(self._source.drain.silence_timeout_s, self._goal.stop, grace_s)

    def _session(
        self, stream: ReplicationStream, publications: Sequence[str], there: Sequence[str], goal: Goal
    ) -> Ended:
        self._tell(
            "drain.start",
            f"draining {self._source.name} from {self._chain.end}",
            slot=self._source.slot,
            start_lsn=str(self._chain.end),
        )
        # The slot may stand behind: a drain that was killed after its manifest had not told it yet.
        self._confirmed = acknowledge(stream, self._chain.newest)
        patience = self._patience(STOP_GRACE_S)
        writer = secrets.token_hex(16)
        watch = CatalogWatch(self._source, self._chain, publications, writer, patience, there=there)
        resolver = CatalogResolver(self._source, watch.readings, patience)
        flusher = Flusher(self._chain, BatchDecoder(RelationCache(resolver)), writer, watch, self._source.drain)
        failure: BaseException | None = None
        try:
            session = Session(
                stream,
                flusher,
                self._source.drain,
                self._chain.end,
                on_flushed=lambda flushed: self._flushed(flushed, watch),
                on_spilled=self._spilled,
                large=LargeProgress(self._report, self._source.name),
            )
            ended = session.run(goal)
            # What was altered since the last look is noticed now, not at the next start.
            flusher.look()
        except LostPublicationError:
            self._lost_publication(there, publications)
            raise
        else:
            return ended
        finally:
            failure = flusher.close()
            for flushed in flusher.uncollected:
                # The next session will acknowledge it.
                self._count(flushed, watch)
            self._tell_of_catalog(watch)
            watch.close()
            resolver.close()
            if isinstance(failure, FencedError | InvariantError):
                # The connection is often lost first; that this writer was replaced, or is at fault, is what matters.
                raise failure

    def _lost_publication(self, there: Sequence[str], publications: Sequence[str]) -> None:
        """Raises PublicationsChangedError where going on without one, or with those that are there now, may help."""
        meeting, now = self._check()
        if set(now) != set(there):
            raise PublicationsChangedError(self._source) from None
        second = self._source.publication + INSERTS_SUFFIX
        if second in publications and second not in self._publications.first_seen:
            self._publications.first_seen[second] = meeting.server.current_lsn
            raise PublicationsChangedError(self._source) from None

    def _flushed(self, flushed: Flushed, watch: CatalogWatch) -> None:
        """A manifest that was acknowledged."""
        self._backoff_s = BACKOFF_FIRST_S
        self._confirmed = flushed.manifest.end_lsn
        self._count(flushed, watch)

    def _count(self, flushed: Flushed, watch: CatalogWatch) -> None:
        manifest = flushed.manifest
        self._tell_of_catalog(watch)
        self._totals.add(manifest)
        self._tell(
            "drain.flush",
            f"{manifest.rows} rows of {manifest.transactions} transactions are durable up to {manifest.end_lsn}",
            number=manifest.number,
            start_lsn=str(manifest.start_lsn),
            end_lsn=str(manifest.end_lsn),
            confirmed_flush_lsn=str(self._confirmed),
            transactions=manifest.transactions,
            rows=manifest.rows,
            flush_seconds=round(flushed.seconds, 3),
        )
        if self._on_flush is not None:
            self._on_flush(Flush.of(manifest, flushed.seconds))

    def _tell_of_catalog(self, watch: CatalogWatch) -> None:
        while watch.noticed:
            change = watch.noticed.popleft()
            told = f"{change.table}: {', '.join(d.value for d in change.differences)}"
            self._tell("drain.catalog", told, table=change.table.key, verdict=change.verdict.value)

    def _spilled(self, size: int) -> None:
        self._tell("drain.spill", f"a transaction of {size} bytes of messages waited on disk", spilled_bytes=size)

    def _waits_out(self, error: LakeproofError) -> bool:
        """Whether this drain lasts through it.

        Room on a disk may take hours, and meanwhile nobody holds the slot: a supervisor who gives each drain its time, as
        the sensor in Dagster does, would take it for dead and start another beside it. So such a drain ends, and is seen.
        """
        return self._until.mode is Mode.STOPPED if isinstance(error, NoRoomError) else self._until.lasting

    def _wait_after(self, error: LakeproofError) -> bool:
        """Back off; False where the drain's time is up."""
        wait_s = self._backoff_s
        self._backoff_s = min(self._source.drain.backoff_max_s, 2 * wait_s)
        if self._goal.deadline is not None and time.monotonic() + wait_s >= self._goal.deadline:
            return False
        self._tell("drain.reconnect", f"{error.thing}: {error.reason}; connecting again in {wait_s:g} s", wait_s=wait_s)
        self._goal.stop.wait(wait_s)
        return True

    def _follow(self, meeting: Meeting) -> bool:
        """Wait while another drain holds the slot: True when the landing has the target or on a stop, False when it is free.

        Raises TransientError where the landing does not move: the holder is no drain of this landing.
        """
        target = self._goal.target
        holder = f"slot {self._source.slot} is in use by process {meeting.slot.active_pid}"
        self._tell("drain.follow", f"{holder}; waiting until the landing has {target}")
        moved_at, end = time.monotonic(), self._chain.end
        looked_at = moved_at
        while target is not None and self._chain.end < target:
            if self._goal.stop.wait(FOLLOW_POLL_S):
                break
            self._chain.refresh()
            now = time.monotonic()
            if self._chain.end != end:
                moved_at, end = now, self._chain.end
            if now - looked_at >= 1.0:
                looked_at = now
                if not self._check()[0].slot.active:
                    return False
            if now - moved_at > max(FOLLOW_PATIENCE_S, 3 * self._source.drain.progress_interval_s):
                raise TransientError(
                    f"slot {self._source.slot}",
                    f"it is in use by process {meeting.slot.active_pid}, which has not moved the landing from {end}",
                    "end that process, or wait for it, then try again",
                )
        self._count_followed()
        return True

    def _count_followed(self) -> None:
        """What another drain has landed since the start, as far as the retention has left it."""
        self._chain.rebase()
        for manifest in self._chain.between(max(self._start, self._chain.kept_from), self._chain.end):
            self._totals.add(manifest)

    def _result(self, reason: str) -> DrainReport:
        return DrainReport(
            source=self._source.name,
            start_lsn=self._start,
            end_lsn=self._chain.end,
            confirmed_flush_lsn=self._confirmed,
            transactions=self._totals.transactions,
            rows=self._totals.rows,
            segments=self._totals.segments,
            tables=dict(sorted(self._totals.tables.items())),
            reason_for_end=reason,
        )

    def _tell(self, kind: str, message: str, **fields: object) -> None:
        self._report(Event(kind, message, {"source": self._source.name, **fields}))


def _open_chain(config: Config, source: SourceConfig) -> Chain:
    store, paths = open_store(config.lake), LakePaths(config.lake, source.name)
    chain = Chain.open_newest(store, paths)
    if chain is None:
        raise LakeError(
            f"landing {paths.url(paths.landings)}", "it has not begun", f"run `lakeproof bootstrap {source.name}`"
        )
    return chain
