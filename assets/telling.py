"""Where the engine's events go in a Dagster run: the process's log, and now and then the run's own.

A line in the run's log is a row in Dagster's database, so only a few may go there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from wal2delta.report import Event, Report

_log = logging.getLogger("wal2delta.dagster")

# A run of ten hours then has at most some 7,000 lines for each kind of event.
QUIET_S = 5.0


def to_process_log(event: Event) -> None:
    """A `Report` for the drain: captured as the run's stdout/stderr, never a row in the database."""
    _log.info("%s %s", event.kind, event.message)


def to_run_log(info: Callable[[str], Any], clock: Callable[[], float] = time.monotonic) -> Report:
    """A `Report` that gives `info` at most one line in `QUIET_S` seconds per kind of event, from any thread."""
    last: dict[str, float] = {}
    lock = threading.Lock()

    def report(event: Event) -> None:
        to_process_log(event)
        with lock:
            now = clock()
            if now - last.get(event.kind, float("-inf")) < QUIET_S:
                return
            last[event.kind] = now
        info(event.message)

    return report
