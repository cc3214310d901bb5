"""A second thread that encodes, compresses and writes a segment's rows while the next ones are decoded.

The files are in `row_file.py`; `segment.py` decides when a row group is full.

Arrow's Parquet writer, zstd, SHA-256 and the compiled loops run without the interpreter's lock, so the two threads share a
machine's cores. The thread begins with the first task and ends with the segment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class WriterThread:
    """Does tasks one after the other, in the order of their submission. One thread at a time calls its methods.

    At most `bytes_max` are handed over and not yet written, or one task that has more. After a task's error no other task
    is done.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._pool: ThreadPoolExecutor | None = None
        self._tasks: deque[tuple[Future[None], int]] = deque()
        self._failed = False
        self._ended = False
        self.bytes = 0

    def submit(self, task: Callable[[], None], size: int) -> None:
        """Hand over a task that holds `size` bytes; waits for room. Raises the error of an earlier task."""
        if self._ended:
            task()
            return
        self.wait(max(0, self._bytes_max - size))
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="lakeproof-segment")
        self._tasks.append((self._pool.submit(self._do, task), size))
        self.bytes += size

    def wait(self, bytes_left: int = 0) -> None:
        """Wait until at most so many bytes are in the thread's hands. Raises the error of a task."""
        while self._tasks and (self.bytes > bytes_left or self._tasks[0][0].done()):
            done, size = self._tasks.popleft()
            self.bytes -= size
            done.result()

    def end(self) -> None:
        """Wait for all tasks and end the thread; whoever submits a task then does it. Raises the error of a task."""
        self._ended = True
        while self._tasks:
            self._tasks.popleft()[0].result()
        self.abandon()

    def abandon(self) -> None:
        """End the thread after its current task, and do no waiting task; may be called at any time, any number of times."""
        self._failed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._tasks.clear()
        self.bytes = 0

    def _do(self, task: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            task()
        except BaseException:
            self._failed = True
            raise
