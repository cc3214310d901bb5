"""Reports progress of large transactions while they are received and decoded, before anything of them is durable.

`transactions/buffer.py` receives them, and `flush.py` decodes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lakeproof.events import Event, Report

INTERVAL_S = 1.0
# A smaller transaction is over before anybody wonders what is going on.
LARGE_BYTES = 16 * 1024 * 1024


class LargeProgress:
    """Reports events of one source, at most one every `INTERVAL_S` seconds."""

    def __init__(self, report: Report, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._source, self._clock = report, source, clock
        self._reported_at = clock()
        self._begun: tuple[int, float] | None = None

    @property
    def is_due(self) -> bool:
        """True if the last event is old enough."""
        return self._clock() - self._reported_at >= INTERVAL_S

    def report(self, received: int, decoding: tuple[int, int] | None) -> None:
        """Report `received` bytes of unfinished transactions, and of the one being decoded: bytes done, bytes in all."""
        now = self._reported_at = self._clock()
        if decoding is not None and decoding[1] >= LARGE_BYTES:
            done, size = decoding
            if self._begun is None or self._begun[0] != size:
                self._begun = size, now
            seconds = now - self._begun[1]
            left = f", about {seconds * (size - done) / done:,.0f} s left" if done and seconds else ""
            message = f"a transaction of {size / 1e6:,.1f} MB: {done / 1e6:,.1f} MB decoded{left}"
            fields = {"bytes": size, "decoded_bytes": done, "fraction": round(done / size, 4)}
        elif received >= LARGE_BYTES:
            message = f"{received / 1e6:,.1f} MB of transactions that have not ended were received"
            fields = {"received_bytes": received}
        else:
            return
        self._report(Event("drain.progress", message, {"source": self._source, **fields}))
