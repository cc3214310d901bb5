"""Sums of cycles: what they did to each table, and which tables of a long run are due for an event.

Making an event of a sum does not belong here (`current.py`), nor running cycles.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeproof.names import TableName

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The sum of a run's `cycles` that wrote a table.

    `rows` is the table's row count, if known; `schema_changes` describes each schema change, or why it was not applied;
    `fallback_reason` is why its changes were written to current with the slower MERGE, `not_linked` why Spark has read and
    written rows of landed files; `features` are those of Delta's that its readers need since, each with its reason.
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    schema_changes: tuple[str, ...] = ()
    fallback_reason: str | None = None
    not_linked: str | None = None
    features: Mapping[str, str] = field(default_factory=dict)

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
            fallback_reason=later.fallback_reason or self.fallback_reason,
            not_linked=later.not_linked or self.not_linked,
            features={**self.features, **later.features},
        )


def totals(cuts: Sequence[CutReport], table: TableName) -> TableTotals | None:
    """Return the sum over the cuts that wrote the table or changed its schema, None if no cut did."""
    parts = [cut.tables[table] for cut in cuts if table in cut.tables]
    schema_changes = tuple(cut.schema_changes[table] for cut in cuts if table in cut.schema_changes)
    if not parts and not schema_changes:
        return None
    return TableTotals(
        cycles=len(parts),
        changes=sum(part.changes for part in parts),
        inserted=sum(part.inserted for part in parts),
        deleted=sum(part.deleted for part in parts),
        rows=parts[-1].rows if parts else None,
        schema_changes=schema_changes,
        fallback_reason=_newest(part.fallback_reason for part in parts),
        not_linked=_newest(part.not_linked for part in parts),
        features={name: reason for part in parts for name, reason in part.features.items()},
    )


def _newest(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reversed([*reasons]) if reason is not None), None)


class CutThrottle:
    """The cycles of a long run that no event has reported yet; its methods may be called from different threads.

    A table is due at its first cycle, when its last event is `every_s` seconds old, and when its schema has changed. Memory
    is bounded by the number of tables.
    """

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._waiting: dict[tuple[str, TableName], TableTotals] = {}
        self._last_event_s: dict[tuple[str, TableName], float] = {}
        self._lock = threading.Lock()

    def add(self, cuts: Mapping[str, Sequence[CutReport]]) -> None:
        """Add the cycles of each source that have just ended."""
        with self._lock:
            for source, ended in cuts.items():
                changed = {table for cut in ended for table in (*cut.tables, *cut.schema_changes)}
                for table in changed:
                    later = totals(ended, table) or TableTotals()
                    before = self._waiting.get((source, table))
                    self._waiting[source, table] = later if before is None else before.followed_by(later)

    def take_due(self, now_s: float) -> dict[tuple[str, TableName], TableTotals]:
        """Return what is due, by source and table, and count it as reported; `now_s` comes from a monotonic clock."""
        with self._lock:
            return dict(self._taken(now_s, everything=False))

    def take_all(self, now_s: float) -> dict[tuple[str, TableName], TableTotals]:
        """Return all that no event has reported, at the end of a run."""
        with self._lock:
            return dict(self._taken(now_s, everything=True))

    def _taken(self, now_s: float, *, everything: bool) -> Iterator[tuple[tuple[str, TableName], TableTotals]]:
        for key, waiting in list(self._waiting.items()):
            last = self._last_event_s.get(key)
            if everything or last is None or waiting.schema_changes or now_s - last >= self._every_s:
                del self._waiting[key]
                self._last_event_s[key] = now_s
                yield key, waiting
