"""Finishes a segment's files, several at a time: a file's end is a wait for a disk or an object store.

A file's contents are in `row_file.py`, the files of a segment in `segment.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
# A store that takes 30 ms for each request then ends 200 files in a second, in place of 30.
AT_ONCE = 8


class FileEnds(Generic[T]):
    """Does tasks in threads of its own and keeps their results in the order of submission. One thread at a time uses it.

    At most `at_once` tasks are not done. After `abandon` none runs.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: deque[Future[T]] = deque()
        self._done: list[T] = []

    def submit(self, task: Callable[[], T]) -> None:
        """Hand over a task; waits for room. Raises the error of an earlier task."""
        self.wait(self._at_once - 1)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._at_once, thread_name_prefix="lakeproof-file")
        self._tasks.append(self._pool.submit(task))

    def wait(self, left: int = 0) -> None:
        """Wait until at most so many tasks are not done. Raises the error of a task."""
        while len(self._tasks) > left:
            self._done.append(self._tasks.popleft().result())

    def results(self) -> list[T]:
        """Wait for all tasks, end the threads, and return the results. Raises the error of a task."""
        self.wait()
        self.abandon()
        return self._done

    def abandon(self) -> None:
        """End the threads after their current tasks, and do no waiting task; may be called any number of times."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._tasks.clear()
