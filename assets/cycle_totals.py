"""Sums of cycles: what they did to each table, and which tables of a long run are due for an event.

Making an event of a sum does not belong here (`current.py`), nor running cycles.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from assets.support.event_budget import EventBudget
from lakeproof.names import CycleNumber, TableName

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport


# A table has an event of history and one of current.
EVENTS = 2


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The sum of a run's `cycles` that wrote a table.

    `rows` is the table's row count, if known; `schema_changes` describes each schema change, or why it was not applied;
    `features` are those of Delta's that its readers need since, each with its reason.

    The cycles are among the cuts from `first_cut` to `last_cut`, both 0 if no event is due to any. `others`: some were of
    processes that report nothing here. Of these `changes` alone is known, and it not always (`uncounted`).
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    schema_changes: tuple[str, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)
    first_cut: int = 0
    last_cut: int = 0
    others: bool = False
    uncounted: bool = False

    def followed_by(self, later: TableTotals) -> TableTotals:
        """Return the sum of both; what only the newest cycle knows is the later one's."""
        return replace(
            later,
            cycles=self.cycles + later.cycles,
            changes=self.changes + later.changes,
            inserted=self.inserted + later.inserted,
            deleted=self.deleted + later.deleted,
            rows=later.rows if later.cycles else self.rows,
            schema_changes=self.schema_changes + later.schema_changes,
            features={**self.features, **later.features},
            first_cut=min(self.first_cut, later.first_cut) or max(self.first_cut, later.first_cut),
            last_cut=max(self.last_cut, later.last_cut),
            others=self.others or later.others,
            uncounted=self.uncounted or later.uncounted,
        )


def totals(cuts: Sequence[CutReport], table: TableName) -> TableTotals | None:
    """Return the sum over the cuts that wrote the table or changed its schema, None if no cut did."""
    numbers = [int(cut.number) for cut in cuts if table in cut.tables or table in cut.schema_changes]
    parts = [cut.tables[table] for cut in cuts if table in cut.tables]
    schema_changes = tuple(cut.schema_changes[table] for cut in cuts if table in cut.schema_changes)
    if not numbers:
        return None
    return TableTotals(
        cycles=len(parts),
        changes=sum(part.changes for part in parts),
        inserted=sum(part.inserted for part in parts),
        deleted=sum(part.deleted for part in parts),
        rows=parts[-1].rows if parts else None,
        schema_changes=schema_changes,
        features={name: reason for part in parts for name, reason in part.features.items()},
        first_cut=min(numbers),
        last_cut=max(numbers),
    )


class CutThrottle:
    """The cycles of a long run that no event has reported yet; its methods may be called from different threads.

    A table is due at its first cycle, when its last event is `every_s` seconds old, and when its schema has changed; if more
    are due than `budget` has events for, those wait longer whose last event is younger. Memory is bounded by the number of
    tables. `through` has the cut up to which each source's cycles have come here.
    """

    def __init__(self, every_s: float, through: Mapping[str, int], budget: EventBudget | None = None) -> None:
        self._every_s = every_s
        self._budget = budget
        self._through = dict(through)
        self._waiting: dict[str, dict[TableName, TableTotals]] = {}
        self._last_event_s: dict[tuple[str, TableName], float] = {}
        self._lock = threading.Lock()

    def through(self, source: str) -> int:
        """Return the cut up to which a source's cycles have been added, 0 before the first one."""
        with self._lock:
            return self._through.get(source, 0)

    def is_waiting(self, source: str, table: TableName) -> bool:
        """Return True if a table has cycles that no event has reported."""
        with self._lock:
            return table in self._waiting.get(source, ())

    def add(self, source: str, ended: Sequence[CutReport], tables: Container[TableName]) -> None:
        """Add the cycles of a source that have just ended, as far as they are of these tables."""
        changed = {table for cut in ended for table in (*cut.tables, *cut.schema_changes) if table in tables}
        self.add_totals(source, {table: totals(ended, table) or TableTotals() for table in changed}, ended[-1].number)

    def add_totals(self, source: str, done: Mapping[TableName, TableTotals], through: int) -> None:
        """Add what cycles up to the cut `through` have done."""
        with self._lock:
            waiting = self._waiting.setdefault(source, {})
            for table, later in done.items():
                before = waiting.get(table)
                waiting[table] = later if before is None else before.followed_by(later)
            self._through[source] = max(through, self._through.get(source, 0))

    def put_back(self, source: str, taken: Taken) -> None:
        """Have tables wait again whose events could not be made."""
        with self._lock:
            waiting = self._waiting.setdefault(source, {})
            for table, done in taken.tables.items():
                waiting[table] = done.followed_by(waiting[table]) if table in waiting else done

    def is_due(self, source: str, now_s: float) -> bool:
        """Return True if a table of a source may have an event now."""
        with self._lock:
            due = [d for table, d in self._waiting.get(source, {}).items() if self._is_due(source, table, d, now_s)]
            can_pay = self._budget is None or self._budget.has(EVENTS, now_s)
            return bool(due) and (can_pay or any(done.schema_changes for done in due))

    def take_due(self, source: str, now_s: float) -> Taken:
        """Return what is due of a source, and count it as reported; `now_s` comes from a monotonic clock."""
        with self._lock:
            waiting = self._waiting.get(source, {})
            due = [table for table, done in waiting.items() if self._is_due(source, table, done, now_s)]
            due.sort(key=lambda table: self._last_event_s.get((source, table), float("-inf")))
            return self._taken(source, [table for table in due if self._is_paid(waiting[table], now_s)], now_s)

    def take_all(self, source: str, now_s: float) -> Taken:
        """Return all of a source that no event has reported, at the end of a run."""
        with self._lock:
            return self._taken(source, list(self._waiting.get(source, ())), now_s)

    def _taken(self, source: str, tables: Sequence[TableName], now_s: float) -> Taken:
        self._last_event_s.update(((source, table), now_s) for table in tables)
        return Taken(
            {table: self._waiting[source].pop(table) for table in tables}, CycleNumber(self._through.get(source, 0))
        )

    def _is_due(self, source: str, table: TableName, waiting: TableTotals, now_s: float) -> bool:
        last = self._last_event_s.get((source, table))
        return last is None or bool(waiting.schema_changes) or now_s - last >= self._every_s

    def _is_paid(self, waiting: TableTotals, now_s: float) -> bool:
        return self._budget is None or self._budget.spend(EVENTS, now_s, must=bool(waiting.schema_changes))


@dataclass(frozen=True, slots=True)
class Taken:
    """What events are to report, and the cut through which they then have reported everything."""

    tables: Mapping[TableName, TableTotals]
    through: CycleNumber
