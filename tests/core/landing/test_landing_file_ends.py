"""A segment's files are finished several at a time, and never more; their order, and the first error, are kept."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from lakeproof.landing.segments.file_ends import FileEnds

FILES, AT_ONCE = 20, 4


class Together:
    """Tasks that wait until so many run at the same moment; `most` is how many ever did."""

    def __init__(self, number: int) -> None:
        self.barrier = threading.Barrier(number)
        self.lock = threading.Lock()
        self.running = self.most = 0

    def task(self, number: int) -> Callable[[], int]:
        """A task that returns its number."""

        def run() -> int:
            with self.lock:
                self.running += 1
                self.most = max(self.most, self.running)
            self.barrier.wait(30)
            with self.lock:
                self.running -= 1
            return number

        return run


def test_files_are_finished_together_and_keep_their_order() -> None:
    """With one at a time the first would wait for ever; more than the limit never run."""
    ends, together = FileEnds[int](AT_ONCE), Together(AT_ONCE)
    for number in range(FILES):
        ends.submit(together.task(number))
    assert ends.results() == list(range(FILES))
    assert together.most <= AT_ONCE


def test_an_error_comes_out_and_abandoning_waits_for_what_runs() -> None:
    """At the end at the latest; afterwards no thread is left that could still write."""

    def fail() -> int:
        raise OSError("the disk is full")

    ends, running = FileEnds[int](AT_ONCE), threading.Event()
    ends.submit(fail)
    ends.submit(lambda: int(running.wait(30)))
    with pytest.raises(OSError, match="the disk is full"):
        ends.results()
    running.set()
    ends.abandon()
    ends.abandon()
    assert not any(thread.name.startswith("lakeproof-file") for thread in threading.enumerate())
