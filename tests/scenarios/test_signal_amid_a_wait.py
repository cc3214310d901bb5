"""A signal that comes while its thread begins or ends a wait: the command hears it, and stood still for ever before.

The handler runs between two lines of what it interrupts. It set an Event whose lock that thread held in `wait`.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from lakeproof.events import Stop

_LINES_MAX = 60


def _interrupted(work: Callable[[], object], line: int, handle: Callable[[], None]) -> bool:
    """Do `work` in a thread that calls `handle` before the given line of it; True if that line was reached."""
    seen = 0

    def trace(_frame: FrameType, event: str, _value: object) -> Any:
        nonlocal seen
        seen += event == "line"
        if event == "line" and seen == line:
            sys.settrace(None)
            handle()
            return None
        return trace

    def run() -> None:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(90)
    assert not thread.is_alive(), f"interrupted before line {line} of its work, it stands still"
    return seen >= line


@pytest.mark.parametrize("work", [lambda stop: stop.wait(0.01), Stop.request], ids=["wait", "request"])
def test_a_request_amid_any_line_is_heard(work: Callable[[Stop], object]) -> None:
    """A wait ends, and so does a request that a second one interrupts."""
    for line in range(1, _LINES_MAX):
        stop = Stop()
        if not _interrupted(partial(work, stop), line, stop.request):
            break
        assert stop.requested
        assert stop.wait(0)
    assert 1 < line < _LINES_MAX


def test_one_request_ends_every_wait() -> None:
    """Those that wait already, and those that begin to."""
    stop, heard = Stop(), []
    threads = [threading.Thread(target=lambda: heard.append(stop.wait(90))) for _ in range(4)]
    for thread in threads:
        thread.start()
    stop.request()
    for thread in threads:
        thread.join(90)
    assert heard == [True] * 4
    assert stop.wait(60)
