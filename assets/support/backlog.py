"""Events that wait until a drain has its slot, and are then written a while at a time, so that its run can do other things.

A source of hundreds of tables has hundreds of them, and an event takes Dagster's database milliseconds. Which events these
are does not belong here (`first_events.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import dagster as dg

from lakeproof.events import Event, Report
from lakeproof.lsn import Lsn

_WHILE_S = 0.5


class Backlog:
    """Events that are due from `begin` on, which any thread may call; `is_written` is for the thread of the run.

    `events` returns them, given the position at which the drain began.
    """

    def __init__(self, events: Callable[[Lsn], Iterator[dg.AssetMaterialization]]) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._due: Iterator[dg.AssetMaterialization] | None = None
        self._is_empty = False

    def begin(self, position: Lsn) -> None:
        """Let the events be written from now on; only the first call counts."""
        with self._lock:
            if self._due is None:
                self._due = self._events(position)

    def heard(self, report: Report) -> Report:
        """Return a `Report` that begins as soon as the drain has its slot."""

        def hear(event: Event) -> None:
            if event.kind == "drain.start":
                self.begin(Lsn.parse(str(event.fields["start_lsn"])))
            report(event)

        return hear

    def is_written(self, log_event: Callable[[dg.AssetMaterialization], object], seconds: float = _WHILE_S) -> bool:
        """Write events for some seconds; True if none is left."""
        if self._is_empty or self._due is None:
            return self._is_empty
        until_s = time.monotonic() + seconds
        for event in self._due:
            log_event(event)
            if time.monotonic() >= until_s:
                return False
        self._is_empty = True
        return True
