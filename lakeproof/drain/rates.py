"""Reports at intervals how fast a lasting drain is, and how far behind: the event `drain.rates`.

Measuring does not belong here (`pulse.py`), nor a single flush, which has an event of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lakeproof.drain.pulse import Pulse
from lakeproof.events import Event, Report

INTERVAL_S = 15.0


class Rates:
    """Compares the pulse of one drain with what it was at the last report."""

    def __init__(self, report: Report, source: str, pulse: Pulse, clock: Callable[[], float] = time.monotonic) -> None:
        self._report, self._source, self._pulse, self._clock = report, source, pulse, clock
        self._last = self._now()

    def report_if_due(self) -> None:
        """Report the rates since the last report, if that is `INTERVAL_S` seconds ago."""
        if self._clock() - self._last[0] < INTERVAL_S:
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
