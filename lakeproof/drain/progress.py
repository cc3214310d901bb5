"""Reports at intervals what a drain is at: large transactions on their way, and how fast it is and how far behind."""

from __future__ import annotations

import time
from collections.abc import Callable

from lakeproof.drain.pulse import Pulse
from lakeproof.events import Event, Report

LARGE_INTERVAL_S = 1.0
RATES_INTERVAL_S = 15.0
# A smaller transaction is over before anybody wonders what is going on.
LARGE_BYTES = 16 * 1024 * 1024


class LargeProgress:
    """Reports events of one source, at most one every `LARGE_INTERVAL_S` seconds.

    Nothing of such a transaction is durable yet: `transactions/buffer.py` receives it, and `flush.py` decodes it.
    """

    def __init__(self, report: Report, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._source, self._clock = report, source, clock
        self._reported_at = clock()
        self._begun: tuple[int, float] | None = None

    @property
    def is_due(self) -> bool:
        """True if the last event is old enough."""
        return self._clock() - self._reported_at >= LARGE_INTERVAL_S

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


class Rates:
    """Compares the pulse of one drain with what it was at the last report."""

    def __init__(self, report: Report, source: str, pulse: Pulse, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._source, self._pulse, self._clock = report, source, pulse, clock
        self._last = self._now()

    def report_if_due(self) -> None:
        """Report the rates since the last report, if that is `RATES_INTERVAL_S` seconds ago."""
        if self._clock() - self._last[0] < RATES_INTERVAL_S:
            return
        now, last, self._last = self._now(), self._last, self._now()
        seconds = now[0] - last[0]
        changes, transactions, size = ((b - a) / seconds for a, b in zip(last[1:], now[1:], strict=True))
        pulse = self._pulse
        message = (
            f"{changes:,.0f} changes/s, {size / 1e6:,.2f} MB/s, {transactions:,.0f} transactions/s;"
            f" {pulse.lag_s:,.1f} s and {pulse.lag_bytes:,} bytes behind"
        )
        fields = {
            "source": self._source,
            "changes_per_s": round(changes, 1),
            "mb_per_s": round(size / 1e6, 3),
            "transactions_per_s": round(transactions, 1),
            "lag_s": round(pulse.lag_s, 3),
            "lag_bytes": pulse.lag_bytes,
            "received_lsn": str(pulse.received),
            "durable_lsn": str(pulse.durable),
            "applied_lsn": None if pulse.applied is None else str(pulse.applied),
        }
        self._report(Event("drain.rates", message, fields))

    def _now(self) -> tuple[float, int, int, int]:
        return self._clock(), self._pulse.changes, self._pulse.transactions, self._pulse.received_bytes
