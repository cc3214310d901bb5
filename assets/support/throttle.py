"""Adds up the changes that a drain's flushes bring to each table, and decides which tables are due for an event.

Pure except for its lock: the clocks are arguments. A flush comes every second or so, while an event costs 1.5 to 8.7 KB for
ever and the plots show the last hundred; so events come less often than flushes. Writing the events does not belong here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from assets.support.event_budget import EventBudget
from lakeproof.drain.counts import Flush, LandedCounts
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """One table's changes over the flushes of (start, end].

    `transactions` counts those of the whole source in that range; commit times are microseconds since 1970 UTC. `lag_s`
    is the time from the newest commit of the newest flush until that flush was durable, `lag_s_max` the maximum over
    all flushes. `urgent`: the table was truncated or its schema changed.
    """

    start_lsn: Lsn
    end_lsn: Lsn
    counts: LandedCounts
    transactions: int = 0
    first_commit_us: int | None = None
    last_commit_us: int | None = None
    lag_s: float | None = None
    lag_s_max: float | None = None
    urgent: bool = False

    def followed_by(self, later: ChangeSummary) -> ChangeSummary:
        """Return the sum of both ranges."""
        return replace(
            later,
            start_lsn=self.start_lsn,
            counts=self.counts + later.counts,
            transactions=self.transactions + later.transactions,
            first_commit_us=self.first_commit_us if self.first_commit_us is not None else later.first_commit_us,
            lag_s=self.lag_s if later.lag_s is None else later.lag_s,
            lag_s_max=max((s for s in (self.lag_s_max, later.lag_s_max) if s is not None), default=None),
            urgent=self.urgent or later.urgent,
        )


class EventThrottle:
    """Flushed changes that no event has reported yet. `add` and the other methods may be called from different threads.

    A table is due at its first change, when its last event is `every_s` seconds old, and when a change is urgent; if more
    are due than `budget` has events for, those wait longer whose last event is younger. Memory is bounded by the number of
    tables, however long nobody takes the summaries.
    """

    def __init__(
        self, every_s: float, clock: Callable[[], float] = time.time, budget: EventBudget | None = None
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        self._budget = budget
        self._waiting: dict[TableName, ChangeSummary] = {}
        self._last_event_s: dict[TableName, float] = {}
        self._lock = threading.Lock()

    def add(self, flush: Flush) -> None:
        """Add one flush, which has just become durable."""
        changed_schemas = {version.table for version in flush.schemas}
        # The clocks of two machines may differ: a commit in the future counts as no lag.
        lag_s = None if flush.last_commit_us is None else max(0.0, self._clock() - flush.last_commit_us / 1e6)
        with self._lock:
            for table, counts in flush.tables.items():
                summary = ChangeSummary(
                    start_lsn=flush.start_lsn,
                    end_lsn=flush.end_lsn,
                    counts=counts,
                    transactions=flush.transactions,
                    first_commit_us=flush.first_commit_us,
                    last_commit_us=flush.last_commit_us,
                    lag_s=lag_s,
                    lag_s_max=lag_s,
                    urgent=counts.truncates > 0 or table in changed_schemas,
                )
                before = self._waiting.get(table)
                self._waiting[table] = before.followed_by(summary) if before else summary

    def take_due(self, now_s: float) -> dict[TableName, ChangeSummary]:
        """Return the summaries that are due and count them as reported; `now_s` comes from a monotonic clock."""
        with self._lock:
            due = [table for table, summary in self._waiting.items() if self._is_due(table, summary, now_s)]
            due.sort(key=lambda table: self._last_event_s.get(table, float("-inf")))
            paid = [table for table in due if self._is_paid(self._waiting[table], now_s)]
            return self._take({table: self._waiting[table] for table in paid}, now_s)

    def is_waiting(self, table: TableName) -> bool:
        """Return True if a table has changes that no event has reported."""
        with self._lock:
            return table in self._waiting

    def take_all(self, now_s: float) -> dict[TableName, ChangeSummary]:
        """Return all summaries not reported yet, at the end of a run."""
        with self._lock:
            return self._take(dict(self._waiting), now_s)

    def _is_due(self, table: TableName, summary: ChangeSummary, now_s: float) -> bool:
        last = self._last_event_s.get(table)
        return last is None or summary.urgent or now_s - last >= self._every_s

    def _is_paid(self, summary: ChangeSummary, now_s: float) -> bool:
        return self._budget is None or self._budget.spend(1, now_s, must=summary.urgent)

    def _take(self, tables: dict[TableName, ChangeSummary], now_s: float) -> dict[TableName, ChangeSummary]:
        for table in tables:
            del self._waiting[table]
            self._last_event_s[table] = now_s
        return tables
