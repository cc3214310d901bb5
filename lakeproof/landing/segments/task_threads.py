"""Threads of a segment: one encodes, compresses and writes its rows, several finish its files, one makes it visible.

Arrow's Parquet writer, zstd, SHA-256 and the compiled loops run without the interpreter's lock, so a second thread shares a
machine's cores with the one that decodes; and a file's end is a wait for a disk or an object store. What is done is in
`row_file.py`; `segment.py` decides when.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class TaskThreads(Generic[T]):
    """Does tasks in threads of its own, which begin with the first one. One thread at a time calls its methods.

    At most `size_max` is handed over and not yet done, or one task that is larger. After a task's error none that waits is
    done: each has that error.
    """

    def __init__(self, name: str, threads: int, size_max: int) -> None:
        self._name = name
        self._threads = threads
        self._size_max = size_max
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: deque[tuple[Future[T], int]] = deque()
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._ended = False
        self.size = 0

    def submit(self, task: Callable[[], T], size: int = 1) -> None:
        """Hand over a task; waits for room. Raises the error of an earlier task."""
        if self._ended:
            self._results.append(task())
            return
        self.wait(max(0, self._size_max - size))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
        self._tasks.append((self._pool.submit(self._do, task), size))
        self.size += size

    def wait(self, left: int = 0) -> None:
        """Wait until no more than so much is in the threads' hands. Raises the error of a task."""
        while self._tasks and (self.size > left or self._tasks[0][0].done()):
            self._collect()

    def end(self) -> list[T]:
        """Wait for all tasks, end the threads, and return the results in the order of submission. Raises a task's error.

        Whoever submits a task afterwards does it.
        """
        self._ended = True
        while self._tasks:
            self._collect()
        self.abandon()
        return self._results

    def abandon(self) -> None:
        """End the threads after their current tasks; may be called at any time, any number of times."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._tasks.clear()
        self.size = 0

    def _collect(self) -> None:
        done, size = self._tasks.popleft()
        self.size -= size
        result = done.result()
        if result is not None:
            # A drain's threads do tasks without a result for weeks.
            self._results.append(result)

    def _do(self, task: Callable[[], T]) -> T:
        if self._error is not None:
            raise self._error
        try:
            return task()
        except BaseException as error:
            self._error = error
            raise
