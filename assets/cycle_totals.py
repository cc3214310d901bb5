"""Sums of cycles: what they did to each table, and which tables of a long run are due for an event.

Making an event of a sum does not belong here (`cycle_metadata.py`), nor running cycles.
"""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from assets.support.event_budget import EventBudget
from lakeproof.names import TableName

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport


# A table has an event of history and one of current.
EVENTS = 2


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The sum of a run's `cycles` that wrote a table.

    `rows` is the table's row count in the version `version` of current, if known; `schema_changes` describes each schema
    change, or why it was not applied; `features` are those of Delta's that its readers need since, each with its reason.
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    version: int | None = None
    schema_changes: tuple[str, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)

    def followed_by(self, later: TableTotals) -> TableTotals:
        """Return the sum of both; what only the newest cycle knows is the later one's."""
        newest = later if later.cycles else self
        return TableTotals(
            cycles=self.cycles + later.cycles,
            changes=self.changes + later.changes,
            inserted=self.inserted + later.inserted,
            deleted=self.deleted + later.deleted,
            rows=newest.rows,
            version=newest.version,
            schema_changes=self.schema_changes + later.schema_changes,
            features={**self.features, **later.features},
        )


def totals(cuts: Sequence[CutReport]) -> dict[TableName, TableTotals]:
    """Return the sum of each table that the cuts wrote, or whose schema they changed."""
    sums: dict[TableName, TableTotals] = {}
    for cut in cuts:
        for table in {*cut.tables, *cut.schema_changes}:
            done, change = TableTotals(), cut.schema_changes.get(table)
            if table in cut.tables:
                part = cut.tables[table]
                done = TableTotals(
                    1, part.changes, part.inserted, part.deleted, part.rows, part.current_version, (), part.features
                )
            if change is not None:
                done = replace(done, schema_changes=(change,))
            sums[table] = sums[table].followed_by(done) if table in sums else done
    return sums


class CutThrottle:
    """The cycles of a long run that no event has reported yet; its methods may be called from different threads.

    A table is due at its first cycle, when its last event is `every_s` seconds old, and when its schema has changed; if more
    are due than `budget` has events for, those wait longer whose last event is younger. Memory is bounded by the number of
    tables.
    """

    def __init__(self, every_s: float, budget: EventBudget) -> None:
        self._every_s = every_s
        self._budget = budget
        self._waiting: dict[str, dict[TableName, TableTotals]] = {}
        self._last_event_s: dict[tuple[str, TableName], float] = {}
        self._lock = threading.Lock()

    def is_waiting(self, source: str, table: TableName) -> bool:
        """Return True if a table has cycles that no event has reported."""
        with self._lock:
            return table in self._waiting.get(source, ())

    def add(self, source: str, ended: Sequence[CutReport], tables: Container[TableName]) -> None:
        """Add the cycles of a source that have just ended, as far as they are of these tables."""
        with self._lock:
            waiting = self._waiting.setdefault(source, {})
            for table, later in totals(ended).items():
                if table in tables:
                    waiting[table] = waiting[table].followed_by(later) if table in waiting else later

    def is_due(self, source: str, now_s: float) -> bool:
        """Return True if a table of a source may have an event now."""
        with self._lock:
            due = self._due(source, now_s)
            can_pay = self._budget.has(EVENTS, now_s)
            return bool(due) and (can_pay or any(self._waiting[source][table].schema_changes for table in due))

    def take_due(self, source: str, now_s: float) -> dict[TableName, TableTotals]:
        """Return what is due of a source, and count it as reported; `now_s` comes from a monotonic clock."""
        with self._lock:
            due = sorted(self._due(source, now_s), key=lambda t: self._last_event_s.get((source, t), float("-inf")))
            waiting = self._waiting.get(source, {})
            paid = [t for t in due if self._budget.spend(EVENTS, now_s, must=bool(waiting[t].schema_changes))]
            return self._take(source, paid, now_s)

    def take_all(self, source: str, now_s: float) -> dict[TableName, TableTotals]:
        """Return all of a source that no event has reported, at the end of a run."""
        with self._lock:
            return self._take(source, list(self._waiting.get(source, ())), now_s)

    def _due(self, source: str, now_s: float) -> list[TableName]:
        return [
            table
            for table, done in self._waiting.get(source, {}).items()
            if done.schema_changes or now_s - self._last_event_s.get((source, table), float("-inf")) >= self._every_s
        ]

    def _take(self, source: str, tables: Sequence[TableName], now_s: float) -> dict[TableName, TableTotals]:
        self._last_event_s.update(((source, table), now_s) for table in tables)
        return {table: self._waiting[source].pop(table) for table in tables}
