"""The drain across its connections: it checks, connects, waits out faults and ends.

One connection's life is in `loop.py`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakeproof.config.model import Config, SourceConfig
from lakeproof.continuity.gap import SlotAndChain, check_no_gap
from lakeproof.continuity.same_history import check_same_history
from lakeproof.drain.acknowledge import acknowledge
from lakeproof.drain.catalog.publications import (
    Publications,
    PublicationsChangedError,
    StreamOutdatedError,
    recorded_names,
)
from lakeproof.drain.catalog.resolver import CatalogResolver
from lakeproof.drain.catalog.watch import Carried, CatalogWatch
from lakeproof.drain.counts import DrainReport, Flush, Totals
from lakeproof.drain.flush import Flusher
from lakeproof.drain.loop import Goal, Listeners, Session, SessionEnd
from lakeproof.drain.progress import LargeProgress, Rates
from lakeproof.drain.pulse import Pulse
from lakeproof.drain.segment_ends import Flushed
from lakeproof.drain.stuck import StuckWatch
from lakeproof.drain.transactions.spill import SpillLimitError
from lakeproof.drain.until import Until
from lakeproof.errors import InvariantError, LakeError, LakeproofError, NoRoomError, TransientError
from lakeproof.events import Event, RunControl, counted
from lakeproof.failpoints import failpoint
from lakeproof.landing.chain import Chain, FencedError
from lakeproof.landing.missing import no_landing
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.postgres.catalog.published import INSERTS_SUFFIX, publications_of
from lakeproof.postgres.connections.connect import connect, source_errors
from lakeproof.postgres.connections.timeouts import ASKED_TO_STOP, Timeout, in_thread, use_timeout
from lakeproof.postgres.replication_stream import (
    LostPublicationError,
    ReplicationStream,
    StreamFailedError,
    StreamOptions,
)
from lakeproof.storage.source_lake import SourceLake

# The first pause after a lost connection; it doubles each time, up to `drain.backoff_max_s`.
BACKOFF_FIRST_S = 0.2
# A walsender whose client was killed releases the slot within milliseconds on one machine.
SLOT_WAIT_S = 1.0
# If the slot's holder does not move the landing for this long, we stop waiting: it may not be a drain of ours.
FOLLOW_TIMEOUT_S = 60.0
FOLLOW_POLL_S = 0.1
# How long the catalog may still answer after a stop: complete transactions need their tables' schemas to become durable.
STOP_GRACE_S = 3.0
FOLLOWED = "followed"


class Supervisor:
    """The state of one call of `drain`; `pulse` is the part of it that others read."""

    def __init__(
        self,
        config: Config,
        source: SourceConfig,
        until: Until,
        *,
        control: RunControl,
        on_flush: Callable[[Flush], None] | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._source = source
        self._until = until
        self._report = control.report
        self._on_flush = on_flush
        self._pulse = pulse or Pulse()
        self._rates = Rates(control.report, source.name, self._pulse) if until.lasting else None
        self._streaming = True
        self._totals = Totals()
        self._publications = Publications()
        self._confirmed: Lsn | None = None
        self._backoff_s = BACKOFF_FIRST_S
        self._goal = Goal(control.stop, until.target)
        if until.duration_s is not None:
            self._goal.deadline = time.monotonic() + until.duration_s
        lake = SourceLake.open(config.location, source.name)
        chain = Chain.open_newest(lake)
        if chain is None:
            raise no_landing(lake)
        self._chain = chain
        self._start, self._stuck = self._chain.end, StuckWatch(self._chain, source.slot)
        swept = sweep(self._chain)
        self._carried = Carried(passes_number=swept.ahead)
        if files := len(swept.removed):
            self._emit("drain.swept", f"removed {counted(files, 'data file')} that no manifest names", files=files)

    def run(self) -> DrainReport:
        again = False
        while True:
            try:
                if again:
                    # Another writer may have appended meanwhile. This can fail, too: a lake may be as far away as a server.
                    self._chain.refresh()
                reason = self._attempt_in_room()
            except FencedError:
                raise
            except StreamOutdatedError as error:
                self._emit("drain.outdated", f"{error.thing}: {error.reason}; connecting again")
                again = True
            except (TransientError, NoRoomError, StreamFailedError) as error:
                if self._goal.stop.requested and isinstance(error, TransientError):
                    return self._result(SessionEnd.STOPPED.value)
                if not self._waits_out(error) or not self._wait_after(error):
                    raise
                if self._goal.stop.requested:
                    return self._result(SessionEnd.STOPPED.value)
                again = True
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
            # From here on the server keeps open transactions to itself.
            self._streaming = False
            self._emit("drain.spill_limit", f"{error.reason}; connecting again, for one transaction after the other")
            self._chain.refresh()
            return None

    def _attempt(self) -> str | None:
        """Run one connection; returns the reason for the end, None to continue with another connection."""
        pair, publications = self._check()
        if self._goal.target is None and self._until.catches_up:
            self._goal.target = pair.server.current_lsn
        reached = self._goal.target is not None and self._chain.end >= self._goal.target
        # A new publication is still added: until then no table of it can be copied.
        recorded = recorded_names(self._chain)
        if reached and set(publications) <= (recorded or set(publications)):
            self._count_followed()
            return SessionEnd.REACHED.value
        if pair.slot.active and not self._until.lasting:
            if self._follow(pair):
                return SessionEnd.STOPPED.value if self._goal.stop.requested else FOLLOWED
            recorded = recorded_names(self._chain)
        existing = publications or [self._source.publication]
        names, goal = self._readable(recorded, existing, pair.server.current_lsn)
        self._check_same_history(pair, publications)
        while True:
            start = self._chain.end
            with self._open_stream(names, start) as stream:
                # The slot's holder before us may have appended since: the stream must begin at the chain's end.
                self._chain.refresh()
                if self._chain.end == start:
                    # It may also have acknowledged more than that: only now can nobody but us move the slot.
                    self._check()
                    ended = self._session(stream, names, existing, goal)
                    return None if goal is not self._goal and ended is SessionEnd.REACHED else ended.value

    def _readable(self, recorded: set[str] | None, existing: Sequence[str], now: Lsn) -> tuple[list[str], Goal]:
        """Return the publications to read, and the goal to read them up to."""
        names, until = self._publications.readable(recorded, existing, now, self._chain.end)
        # A drain that is to end right there reads it, too: the next one would see it at a later position, and so would each.
        if until is None or (self._goal.target is not None and self._goal.target < until):
            return names, self._goal
        left = ", ".join(sorted(set(existing) - set(names)))
        self._emit("drain.publications", f"{left} was made later, and is read from {until} on")
        return names, replace(self._goal, target=until)

    def _check_same_history(self, pair: SlotAndChain, publications: Sequence[str]) -> None:
        """If the slot is behind the landing, check that the server's history is the one that landed."""
        compared = check_same_history(
            self._chain,
            pair.slot.confirmed_flush_lsn,
            publications,
            confirmed_now=lambda: self._check()[0].slot.confirmed_flush_lsn,
            open_stream=self._open_stream,
            stop=self._goal.stop,
        )
        if compared is not None:
            message = f"{counted(compared, 'landed commit')} compared: the server has the same"
            self._emit("drain.history_checked", message, transactions=compared)

    def _check(self) -> tuple[SlotAndChain, list[str]]:
        with use_timeout(self._timeout()), connect(self._source.dsn, "lakeproof drain check") as conn:
            return check_no_gap(conn, self._source, self._chain), publications_of(conn, self._source)

    def _open_stream(self, publications: Sequence[str], start: Lsn) -> ReplicationStream:
        """Open a stream in another thread while this one watches for a stop: a server may take long to start sending."""
        limits = self._source.drain

        def opened() -> ReplicationStream:
            failpoint("drain.before_stream")
            return ReplicationStream.open(
                self._source.dsn,
                self._source.slot,
                publications,
                start,
                StreamOptions(
                    status_interval_s=limits.status_interval_s,
                    silence_timeout_s=limits.silence_timeout_s,
                    application_name=f"lakeproof drain {self._source.name}"[:63],
                    wait_s=SLOT_WAIT_S,
                    streaming=self._streaming,
                    messages=bool(limits.messages),
                ),
            )

        with use_timeout(self._timeout()), source_errors(f"slot {self._source.slot}"):
            stop = self._goal.stop
            return in_thread(opened, lambda: ASKED_TO_STOP if stop.requested else None, ReplicationStream.close)

    def _timeout(self, grace_s: float = 0.0) -> Timeout:
        return Timeout(self._source.drain.silence_timeout_s, self._goal.stop, grace_s)

    def _session(
        self, stream: ReplicationStream, publications: Sequence[str], existing: Sequence[str], goal: Goal
    ) -> SessionEnd:
        message = f"draining {self._source.name} from {self._chain.end}"
        self._emit("drain.start", message, slot=self._source.slot, start_lsn=str(self._chain.end))
        # The slot may be behind: a drain killed right after its manifest has not acknowledged it.
        self._confirmed = acknowledge(stream, self._chain.newest)
        self._pulse.connect(self._chain.end)
        timeout = self._timeout(STOP_GRACE_S)
        writer = secrets.token_hex(16)
        watch = CatalogWatch(self._source, self._chain, publications, writer, timeout, existing=existing)
        watch.carried = self._carried
        resolver = CatalogResolver(self._source, watch.readings, timeout)
        flusher = Flusher(
            self._chain,
            BatchDecoder(RelationCache(resolver, expect=resolver.expect)),
            writer,
            watch,
            self._source.drain,
        )
        failure: BaseException | None = None
        try:
            session = Session(
                stream,
                flusher,
                self._source.drain,
                self._chain.end,
                Listeners(
                    on_flushed=lambda flushed: self._flushed(flushed, watch),
                    on_spilled=self._spilled,
                    large=LargeProgress(self._report, self._source.name),
                    pulse=self._pulse,
                    rates=self._rates,
                ),
            )
            ended = session.run(goal)
            # Alterations since the last reading are noticed now, not at the next start.
            flusher.look()
        except LostPublicationError:
            self._lost_publication(existing, publications)
            raise
        else:
            return ended
        finally:
            failure = flusher.close()
            for flushed in flusher.uncollected:
                # The next session will acknowledge it.
                self._count(flushed, watch)
            self._report_catalog(watch)
            self._pulse.disconnect()
            watch.close()
            resolver.close()
            if isinstance(failure, FencedError | InvariantError):
                # The connection is often lost first, but what matters is that this writer was replaced, or is at fault.
                raise failure

    def _lost_publication(self, existing: Sequence[str], publications: Sequence[str]) -> None:
        """Raise PublicationsChangedError if it may help to go on without one, or with those that exist now."""
        pair, now = self._check()
        if set(now) != set(existing):
            raise PublicationsChangedError(self._source) from None
        second = self._source.publication + INSERTS_SUFFIX
        if second in publications and second not in self._publications.first_seen:
            self._publications.first_seen[second] = pair.server.current_lsn
            raise PublicationsChangedError(self._source) from None

    def _flushed(self, flushed: Flushed, watch: CatalogWatch) -> None:
        """Count a manifest that was acknowledged."""
        self._backoff_s = BACKOFF_FIRST_S
        self._confirmed = flushed.manifest.end_lsn
        self._count(flushed, watch)

    def _count(self, flushed: Flushed, watch: CatalogWatch) -> None:
        manifest = flushed.manifest
        self._report_catalog(watch)
        self._totals.add(manifest)
        landed = f"{counted(manifest.rows, 'row')} of {counted(manifest.transactions, 'transaction')}"
        self._emit(
            "drain.flush",
            f"{landed} durable up to {manifest.end_lsn}",
            number=manifest.number,
            start_lsn=str(manifest.start_lsn),
            end_lsn=str(manifest.end_lsn),
            confirmed_flush_lsn=str(self._confirmed),
            transactions=manifest.transactions,
            rows=manifest.rows,
            flush_seconds=round(flushed.seconds, 3),
        )
        flush = Flush.of(manifest, flushed.seconds)
        self._pulse.landed(flush)
        if self._on_flush is not None:
            self._on_flush(flush)

    def _report_catalog(self, watch: CatalogWatch) -> None:
        while watch.changes:
            change = watch.changes.popleft()
            message = f"{change.table}: {change.words}"
            self._emit("drain.catalog", message, table=change.table.key, consequence=change.consequence.value)

    def _spilled(self, size: int) -> None:
        self._emit("drain.spill", f"a transaction of {size} bytes of messages waited on disk", spilled_bytes=size)

    def _waits_out(self, error: LakeproofError) -> bool:
        """True if this drain waits out the error; raises StuckError if waiting would not help.

        Room on a disk may take hours, and meanwhile nobody holds the slot: a drain of limited time, as each run of the
        sensor in Dagster is, would look like one at work. So such a drain ends, visibly.
        """
        if isinstance(error, StreamFailedError):
            self._stuck.failed(error)
            return True
        return self._until.endless if isinstance(error, NoRoomError) else self._until.lasting

    def _wait_after(self, error: LakeproofError) -> bool:
        """Back off; False if the drain's time is up."""
        wait_s = self._backoff_s
        self._backoff_s = min(self._source.drain.backoff_max_s, 2 * wait_s)
        if self._goal.deadline is not None and time.monotonic() + wait_s >= self._goal.deadline:
            return False
        self._emit("drain.reconnect", f"{error.thing}: {error.reason}; connecting again in {wait_s:g} s", wait_s=wait_s)
        self._goal.stop.wait(wait_s)
        return True

    def _follow(self, pair: SlotAndChain) -> bool:
        """Wait while another drain holds the slot: True when the landing has the target or on a stop, False when it is free.

        Raises TransientError if the landing does not move: the holder is no drain of this landing.
        """
        target = self._goal.target
        holder = f"slot {self._source.slot} is in use by process {pair.slot.active_pid}"
        self._emit("drain.follow", f"{holder}; waiting until the landing has {target}")
        moved_at, end = time.monotonic(), self._chain.end
        checked_at = moved_at
        while target is not None and self._chain.end < target:
            if self._goal.stop.wait(FOLLOW_POLL_S):
                break
            self._chain.refresh()
            now = time.monotonic()
            if self._chain.end != end:
                moved_at, end = now, self._chain.end
            if now - checked_at >= 1.0:
                checked_at = now
                if not self._check()[0].slot.active:
                    return False
            if now - moved_at > max(FOLLOW_TIMEOUT_S, 3 * self._source.drain.progress_interval_s):
                raise TransientError(
                    f"slot {self._source.slot}",
                    f"it is in use by process {pair.slot.active_pid}, which has not moved the landing from {end}",
                    "end that process, or wait for it, then try again",
                )
        self._count_followed()
        return True

    def _count_followed(self) -> None:
        """Count what another drain has landed since the start, as far as the retention has kept it."""
        self._chain.reread_start()
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

    def _emit(self, kind: str, message: str, **fields: object) -> None:
        self._report(Event(kind, message, {"source": self._source.name, **fields}))
