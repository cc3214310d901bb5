"""One source, as far as anybody may want to see it: server, slot, landing, cut, tables that stand still, what is lacking.

Showing it does not belong here. Whatever could not be read is listed as a problem and does not end the look.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lakeproof.config.model import Config
from lakeproof.drain.slot_health import SlotHealth
from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.protocol import NOT_PORTABLE, reader_features
from lakeproof.lake.planning.forecast import will_be_held
from lakeproof.lake.planning.set_aside import left_behind, paused_among
from lakeproof.lake.records.documents import Cut, WrittenBy
from lakeproof.lake.records.held import HeldReport, describe_all
from lakeproof.lake.records.lease import lease_holder
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.postgres.replication_slot import SlotState
from lakeproof.postgres.server import ServerIdentity
from lakeproof.proof.record import Proved
from lakeproof.snapshot.progress import SnapshotStatus
from lakeproof.state.compared import proved_tables
from lakeproof.state.problem import Problem, Problems
from lakeproof.state.shortfall import Shortfall, shortfall
from lakeproof.state.slot import ServerSeen, refuse_stuck, remedy_if_stuck, slot_status
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    # Importing it needs PySpark, which a state without sizes does not.
    from lakeproof.compaction.sizes import LakeSizes


_T = TypeVar("_T")
_D = TypeVar("_D")


@dataclass(frozen=True, slots=True)
class LandingStatus:
    """The newest incarnation's chain: its end, its newest manifest's number and when that was written."""

    incarnation: Incarnation
    end_lsn: Lsn
    number: int
    written_at: str

    @classmethod
    def of(cls, chain: Chain) -> LandingStatus:
        """Return what a chain is now."""
        newest = chain.newest
        return cls(chain.incarnation, newest.end_lsn, newest.number, newest.created_at)


@dataclass(frozen=True, slots=True)
class CutStatus:
    """The source's newest cut; `commit_time` is the greatest commit time up to its position."""

    number: CycleNumber
    position: Lsn
    commit_time: str | None
    created_at: str
    tables: int

    @classmethod
    def of(cls, cut: Cut) -> CutStatus:
        """Return what a cut is, without its tables."""
        return cls(cut.number, cut.position, cut.commit_time, cut.created_at, len(cut.tables))


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source. A value is None if there is nothing yet, or if `problems` says why it could not be read.

    `health` says how long the slot will last. `drain_lag_bytes` is WAL that has not landed (of the whole cluster, so
    also what is not published), `lake_lag_bytes` what has landed and is in no cut. `snapshots` are tables whose
    snapshot has not entered the lake, with its consistent point; `snapshot` is one that runs, or left tables for
    another run. Of `held` nobody waits for those in `left_behind` and `paused`; `pausing` are recorded as paused, not held
    (yet). `lease_taken` is None if the system does not say. `proved` is the last proof's result for each configured table.
    `sizes` is None if nobody asked. `unpublished` are tables that a pattern of the configuration matches and nobody
    follows. `readers` has each table that can be read, `written_by` who wrote each table last, and why.

    Nobody asks for these if no server is to be asked, and then they are None: `coming`, the tables that the next compaction
    will hold, as far as the landing says it already, and `shortfall`, what the lake lacks.
    """

    source: str
    server: ServerIdentity | None
    slot: SlotState | None
    health: SlotHealth | None
    landing: LandingStatus | None
    cut: CutStatus | None
    drain_lag_bytes: int | None
    lake_lag_bytes: int | None
    held: Mapping[TableName, HeldReport]
    snapshots: Mapping[TableName, Lsn]
    lease_taken: bool | None
    lease: str | None
    problems: tuple[Problem, ...]
    snapshot: SnapshotStatus | None = None
    proved: Mapping[TableName, Proved] = field(default_factory=dict)
    left_behind: frozenset[TableName] = frozenset()
    paused: frozenset[TableName] = frozenset()
    pausing: tuple[TableName, ...] = ()
    coming: Mapping[TableName, HeldReport] | None = None
    sizes: LakeSizes | None = None
    unpublished: tuple[TableName, ...] = ()
    readers: Mapping[TableName, TableReaders] = field(default_factory=dict)
    written_by: Mapping[TableName, WrittenBy] = field(default_factory=dict)
    shortfall: Shortfall | None = None

    @property
    def is_incomplete(self) -> bool:
        """True if a snapshot has left tables that nobody copies."""
        snapshot = self.snapshot
        return snapshot is not None and bool(snapshot.missing) and snapshot.running is False

    @property
    def differs(self) -> bool:
        """True if the lake is not what the source is: somebody waits for a held table, or the lake lacks something."""
        stands_still = self.held.keys() - self.left_behind - self.paused
        return bool(stands_still or self.is_incomplete or self.shortfall)


@dataclass(frozen=True, slots=True)
class ServerLook:
    """A look at the server of `state`; `unpublished` are tables that a pattern of the configuration matches."""

    state: SourceState
    seen: ServerSeen
    unpublished: tuple[TableName, ...]


def source_status(
    config: Config,
    name: str,
    look: ServerLook | Exception | None,
    sizes: Callable[[str], LakeSizes] | None = None,
) -> SourceStatus:
    """Return the state of one source; `look` is what its server has shown, or the error of that, or None: nobody asked."""
    problems = Problems()
    state = look.state if isinstance(look, ServerLook) else SourceState.of(config, name)

    def known(read: Callable[[SourceState], _T], otherwise: _D) -> _T | _D:
        return problems.read(read, state, otherwise)

    chain, cut = known(SourceState.chain, None), known(SourceState.cut, None)
    looked = problems.read(_of, look, None)
    seen = None if looked is None else looked.seen
    slot = None if seen is None else problems.read(partial(slot_status, state.source, seen), chain, None)
    problems.add(*([] if slot is None else slot.problems(state.source)), *_switch(cut, chain, name))
    problems.read(partial(refuse_stuck, chain), None if seen is None else seen.slot, None)
    room = None if sizes is None else problems.read(sizes, name, None)
    if room is not None:
        problems.add(*(Problem(thing, why.reason, why.remedy, transient=False) for thing, why in room.damaged.items()))
    held = {} if cut is None else dict(sorted(cut.held.items()))
    left = known(lambda state: left_behind(state.source, held, chain), set[TableName]())
    aside = problems.read(partial(paused_among, held), chain, set[TableName]())
    way_out = problems.read(remedy_if_stuck, chain, None)
    paused = known(SourceState.paused, {})
    lacks = None if look is None else shortfall(config, state)
    problems.add(*([] if lacks is None else lacks.unread.values()))
    return SourceStatus(
        source=name,
        server=None if seen is None else seen.server,
        slot=None if seen is None else seen.slot,
        health=None if slot is None else slot.health,
        landing=None if chain is None else LandingStatus.of(chain),
        cut=None if cut is None else CutStatus.of(cut),
        drain_lag_bytes=distance(
            None if seen is None else seen.server.current_lsn, None if chain is None else chain.end
        ),
        lake_lag_bytes=distance(None if chain is None else chain.end, known(SourceState.position, None)),
        held=describe_all(held, name, way_out),
        left_behind=frozenset(left),
        paused=frozenset(aside),
        pausing=tuple(t for t, entry in paused.items() if not entry.resuming and t not in held),
        coming=None if look is None else known(_coming, None),
        shortfall=lacks,
        snapshots={t: copy.consistent_point for t, copy in sorted(known(SourceState.pending, {}).items())},
        lease_taken=state.lake.store.is_locked(state.lake.paths.lease_lock),
        lease=problems.read(lease_holder, state.lake, None),
        snapshot=known(SourceState.snapshot, None),
        proved=known(proved_tables, {}),
        sizes=room,
        problems=tuple(problems.listed),
        unpublished=tuple(t for t in (() if looked is None else looked.unpublished) if t not in paused),
        readers={} if cut is None else table_readers(state.lake, cut, state.source.portable),
        written_by={} if cut is None else {t: c.written_by for t, c in sorted(cut.tables.items())},
    )


def _of(look: ServerLook | Exception | None) -> ServerLook | None:
    if isinstance(look, Exception):
        raise look
    return look


def _coming(state: SourceState) -> dict[TableName, HeldReport]:
    """Return the tables that a newer reading of the catalog will hold; another incarnation's positions can't be followed."""
    if state.chain is None or state.cut is None or state.has_switched:
        return {}
    return describe_all(will_be_held(state.chain, state.cut), state.source.name, remedy_if_stuck(state.chain))


def _switch(cut: Cut | None, chain: Chain | None, source: str) -> list[Problem]:
    if chain is None or cut is None or cut.incarnation == chain.incarnation:
        return []
    reason = f"the lake stands in incarnation {cut.incarnation}, the landing in {chain.incarnation}"
    remedy = f"run `lakeproof compact {source}` (after `lakeproof recover`, where that was not finished)"
    return [Problem(f"source {source}", reason, remedy, transient=True)]


def distance(later: Lsn | None, earlier: Lsn | None) -> int | None:
    """Return the bytes of WAL from one position to a later one, 0 if it is not later; None if one is unknown."""
    return None if later is None or earlier is None else max(0, later - earlier)


@dataclass(frozen=True, slots=True)
class TableReaders:
    """The features that readers of a table's history or current must know: feature → reason.

    `keeps`: the table is configured as portable, and has features since before, which it keeps until it begins again.
    """

    features: Mapping[str, str]
    keeps: bool


def table_readers(lake: SourceLake, cut: Cut, portable: Collection[TableName]) -> dict[TableName, TableReaders]:
    """Return the features at the versions that a cut names, without tables whose logs can't be read."""
    needs = {}
    for table, cut_table in sorted(cut.tables.items()):
        places = (
            (lake.paths.history(table), cut_table.history_version),
            (lake.paths.current(table), cut_table.current_version),
        )
        try:
            read = [reader_features(lake.url(key), version) for key, version in places]
        except (LakeError, OSError):
            # The next compaction holds such a table, with the reason.
            continue
        features = {name: reason for reasons in read for name, reason in reasons.items()}
        needs[table] = TableReaders(features, table in portable and not NOT_PORTABLE.isdisjoint(features))
    return needs
