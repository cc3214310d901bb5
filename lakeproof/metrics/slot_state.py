"""A source's slot at a scrape: its positions, the log that it keeps, and how long it will last.

Judging it does not belong here (`lakeproof.drain.slot_health`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.slot_health import Level, SlotHealth, slot_health
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.readings import Reading
from lakeproof.metrics.samples import Sample
from lakeproof.postgres.connection import connect
from lakeproof.postgres.connection_timeouts import Timeout, use_timeout
from lakeproof.postgres.replication_slot import SlotState, read_slot
from lakeproof.postgres.server import identify
from lakeproof.storage.source_lake import SourceLake

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Seen:
    end_of_wal: Lsn
    slot: SlotState | None
    health: SlotHealth | None


class SlotSamples:
    """The samples of one source's slot; each reading is one connection and one row."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._config, self._source = config, source
        self._reading = Reading(f"slot {source.name}", self._read)

    def __call__(self) -> Iterator[Sample]:
        newest, labels = self._reading.value(), {"source": self._source.name}
        yield Sample(m.STATE_ERRORS, self._reading.errors, {**labels, "of": "slot"})
        if newest is None:
            return
        seen, age_s = newest
        yield Sample(m.STATE_AGE, age_s, {**labels, "of": "slot"})
        values: dict[m.Metric, float | None] = {m.WAL_LSN: int(seen.end_of_wal)}
        if seen.slot is not None:
            confirmed = seen.slot.confirmed_flush_lsn
            values |= {
                m.CONFIRMED_LSN: None if confirmed is None else int(confirmed),
                m.SLOT_LAG: seen.slot.lag_bytes,
                m.SLOT_RETAINED: seen.slot.retained_bytes,
            }
        if seen.health is not None:
            values |= {
                m.SLOT_SECONDS_LEFT: seen.health.seconds_left,
                m.SLOT_LEVEL: list(Level).index(seen.health.level),
            }
        yield from (Sample(metric, value, labels) for metric, value in values.items() if value is not None)

    def _read(self) -> _Seen:
        source = self._source
        with use_timeout(Timeout(TIMEOUT_S)), connect(source.dsn, "lakeproof metrics") as connection:
            server, slot = identify(connection), read_slot(connection, source.slot)
        chain = Chain.open_newest(SourceLake.open(self._config.location, source.name))
        health = None if slot is None else slot_health(slot, server.current_lsn, chain, source.health)
        return _Seen(server.current_lsn, slot, health)
