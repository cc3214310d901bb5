"""A limit on how fast all copying threads together read from the source.

A client that stops reading fills the connection's buffers, and then the server waits: so a pause here slows the server down
too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_SLICE_S = 0.5


class RateLimiter:
    """At most `bytes_per_s` on average over all threads; no limit if that is 0."""

    def __init__(
        self,
        bytes_per_s: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        # The time at which everything read so far is within the limit.
        self._free_at = clock()

    def acquire(self, size: int, give_up: Callable[[], bool]) -> None:
        """Wait until `size` more bytes are within the limit, or `give_up()` turns true."""
        if not self._bytes_per_s:
            return
        with self._lock:
            # Time in which nobody read is not saved up.
            self._free_at = max(self._free_at, self._clock()) + size / self._bytes_per_s
            until = self._free_at
        while (left := until - self._clock()) > 0 and not give_up():
            self._sleep(min(left, _SLICE_S))
