"""A source's lake at a scrape: the landing's end, the newest cut, what waits for the next one, held tables, the last proofs.

Reading documents does not belong here; nothing of Spark does: a drain's host has none.

A reading costs a look-up for each new manifest and cut, and one each for the next; the record of the proofs, and what the
lake lacks, are read anew after a minute, the catalog's newest record also with each new cut or record if a table is out of
the publication.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lakeproof.config.model import Config, SourceConfig
from lakeproof.lake.planning.landing.waiting import LandingTail, WaitingChanges
from lakeproof.lake.planning.set_aside import set_aside
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import HeldCause
from lakeproof.lake.records.store import CutTail
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.lsn import Lsn
from lakeproof.metrics import definitions as m
from lakeproof.metrics.samples import PolledValue, Sample
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.proof.record import Proved
from lakeproof.state.compared import proved_tables
from lakeproof.state.shortfall import Shortfall, shortfall
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of

_SLOW_S = 60.0


@dataclass(frozen=True, slots=True)
class LakeSeen:
    """One reading's result; `waiting` is None if the cut and the landing are of different incarnations.

    `shortfall` is None if it could not be read.
    """

    durable: Lsn | None
    cut: Cut | None
    held: int
    paused: int
    waiting: WaitingChanges | None
    proved: Mapping[TableName, Proved]
    shortfall: Shortfall | None


@dataclass(slots=True)
class _LakeReader:
    """Reads one lake again and again; in one thread at a time."""

    config: Config
    lake: SourceLake
    source: SourceConfig
    _cuts: CutTail = field(init=False)
    _tail: LandingTail | None = None
    _proved: Mapping[TableName, Proved] = field(default_factory=dict)
    _shortfall: Shortfall | None = None
    _slow_s: float | None = None
    _counts: tuple[int, int] = (0, 0)
    _held_of: tuple[CycleNumber, Incarnation | None, int | None] | None = None

    def __post_init__(self) -> None:
        self._cuts = CutTail(self.lake)

    def read(self) -> LakeSeen:
        now_s, cut = time.monotonic(), self._cuts.look()
        incarnation = newest_incarnation(self.lake)
        if self._tail is not None and self._tail.chain.incarnation != incarnation:
            self._tail = None
        if self._tail is None and incarnation is not None:
            chain = Chain.open(self.lake, incarnation)
            position = cut.position if cut is not None and cut.incarnation == incarnation else chain.kept_from
            self._tail = LandingTail.after(chain, position, now_s)
        waiting = None
        if self._tail is not None:
            waiting = self._tail.look(now_s)
            if cut is not None and cut.incarnation == incarnation:
                self._tail.drop_until(cut.position)
                waiting = self._tail.waiting()
        if self._slow_s is None or now_s - self._slow_s >= _SLOW_S:
            self._read_slowly(cut)
            self._slow_s = now_s
        durable = None if self._tail is None else self._tail.chain.end
        held, paused = self._held(cut)
        return LakeSeen(durable, cut, held, paused, waiting, self._proved, self._shortfall)

    def _read_slowly(self, cut: Cut | None) -> None:
        chain = None if self._tail is None else self._tail.chain
        state = SourceState(self.lake, self.source, {"chain": chain, "cut": cut})
        self._proved = proved_tables(state)
        self._shortfall = shortfall(self.config, state)

    def _held(self, cut: Cut | None) -> tuple[int, int]:
        """Return how many tables stand still that somebody waits for, and how many are paused."""
        if cut is None or not cut.held:
            return 0, 0
        chain, record = (None, None) if self._tail is None else (self._tail.chain, self._tail.newest_record)
        of = (cut.number, None if chain is None else chain.incarnation, record)
        if self._held_of != of:
            aside = set_aside(self.source, cut.held, chain)
            paused = sum(cut.held[table].cause is HeldCause.PAUSED for table in aside)
            self._counts, self._held_of = (len(cut.held) - len(aside), paused), of
        return self._counts


class LakeSamples:
    """The samples of one source's lake."""

    def __init__(self, config: Config, source: str) -> None:
        self._source, self._tables_max = source, config.metrics.tables_max
        lake = SourceLake.open(config.location, source)
        self._reading = PolledValue(f"lake {source}", _LakeReader(config, lake, config.source(source)).read)

    def __call__(self) -> Iterator[Sample]:
        return self._reading.samples("lake", {"source": self._source}, self._samples)

    def _samples(self, seen: LakeSeen) -> Iterator[Sample]:
        labels = {"source": self._source}
        values = {**_positions(seen), **_proofs(seen.proved), **_lacking(seen.shortfall)}
        yield from (Sample(metric, value, labels) for metric, value in values.items() if value is not None)
        for status, tables in sorted(Counter(proof.status for proof in seen.proved.values()).items()):
            yield Sample(m.PROOF_TABLES, tables, {**labels, "status": status})
        yield from _proven(seen.proved, labels, self._tables_max)


def _positions(seen: LakeSeen) -> dict[m.Metric, float | None]:
    values: dict[m.Metric, float | None] = {}
    if seen.durable is not None:
        values[m.DURABLE_LSN] = int(seen.durable)
    if seen.cut is not None:
        values |= {
            m.APPLIED_LSN: int(seen.cut.position),
            m.CUT_NUMBER: int(seen.cut.number),
            m.CUT_AGE: _age_s(seen.cut.created_at),
            m.HELD_TABLES: seen.held,
            m.PAUSED_TABLES: seen.paused,
        }
        if seen.durable is not None and seen.waiting is not None:
            values[m.APPLIED_LAG_BYTES] = max(0, seen.durable - seen.cut.position)
    if seen.waiting is not None:
        oldest_us = seen.waiting.first_commit_us
        values |= {
            m.WAITING_ROWS: seen.waiting.rows,
            m.WAITING_BYTES: seen.waiting.bytes,
            m.APPLIED_LAG_SECONDS: 0.0 if oldest_us is None else max(0.0, time.time() - oldest_us / 1e6),
        }
    return values


def _lacking(shortfall: Shortfall | None) -> dict[m.Metric, float | None]:
    if shortfall is None:
        return {}
    metrics = (m.ABSENT_TABLES, m.UNPROVED_TABLES, m.MISSING_DAYS, m.OVERWRITTEN_VIEWS)
    return {metric: shortfall.counts.get(metric.name.removeprefix("lakeproof_")) for metric in metrics}


def _proofs(proved: Mapping[TableName, Proved]) -> dict[m.Metric, float | None]:
    times = [proof.time for proof in proved.values() if proof.time]
    if not times:
        return {}
    compared = [proof for proof in proved.values() if proof.verified is not None or proof.differed is not None]
    return {
        m.PROOF_AGE: _age_s(max(times)),
        m.PROOF_OLDEST_AGE: _age_s(min(times)),
        m.PROOF_EQUAL: float(all(proof.differed is None for proof in compared)) if compared else None,
    }


def _proven(proved: Mapping[TableName, Proved], labels: Mapping[str, str], tables_max: int) -> Iterator[Sample]:
    """Yield how far each table is proven; of more than `tables_max` those whose proofs are longest ago."""
    verified = [(proof.verified, table) for table, proof in proved.items() if proof.verified is not None]
    for last, table in sorted(verified, key=lambda pair: (pair[0].time, pair[1]))[:tables_max]:
        of_table = {**labels, "table": str(table), "kind": last.kind}
        yield Sample(m.PROVEN_AGE, _age_s(last.time), of_table)
        yield Sample(m.PROVEN_LSN, int(last.position), of_table)


def _age_s(text: str) -> float:
    return max(0.0, time.time() - time_of(text).timestamp())
