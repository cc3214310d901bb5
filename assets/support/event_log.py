"""Writes the engine's events in a Dagster run to the process's stderr, and the few that matter to the run's own log.

A line in the run's log is a row in Dagster's database, so their number is bounded. The texts of events do not belong here:
the engine writes them.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable

import dagster as dg

from lakeproof.events import FOLLOWED_CUTS, FOLLOWED_VIEWS, Event, Report, silent

# The fields of an event that Dagster shows as they are.
_PLAIN = (bool, int, float, str, list, dict)
# A run's log takes this many lines of each kind of event (progress aside), and then one every QUIET_S seconds.
FREE_LINES = 200
# A run of ten hours then has at most some 7,000 lines of each kind.
QUIET_S = 5.0
# Progress events come at short intervals by nature.
_PROGRESS = ".progress"
# As many as the run lives seconds, or quarters of a minute; the asset's events have the same numbers.
_PROCESS_ONLY = frozenset({"drain.flush", "drain.rates", FOLLOWED_CUTS, FOLLOWED_VIEWS})


class _Stderr(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10 has it without parameters
    """Writes to the current stderr: Dagster replaces it during a step, and restores it afterwards."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.stream = sys.stderr
        super().emit(record)


def to_process_log(event: Event) -> None:
    """Write an event to the process's stderr, which Dagster keeps with the run."""
    logger = logging.getLogger("lakeproof.dagster")
    if not logger.handlers:
        # Without a handler of its own, Dagster's processes would show nothing.
        handler = _Stderr()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    logger.info("%s %s", event.kind, event.message)


def to_run_page(context: dg.OpExecutionContext) -> Report:
    """Return a `Report` that shows each event with its fields in the run's log; for runs that a person watches.

    A line of `context.log` has no fields. Dagster's own engine events have, and none of its public ones without an asset.
    """
    # Its place is Dagster's own affair: a location loads without it.
    from dagster._core.events import EngineEventData

    lock = threading.Lock()

    def show(event: Event) -> None:
        fields = {name: value if isinstance(value, _PLAIN) else str(value) for name, value in event.fields.items()}
        data = EngineEventData({"kind": event.kind, **fields})
        with lock:
            context.instance.report_engine_event(event.message, context.run, data, step_key=str(context.op_handle))

    return _bounded(show)


def to_run_log(
    info: Callable[[str], object], hear: Report = silent, clock: Callable[[], float] = time.monotonic
) -> Report:
    """Return a `Report` that also passes to `info` what belongs in the run's log; it may be called from any thread.

    Progress passes at most once every QUIET_S seconds; every other kind passes in full up to FREE_LINES lines. `hear` gets
    every event, before it is logged.
    """
    log = _bounded(lambda event: info(event.message), clock)

    def report(event: Event) -> None:
        hear(event)
        log(event)

    return report


def _bounded(show: Callable[[Event], object], clock: Callable[[], float] = time.monotonic) -> Report:
    last: dict[str, float] = {}
    lines: Counter[str] = Counter()
    lock = threading.Lock()

    def report(event: Event) -> None:
        to_process_log(event)
        if event.kind in _PROCESS_ONLY:
            return
        with lock:
            now = clock()
            is_limited = event.kind.endswith(_PROGRESS) or lines[event.kind] >= FREE_LINES
            if is_limited and now - last.get(event.kind, float("-inf")) < QUIET_S:
                return
            last[event.kind] = now
            lines[event.kind] += 1
        show(event)

    return report
