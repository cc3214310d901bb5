"""A source's slot at a scrape: its positions, the log that it keeps, and how long it will last.

Judging it does not belong here (`lakeproof.drain.slot_health`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.slot_health import Level
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.readings import PolledValue
from lakeproof.metrics.samples import Sample
from lakeproof.state.slot import SlotStatus, ask_slot


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
