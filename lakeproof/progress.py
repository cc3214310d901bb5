"""The progress of a work on several tables, as an event now and then: tables done, rows, and the time left."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeproof.events import Event, Report, counted


@dataclass(frozen=True, slots=True)
class Work:
    """A work on `tables` tables: `kind` of its events, `name` for people, `fields` for each event."""

    kind: str
    name: str
    tables: int
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Share:
    """The part of a longer work that a work is, in any unit that goes with the time: `units` of `whole`, after `before`.

    `seconds_before`: what those before have taken. `least`: the fraction that was shown last: the whole may turn out to be
    more than it seemed.
    """

    units: float
    before: float = 0.0
    whole: float = 0.0
    seconds_before: float = 0.0
    least: float = 0.0


# With less done, the time left would be a guess; the first tables are slower than the others.
_ESTIMATED_FROM = 0.05


class Progress:
    """Counts the tables of a work that are done, from any thread."""

    def __init__(
        self, report: Report, work: Work, share: Share | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._work, self._clock = report, work, clock
        self._share = share or Share(float(work.tables))
        self._began = clock() - self._share.seconds_before
        self._lock = threading.Lock()
        self._done = 0
        self._rows = 0
        self._units = 0.0

    def begin(self) -> None:
        """Report that nothing is done yet."""
        self._emit(0, 0, 0.0)

    def done(self, rows: int, units: float = 1.0) -> None:
        """Count one more table, with its rows, and what it is of the work."""
        with self._lock:
            self._done += 1
            self._rows += rows
            self._units += units
            done, all_rows, all_units = self._done, self._rows, self._units
        self._emit(done, all_rows, all_units)

    def _emit(self, done: int, rows: int, units: float) -> None:
        share, total = self._share, self._work.tables
        is_over = done == total
        so_far = share.before + (share.units if is_over else min(units, share.units))
        whole = max(share.whole, share.before + share.units)
        fraction = min(1.0, so_far / whole) if whole else 1.0
        seconds = self._clock() - self._began
        left = seconds * (1 - fraction) / fraction if _ESTIMATED_FROM <= fraction < 1 else None
        message = f"{self._work.name}: {done:,} of {counted(total, 'table')}, {counted(rows, 'row')}"
        message += "" if left is None else f", about {left:,.0f} s left"
        fields = {
            "tables": total,
            "tables_done": done,
            "rows": rows,
            "fraction": round(max(share.least, fraction), 4),
            "seconds": round(seconds, 1),
            "seconds_left": None if left is None else round(left, 1),
        }
        self._report(Event(self._work.kind, message, {**self._work.fields, **fields}))
