"""How far a work of several tables is, as an event now and then: tables done, rows, and the time left.

How an event is shown, and how often, belongs to whoever is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from lakeproof.events import Event, Report


class Progress:
    """Tables done of `total`, from any thread; `kind` is the event's, `what` the work in a word or two.

    `of_all` says which part of a longer work this is: where it begins and ends, between 0 and 1. `seconds_before` were spent
    on what came before it.
    """

    def __init__(
        self,
        report: Report,
        kind: str,
        what: str,
        total: int,
        *,
        of_all: tuple[float, float] = (0.0, 1.0),
        seconds_before: float = 0.0,
        fields: dict[str, Any] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report, self._kind, self._what, self._total = report, kind, what, total
        self._of_all, self._fields, self._clock = of_all, fields or {}, clock
        self._began = clock() - seconds_before
        self._lock = threading.Lock()
        self._done = 0
        self._rows = 0

    def begin(self) -> None:
        """Tell that nothing is done yet."""
        self._tell(0, 0)

    def done(self, rows: int) -> None:
        """One table more."""
        with self._lock:
            self._done += 1
            self._rows += rows
            done, all_rows = self._done, self._rows
        self._tell(done, all_rows)

    def _tell(self, done: int, rows: int) -> None:
        first, last = self._of_all
        fraction = first + (last - first) * (done / self._total if self._total else 1.0)
        seconds = self._clock() - self._began
        left = seconds * (1 - fraction) / fraction if fraction else None
        message = f"{self._what}: {done:,} of {self._total:,} tables, {rows:,} rows"
        message += "" if left is None else f", about {left:,.0f} s left"
        told = {
            "tables": self._total,
            "tables_done": done,
            "rows": rows,
            "fraction": round(fraction, 4),
            "seconds": round(seconds, 1),
            "seconds_left": None if left is None else round(left, 1),
        }
        self._report(Event(self._kind, message, {**self._fields, **told}))
