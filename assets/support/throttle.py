"""Adds up what a drain's flushes bring to each table, and says which tables are due for an event.

Pure but for its lock: the clocks are arguments. A flush comes every second or so, an event costs 1.5 to 8.7 KB for ever and
the plots show the last hundred, so the two have different cadences.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from lakeproof.drain.counts import Counts, Flush
from lakeproof.lsn import Lsn
from lakeproof.names import TableName


@dataclass(frozen=True, slots=True)
class Stretch:
    """One table's changes over the flushes of (start, end].

    `transactions` are those of the whole source in that range; commit times are microseconds since 1970 UTC. `lag_s` is the
    time from the newest commit of the newest flush until that flush was durable, `lag_s_max` the greatest of any flush.
    `urgent` says that the table was truncated or changed its shape.
    """

    start_lsn: Lsn
    end_lsn: Lsn
    counts: Counts
    transactions: int = 0
    first_commit_us: int | None = None
    last_commit_us: int | None = None
    lag_s: float | None = None
    lag_s_max: float | None = None
    urgent: bool = False

    def followed_by(self, later: Stretch) -> Stretch:
        """The two as one."""
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


class Tally:
    """What has been flushed and not yet told. `add` and the others may be called from different threads.

    A table is due when its last event is `every_s` seconds old, at its first change, and when a change is urgent. Bounded by
    the number of tables, however long nobody asks.
    """

    def __init__(self, every_s: float, clock: Callable[[], float] = time.time) -> None:
        self._every_s = every_s
        self._clock = clock
        self._waiting: dict[TableName, Stretch] = {}
        self._told: dict[TableName, float] = {}
        self._lock = threading.Lock()

    def add(self, flush: Flush) -> None:
        """Note one flush, which has just become durable."""
        reshaped = {version.table for version in flush.schemas}
        # Two machines' clocks: a commit of the future has no lag.
        lag_s = None if flush.last_commit_us is None else max(0.0, self._clock() - flush.last_commit_us / 1e6)
        with self._lock:
            for table, counts in flush.tables.items():
                stretch = Stretch(
                    start_lsn=flush.start_lsn,
                    end_lsn=flush.end_lsn,
                    counts=counts,
                    transactions=flush.transactions,
                    first_commit_us=flush.first_commit_us,
                    last_commit_us=flush.last_commit_us,
                    lag_s=lag_s,
                    lag_s_max=lag_s,
                    urgent=counts.truncates > 0 or table in reshaped,
                )
                before = self._waiting.get(table)
                self._waiting[table] = before.followed_by(stretch) if before else stretch

    def take_due(self, now_s: float) -> dict[TableName, Stretch]:
        """What is due, which counts as told from now on; `now_s` is a steady clock's."""
        with self._lock:
            due = {table: stretch for table, stretch in self._waiting.items() if self._is_due(table, stretch, now_s)}
            return self._take(due, now_s)

    def take_all(self, now_s: float) -> dict[TableName, Stretch]:
        """Whatever has not been told, at the end of a run."""
        with self._lock:
            return self._take(dict(self._waiting), now_s)

    def _is_due(self, table: TableName, stretch: Stretch, now_s: float) -> bool:
        told = self._told.get(table)
        return told is None or stretch.urgent or now_s - told >= self._every_s

    def _take(self, tables: dict[TableName, Stretch], now_s: float) -> dict[TableName, Stretch]:
        for table in tables:
            del self._waiting[table]
            self._told[table] = now_s
        return tables
