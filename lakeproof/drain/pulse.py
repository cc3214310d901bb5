"""A drain's present state, written by its loop and read by others at any time: positions, what waits, how far it is behind.

The readers of the state are `progress.py` and `lakeproof.metrics`.

    applied ≤ durable ≤ received     of the log: in the newest cut, in the landing, here

The lag in seconds says: every commit that is older is durable. While something complete waits, it is as old as the wait is
long; a commit's own time counts too, since after a pause the server sends what was committed hours ago. Log without a change
for us does not wait for anything, though the landing passes it at intervals only.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from lakeproof.drain.counts import Flush
from lakeproof.lsn import Lsn

# Positions are remembered with their times at most this often, and at most so many of them.
_MARK_S = 0.25
MARKS_MAX = 4096
# For so long after a flush the age of its newest commit says how far the drain is behind.
_RECENT_S = 15.0


class Pulse:
    """The state of one drain, over all its connections. One thread writes; `applied` alone is set by another one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time) -> None:
        self._clock, self._wall = clock, wall
        self.received = Lsn.ZERO
        self.durable = Lsn.ZERO
        # The newest cut's position, if it is one of this landing; None if nobody knows it.
        self.applied: Lsn | None = None
        self.is_connected = False
        self.changes = 0
        self.transactions = 0
        self.received_bytes = 0
        self._rows_end = Lsn.ZERO
        self._beat_s: float | None = None
        self._marks: deque[tuple[Lsn, float]] = deque()
        self._waits_since_s: float | None = None
        self._last_lag: tuple[float, float] | None = None

    def connect(self, durable: Lsn) -> None:
        """Begin a connection; the landing ends at `durable`."""
        if durable > self.durable:
            # What somebody else has landed may have rows.
            self.durable = self._rows_end = durable
        self.received = max(self.received, self.durable)
        self.is_connected = True
        self._waits_since_s = None
        self._beat_s = self._clock()

    def disconnect(self) -> None:
        """End a connection: from now on the server may commit what nobody here hears of."""
        if self.is_connected and self._waits_since_s is None:
            self._waits_since_s = self._clock()
        self.is_connected = False
        self._marks.clear()

    def beat(self, received: Lsn, complete: Lsn) -> None:
        """Show that the loop works: all up to `received` is here, and the last whole transaction ends at `complete`."""
        self._beat_s = self._clock()
        self.received = max(self.received, received)
        if complete > self.durable:
            self._mark(complete, self._beat_s)

    def landed(self, flush: Flush) -> None:
        """Count a durable manifest."""
        now_s = self._clock()
        self.durable = max(self.durable, flush.end_lsn)
        if flush.rows:
            self._rows_end = self.durable
        self.transactions += flush.transactions
        self.changes += sum(counts.changes for counts in flush.tables.values())
        newest_us = flush.last_commit_us
        self._last_lag = None if newest_us is None else (now_s, max(0.0, self._wall() - newest_us / 1e6))
        while self._marks and self._marks[0][0] <= self.durable:
            self._marks.popleft()
        if self.is_connected:
            self._waits_since_s = self._marks[0][1] if self._marks else None

    @property
    def replayed(self) -> Lsn | None:
        """The position up to which everything is in the newest cut: behind its own there may be log without a row."""
        applied = self.applied
        return self.durable if applied is not None and applied >= self._rows_end else applied

    @property
    def beat_age_s(self) -> float | None:
        """The seconds since the loop last showed that it works; None before its first connection."""
        return None if self._beat_s is None else self._clock() - self._beat_s

    @property
    def waiting_s(self) -> float:
        """The seconds for which something has waited to become durable, or the connection has been lost; 0 if nothing."""
        since_s = self._waits_since_s
        return 0.0 if since_s is None else self._clock() - since_s

    @property
    def lag_s(self) -> float:
        """The seconds within which a commit is durable now: every commit that is older is."""
        lag, now_s = self._last_lag, self._clock()
        newest_s = lag[1] if lag is not None and now_s - lag[0] < _RECENT_S else 0.0
        return max(self.waiting_s, newest_s)

    @property
    def lag_bytes(self) -> int:
        """The bytes of the log that are here, or that the server has spoken of, and are not durable."""
        return max(0, self.received - self.durable)

    def _mark(self, complete: Lsn, now_s: float) -> None:
        """Remember that what ends at `complete` has waited since now."""
        if self._waits_since_s is None:
            self._waits_since_s = now_s
        last = self._marks[-1] if self._marks else None
        if last is not None and complete <= last[0]:
            return
        if last is None or (now_s - last[1] >= _MARK_S and len(self._marks) < MARKS_MAX):
            self._marks.append((complete, now_s))
        else:
            # Between two marks the earlier time counts: the lag is rather too large than too small.
            self._marks[-1] = (complete, last[1])
