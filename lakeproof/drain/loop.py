"""One connection's life: read, hand over, acknowledge what is durable, until the goal is reached.

`supervisor.py` reconnects, and adds up the whole drain.

    a segment ends      at a commit, when it is old, long or large enough (`drain.flush_*`), or the server wants our position
    a progress range    ends at a keepalive's position, when nothing is open except streamed transactions, which would be
                        sent again, and everything received is durable
    the slot moves      to the end of a durable manifest; invariant ack-after-durable

No hand-over can leave a hole: a unit stays here until the worker has it, and belongs to the worker from that moment on,
whatever fails next. Each unit says where the unit before it ended, and the worker refuses a unit that does not continue
there. A segment ends at the end of its last unit.

Every wait in here is shorter than `Pace.wait_s` and followed by `stream.tick()`, so the server hears from us however slow
the disk is.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from lakeproof.config.model import DrainConfig
from lakeproof.drain.acknowledge import acknowledge
from lakeproof.drain.flush import EndSegment, Flusher, Work
from lakeproof.drain.progress import LargeProgress, Rates
from lakeproof.drain.pulse import Pulse
from lakeproof.drain.segment_ends import Flushed
from lakeproof.drain.transactions.buffer import TransactionBuffer
from lakeproof.drain.transactions.units import UNIT_BYTES, DecodeUnit, LargeTransaction
from lakeproof.errors import LakeproofError, SourceError, TransientError
from lakeproof.events import Stop
from lakeproof.failpoints import failpoint
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_stream import READ_BYTES, WAIT_S, Received, ReplicationStream


class SessionEnd(Enum):
    """The reasons for which a session ends without an error."""

    REACHED = "reached"
    STOPPED = "stopped"
    ELAPSED = "elapsed"


@dataclass(slots=True)
class Goal:
    """The condition that ends a session: `target` is durable, `deadline` (time.monotonic) has passed, or a stop."""

    stop: Stop
    target: Lsn | None = None
    deadline: float | None = None


@dataclass(slots=True)
class _Pending:
    """The units that the worker was given since the last segment's end."""

    end: Lsn | None = None
    size: int = 0
    change_count: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, unit: DecodeUnit | LargeTransaction) -> None:
        self.end = unit.end_lsn
        self.size += unit.size
        self.change_count += unit.change_count


@dataclass(frozen=True, slots=True)
class Listeners:
    """The receivers of a session's events.

    `on_flushed` is called with each manifest after it was acknowledged, `on_spilled` with the bytes of each transaction that
    went to disk; `large` reports the progress of large ones, `rates` how fast it is; `pulse` is the state that others read.
    """

    on_flushed: Callable[[Flushed], None]
    on_spilled: Callable[[int], None]
    large: LargeProgress
    pulse: Pulse = field(default_factory=Pulse)
    rates: Rates | None = None


@dataclass(frozen=True, slots=True)
class SessionPace:
    """The size of a unit, and how long a session waits at once, also while its worker is busy.

    An acknowledgement is at most `busy_wait_s` late.
    """

    unit_bytes: int = UNIT_BYTES
    wait_s: float = WAIT_S
    busy_wait_s: float = 0.02


_USUAL = SessionPace()


class Session:
    """The loop over one stream. `durable` is the chain's end as this session knows it."""

    def __init__(
        self,
        stream: ReplicationStream,
        flusher: Flusher,
        limits: DrainConfig,
        durable: Lsn,
        listeners: Listeners,
        *,
        pace: SessionPace = _USUAL,
    ) -> None:
        self._stream = stream
        self._flusher = flusher
        self._limits = limits
        self._pace = pace
        self._listeners, self._pulse = listeners, listeners.pulse
        self._buffer = TransactionBuffer(
            limits.spill_bytes, limits.spill_files, limits.spill_bytes_max, start=durable, unit_bytes=pace.unit_bytes
        )
        # Units out of the buffer that the worker does not have yet.
        self._waiting: deque[DecodeUnit | LargeTransaction] = deque()
        self._pending = _Pending()
        self._alive = True
        self._keepalive: Lsn | None = None
        self._progress_at = time.monotonic()
        self.durable = durable

    def run(self, goal: Goal) -> SessionEnd:
        """Drain until the goal; then everything complete is durable and acknowledged. Raises as stream and worker do."""
        try:
            while True:
                ended = self._ended(goal)
                if ended is not None:
                    break
                self._step(goal)
            self._finish()
        except (SourceError, TransientError):
            self._keep()
            raise
        else:
            return ended
        finally:
            for unit in self._waiting:
                if isinstance(unit, LargeTransaction):
                    unit.close()
            self._buffer.close()

    def _step(self, goal: Goal) -> None:
        received = self._receive(goal)
        if len(received.buffer):
            if self._pending.end is None and not self._buffer.complete:
                self._pending.since = time.monotonic()
            self._pulse.received_bytes += received.buffer.size
            self._buffer.feed(received.buffer)
            failpoint("drain.received")
        if received.keepalive_lsn is not None:
            self._keepalive = max(received.keepalive_lsn, self._keepalive or Lsn.ZERO)
        self._hand_over(everything=False)
        if received.flush_requested or self._segment_is_due(goal):
            self._end_segment()
        self._make_progress(goal, requested=received.flush_requested)
        self._collect(0.0)

    def _receive(self, goal: Goal) -> Received:
        if self._buffer.crowded and not self._flusher.idle:
            self._flusher.first(self._pace.busy_wait_s)
            return Received()
        return self._stream.read(READ_BYTES, self._patience(goal))

    def _ended(self, goal: Goal) -> SessionEnd | None:
        if goal.stop.requested:
            return SessionEnd.STOPPED
        if goal.target is not None and self.durable >= goal.target:
            return SessionEnd.REACHED
        if goal.deadline is not None and time.monotonic() >= goal.deadline:
            return SessionEnd.ELAPSED
        return None

    def _finish(self) -> None:
        """Make durable what is complete, and acknowledge it; an open transaction will be sent again."""
        self._hand_over(everything=True)
        self._end_segment()
        while not self._flusher.idle:
            self._collect(self._pace.wait_s)

    def _keep(self) -> None:
        """After a failure of the stream: make durable what arrived whole; the next connection acknowledges it."""
        self._alive = False
        with suppress(LakeproofError):
            self._end_segment()
            self._flusher.wait()

    def _patience(self, goal: Goal) -> float:
        """Return how long a read may wait for its first message."""
        longest = self._pace.wait_s if self._flusher.idle else self._pace.busy_wait_s
        if goal.deadline is not None:
            longest = min(longest, max(0.0, goal.deadline - time.monotonic()))
        if self._pending.end is not None or self._buffer.complete:
            due = self._pending.since + self._limits.flush_interval_s
            longest = min(longest, max(self._pace.busy_wait_s, due - time.monotonic()))
        return longest

    def _hand_over(self, *, everything: bool) -> None:
        self._waiting += self._buffer.take(everything=everything)
        while self._waiting:
            unit = self._waiting[0]
            self._submit(unit)
            # From here on the unit belongs to the worker, whatever fails next.
            del self._waiting[0]
            self._pending.add(unit)
            if isinstance(unit, LargeTransaction) and unit.spilled:
                self._listeners.on_spilled(unit.size)
            self._tend()

    def _submit(self, work: Work) -> None:
        """Wait until the worker has the work. Raises only while it does not."""
        while not self._flusher.submit(work, self._pace.wait_s):
            self._tend()
            if self._alive:
                self._collect(0.0)

    def _tend(self) -> None:
        """Keep the stream alive during other work, and report progress."""
        large, rates = self._listeners.large, self._listeners.rates
        if large.is_due:
            large.report(self._buffer.waiting_bytes, self._flusher.decoding)
        if rates is not None:
            rates.report_if_due()
        if self._alive:
            # Show others, and the server, what has come and what has become of it.
            complete = self._buffer.newest
            here = max(complete, self._keepalive or Lsn.ZERO, self.durable)
            self._pulse.beat(here, complete)
            self._stream.note(received=here, applied=self._pulse.replayed)
            self._stream.tick()

    def _segment_is_due(self, goal: Goal) -> bool:
        """True if what is complete should become durable now. While one segment is being ended, the next one grows."""
        pending, limits = self._pending, self._limits
        if self._flusher.ending or (pending.end is None and not self._buffer.complete):
            return False
        positions = (self._keepalive, pending.end, self._buffer.complete_end)
        if goal.target is not None and max(lsn or Lsn.ZERO for lsn in positions) >= goal.target:
            return True
        change_count = pending.change_count + self._buffer.complete_change_count
        age = time.monotonic() - pending.since
        return (
            age >= (limits.flush_interval_s if change_count else limits.progress_interval_s)
            or change_count >= limits.flush_rows
            or pending.size + self._buffer.complete_bytes >= limits.flush_bytes
        )

    def _end_segment(self) -> None:
        self._hand_over(everything=True)
        if self._pending.end is not None:
            self._submit(EndSegment())
            self._pending = _Pending()
            self._tend()

    def _make_progress(self, goal: Goal, *, requested: bool) -> None:
        """End a range without changes, if nothing is open and everything received is durable."""
        keepalive = self._keepalive
        if (
            keepalive is None
            or keepalive <= self.durable
            or not self._buffer.nothing_waits
            or self._pending.end is not None
            or not self._flusher.idle
        ):
            return
        due = time.monotonic() - self._progress_at >= self._limits.progress_interval_s
        if due or requested or (goal.target is not None and keepalive >= goal.target):
            self._buffer.advance(keepalive)
            self._end_segment()

    def _collect(self, timeout_s: float) -> None:
        while (flushed := self._flusher.first(timeout_s)) is not None:
            self.durable = acknowledge(self._stream, flushed.manifest)
            self._flusher.collected()
            timeout_s = 0.0
            self._progress_at = time.monotonic()
            failpoint("drain.after_ack")
            self._listeners.on_flushed(flushed)
        self._tend()
