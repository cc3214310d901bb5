"""The pace of events: how old an asset's newest event may be, and how many a long run writes.

Other modules choose the events and write them; the policies themselves are Dagster's, and `assets.catalog` puts them on the
specs. Everything but its locks is pure: the clocks are arguments.

An event costs Dagster 1.5 to 8.7 KB for ever, and the plots show the last hundred, while a drain flushes every second: 200
tables with an event a minute each would be half a million events a day. So a run writes one for each table, and then one a
second, whatever the number of tables. A table without changes has one from time to time, or nobody could tell a quiet table
from work that stands still.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Generic, TypeVar

import dagster as dg

from assets.support.keys import Layer
from lakeproof.config.model import Config, SourceConfig
from lakeproof.names import TableName

_HOUR_S = 3600.0
_EVENTS_S = 3 * _HOUR_S
_PROOF_S = {"hourly": 26 * _HOUR_S, "daily": 72 * _HOUR_S, "off": 0.0}
# Four runs of the slot's schedule.
SLOT_S = _HOUR_S
# Dagster's policies know no shorter window.
_WINDOW_MIN_S = 60.0
# An asset without changes has this many events within its window.
_EVENTS_PER_WINDOW = 3
# Between two looks if quiet things are up to date: each asks a server or reads a lake.
_PAUSE_S = 30.0
# On average over a run; a source with 30 tables has an event of each of them every minute.
EVENTS_PER_S = 1.0
_NEVER_S = float("-inf")

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def window_s(config: Config, source: SourceConfig, table: TableName, layer: Layer) -> float:
    """Return the greatest age of a table's newest event in a layer, in seconds; 0 if it may have any age."""
    own, common = source.table_config(table).freshness, source.freshness
    if layer is Layer.CHANGES:
        windows = (own.changes_s, common.changes_s, _EVENTS_S)
    elif layer is Layer.CURRENT:
        is_continuous = source.compaction.mode == "continuous"
        windows = (own.current_s, common.current_s, _EVENTS_S if is_continuous else 0.0)
    elif layer is Layer.PROOF:
        windows = (own.proof_s, common.proof_s, _PROOF_S[config.proof_interval])
    else:
        return 0.0
    return next(window for window in windows if window is not None)


@lru_cache(maxsize=64)
def policy(seconds: float) -> dg.FreshnessPolicy | None:
    """Return the policy of a window: half of it is a warning; None for 0."""
    if not seconds:
        return None
    fail = max(seconds, 2 * _WINDOW_MIN_S)
    return dg.FreshnessPolicy.time_window(fail_window=timedelta(seconds=fail), warn_window=timedelta(seconds=fail / 2))


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
            self._left = min(self._burst, self._left + (now_s - self._at_s) * EVENTS_PER_S)
            self._at_s = now_s
            if self._left < events and not must:
                return False
            self._left -= events
            return True


class Throttle(Generic[K, V]):
    """The events that a long run owes, of what it has done and of what is quiet; different threads may call its methods.

    A key is due at its first change, when its last event is `every_s` seconds old, and when a change `is_urgent`; if more
    are due than `budget` has events for, `events` for each, those wait longer whose last event is younger. `add_up` returns
    the sum of a change and a later one, so memory is bounded by the number of keys, however long nobody takes them.

    A key is quiet if it has no such change, and had no event for a third of its window of `windows_s`.
    """

    def __init__(
        self,
        every_s: float,
        add_up: Callable[[V, V], V],
        is_urgent: Callable[[V], bool] = lambda _: False,
        *,
        budget: EventBudget | None = None,
        events: int = 1,
        windows_s: Mapping[K, float] | None = None,
    ) -> None:
        self._every_s, self._add_up, self._is_urgent = every_s, add_up, is_urgent
        self._budget, self._events = budget, events
        self._quiet_s = {key: window / _EVENTS_PER_WINDOW for key, window in (windows_s or {}).items() if window}
        self._last_beat_s = dict.fromkeys(self._quiet_s, _NEVER_S)
        self._looked_s = _NEVER_S
        self._waiting: dict[K, V] = {}
        self._last_event_s: dict[K, float] = {}
        self._lock = threading.Lock()

    def add(self, changes: Mapping[K, V]) -> None:
        """Add what has just been done."""
        with self._lock:
            for key, change in changes.items():
                self._waiting[key] = self._add_up(self._waiting[key], change) if key in self._waiting else change

    def take_due(self, now_s: float) -> dict[K, V]:
        """Return the changes that are due and count them as reported; `now_s` comes from a monotonic clock."""
        with self._lock:
            last_s = {key: self._last_event_s.get(key, _NEVER_S) for key in self._waiting}
            urgent = {key for key, change in self._waiting.items() if self._is_urgent(change)}
            due = [key for key, at_s in last_s.items() if key in urgent or now_s - at_s >= self._every_s]
            due.sort(key=last_s.__getitem__)
            if self._budget is not None:
                due = [key for key in due if self._budget.spend(self._events, now_s, must=key in urgent)]
            return self._take(due, now_s)

    def take_all(self, now_s: float) -> dict[K, V]:
        """Return all changes not reported yet, at the end of a run."""
        with self._lock:
            return self._take(list(self._waiting), now_s)

    def quiet(self, now_s: float) -> list[K]:
        """Return the quiet keys, if it is time to look if they are up to date."""
        with self._lock:
            last_s = {key: at_s for key, at_s in self._last_beat_s.items() if key not in self._waiting}
            due = [key for key, at_s in last_s.items() if now_s - at_s >= self._quiet_s[key]]
            if not due or now_s - self._looked_s < _PAUSE_S:
                return []
            self._looked_s = now_s
            return due

    def beat(self, keys: Iterable[K], now_s: float) -> None:
        """Note that these have had an event, of changes or without."""
        with self._lock:
            self._last_beat_s.update((key, now_s) for key in keys if key in self._quiet_s)

    def _take(self, keys: Iterable[K], now_s: float) -> dict[K, V]:
        taken = {key: self._waiting.pop(key) for key in keys}
        self._last_event_s.update(dict.fromkeys(taken, now_s))
        return taken
