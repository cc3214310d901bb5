"""A drain's metrics: counted from its events and flushes, and read at each scrape from its pulse and of its slot.

The drain knows nothing of this room (`lakeproof.drain`). A slot is judged by `lakeproof.drain.slot_health`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.counts import Flush
from lakeproof.drain.pulse import Pulse
from lakeproof.drain.slot_health import Level
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.samples import PolledValue, Registry, Sample, TableLabels
from lakeproof.state.slot import SlotStatus, ask_slot

_KINDS = {"inserts": "insert", "updates": "update", "deletes": "delete", "truncates": "truncate"}
# A loop that works shows it four times a second, whatever the disk or the server does.
STILL_S = 300.0
# Changes that wait for so long, though the drain is connected, mean that it does not flush: a disk, or a huge transaction.
UNFLUSHED_S = 120.0


class PulseSamples:
    """The samples of one drain's pulse."""

    def __init__(self, source: str, pulse: Pulse) -> None:
        self._labels, self._pulse = {"source": source}, pulse

    def __call__(self) -> Iterator[Sample]:
        pulse = self._pulse
        values: dict[m.Metric, float] = {
            m.CONNECTED: pulse.is_connected,
            m.RECEIVED_BYTES: pulse.received_bytes,
            m.RECEIVED_LSN: int(pulse.received),
            m.DURABLE_LAG_SECONDS: pulse.lag_s,
            m.DURABLE_LAG_BYTES: pulse.lag_bytes,
        }
        yield from (Sample(metric, value, self._labels) for metric, value in values.items())


class DrainCounters:
    """Adds up what a drain does; `observe` and `flushed` are called by its thread."""

    def __init__(self, registry: Registry, source: str, tables: TableLabels) -> None:
        self._source, self._tables = source, tables
        self._changes = registry.counter(m.LANDED_CHANGES)
        self._bytes = registry.counter(m.LANDED_BYTES)
        # A figure that is there from the beginning has a rate from the beginning.
        self._transactions = registry.counter(m.LANDED_TRANSACTIONS).labels(source)
        self._spilled = registry.counter(m.SPILLED_BYTES).labels(source)
        self._reconnects = registry.counter(m.RECONNECTS).labels(source)
        self._flush = registry.histogram(m.FLUSH).labels(source)
        self._commit_to_durable = registry.histogram(m.COMMIT_TO_DURABLE).labels(source)

    def observe(self, event: Event) -> None:
        """Count an event, if it is one of those that are counted."""
        if event.kind == "drain.reconnect":
            self._reconnects.inc()
        elif event.kind == "drain.spill":
            self._spilled.inc(event.fields["spilled_bytes"])

    def flushed(self, flush: Flush) -> None:
        """Count a manifest that became durable."""
        self._transactions.inc(flush.transactions)
        self._flush.observe(flush.seconds)
        if flush.first_commit_us is not None:
            self._commit_to_durable.observe(max(0.0, time.time() - flush.first_commit_us / 1e6))
        for table, counts in flush.tables.items():
            label = self._tables.label(self._source, table)
            self._bytes.labels(self._source, label).inc(counts.bytes)
            for name, kind in _KINDS.items():
                number = getattr(counts, name)
                if number:
                    self._changes.labels(self._source, label, kind).inc(number)


class DrainReadiness:
    """Says if a drain is connected and flushes, and if its loop works at all; None means yes, else it is the reason."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._reason = "it has not connected yet"

    def observe(self, event: Event) -> None:
        """Remember why the drain is not connected."""
        if event.kind in {"drain.reconnect", "drain.spill_limit", "drain.publications", "drain.outdated"}:
            self._reason = event.message

    def why_not_ready(self) -> str | None:
        """Return why the drain is not connected, or does not flush."""
        if not self._pulse.is_connected:
            return self._reason
        if self._pulse.waiting_s >= UNFLUSHED_S:
            return f"changes have waited for {self._pulse.waiting_s:,.0f} s to become durable"
        return None

    def why_not_alive(self) -> str | None:
        """Return for how long the loop has not moved, if it is connected and should."""
        age_s = self._pulse.beat_age_s
        if self._pulse.is_connected and age_s is not None and age_s >= STILL_S:
            return f"the drain's loop has not moved for {age_s:,.0f} s"
        return None


@dataclass(frozen=True, slots=True)
class _Seen:
    end_of_wal: Lsn
    status: SlotStatus


class SlotSamples:
    """The samples of one source's slot; each reading is one connection and one row."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._config, self._source = config, source
        self._reading = PolledValue(f"slot {source.name}", self._read)

    def __call__(self) -> Iterator[Sample]:
        return self._reading.samples("slot", {"source": self._source.name}, self._samples)

    def _samples(self, seen: _Seen) -> Iterator[Sample]:
        values: dict[m.Metric, float | None] = {m.WAL_LSN: int(seen.end_of_wal)}
        slot, health = seen.status.state, seen.status.health
        if slot is not None:
            confirmed = slot.confirmed_flush_lsn
            values |= {
                m.CONFIRMED_LSN: None if confirmed is None else int(confirmed),
                m.SLOT_LAG: slot.lag_bytes,
                m.SLOT_RETAINED: slot.retained_bytes,
            }
        if health is not None:
            values |= {
                m.SLOT_SECONDS_LEFT: health.seconds_left,
                m.SLOT_LEVEL: list(Level).index(health.level),
            }
        if seen.status.gap is not None:
            # Also of a slot that is gone, of which there is nothing else to show.
            values[m.SLOT_LEVEL] = list(Level).index(Level.ERROR)
        yield from (
            Sample(metric, value, {"source": self._source.name})
            for metric, value in values.items()
            if value is not None
        )

    def _read(self) -> _Seen:
        seen, status = ask_slot(self._config, self._source.name, "lakeproof metrics")
        return _Seen(seen.server.current_lsn, status)
