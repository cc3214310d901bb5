"""Bounds the events of a long run, whatever the number of its tables: each table once, and then one event a second.

Choosing the tables does not belong here (`throttle.py`, `assets.cycle_totals`). An event costs Dagster 1.5 to 8.7 KB for
ever: 200 tables with an event a minute each would be half a million events a day.
"""

from __future__ import annotations

import threading

# On average over a run; a source with 30 tables has an event of each of them every minute.
EVENTS_PER_S = 1.0


class EventBudget:
    """The events that a run may write now; its methods may be called from different threads.

    `burst` events come at once, as many as a run has tables: a person sees each soon after the run has begun. What is spent
    comes back at EVENTS_PER_S.
    """

    def __init__(self, burst: int, now_s: float) -> None:
        self._burst = self._left = float(burst)
        self._at_s = now_s
        self._lock = threading.Lock()

    def spend(self, events: int, now_s: float, *, must: bool = False) -> bool:
        """Return True if so many events may be written now, and count them; those that `must` be always are."""
        with self._lock:
            self._come_back(now_s)
            if self._left < events and not must:
                return False
            self._left -= events
            return True

    def has(self, events: int, now_s: float) -> bool:
        """Return True if so many events may be written now."""
        with self._lock:
            self._come_back(now_s)
            return self._left >= events

    def _come_back(self, now_s: float) -> None:
        self._left = min(self._burst, self._left + (now_s - self._at_s) * EVENTS_PER_S)
        self._at_s = now_s
