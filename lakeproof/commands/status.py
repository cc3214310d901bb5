"""The state of every source and view: slot, landing, cut, held tables, waiting snapshots, and each stage's lag.

Nothing is written and nothing is started here, least of all Spark. What is in the lake is reported even if the server can't
be reached; whatever could not be read is listed as a problem and does not end the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lakeproof.commands.concurrently import run_concurrently
from lakeproof.commands.readers import TableReaders, table_readers
from lakeproof.commands.views_behind import behind_of_inputs, newest_for_views
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.config.spark import is_local
from lakeproof.config.view_graph import sources_of
from lakeproof.drain.slot_health import HealthCause, Level, SlotHealth, slot_health
from lakeproof.errors import RECOVER, LakeproofError, TransientError, manual
from lakeproof.lake.planning.forecast import will_be_held
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.planning.pending import pending_snapshots
from lakeproof.lake.planning.set_aside import left_behind, paused_among
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.group_cuts import GroupCut, newest_group_cut
from lakeproof.lake.records.held import HeldReport, describe_all
from lakeproof.lake.records.lease import lease_holder
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.records.view_cuts import ViewCut, newest_view_cut
from lakeproof.lake.records.view_definitions import why_not_applied
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.postgres import catalog_selection as selection
from lakeproof.postgres.connection import connect
from lakeproof.postgres.replication_slot import SlotState, read_slot
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.proof.record import Proved, read_proved
from lakeproof.snapshot.paused import read_paused
from lakeproof.snapshot.status import SnapshotStatus, snapshot_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store

if TYPE_CHECKING:
    # Importing it needs PySpark, which a status without sizes does not.
    from lakeproof.commands.sizes import LakeSizes

_T = TypeVar("_T")
_Seen: TypeAlias = tuple[ServerIdentity, SlotState | None, tuple[TableName, ...]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, or could not be read; `transient` if trying again may help."""

    thing: str
    reason: str
    remedy: str
    transient: bool

    @classmethod
    def of(cls, error: LakeproofError) -> Problem:
        """Return the problem that an error reports."""
        return cls(error.thing, error.reason, error.remedy, isinstance(error, TransientError))


@dataclass(frozen=True, slots=True)
class LandingStatus:
    """The newest incarnation's chain: its end, its newest manifest's number and when that was written."""

    incarnation: Incarnation
    end_lsn: Lsn
    number: int
    written_at: str


@dataclass(frozen=True, slots=True)
class CutStatus:
    """The source's newest cut; `commit_time` is the greatest commit time up to its position."""

    number: CycleNumber
    position: Lsn
    commit_time: str | None
    created_at: str
    tables: int


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source. A value is None if there is nothing yet, or if `problems` says why it could not be read.

    `health` says how long the slot will last. `drain_lag_bytes` is WAL that has not landed (of the whole cluster, so
    also what is not published), `lake_lag_bytes` what has landed and is in no cut. `snapshots` are tables whose
    snapshot has not entered the lake, with its consistent point; `snapshot` is one that runs, or left tables for
    another run. Of `held` nobody waits for those in `left_behind` and `paused`; `pausing` are recorded as paused, not held
    (yet); `coming` are tables that the next compaction will hold, as far as the landing says it already (None if nobody
    asked). `lease_held` is None if the system does not say. `proved` is the last proof's result for each configured table.
    `sizes` is None if nobody asked. `unpublished` are tables that a pattern of the configuration matches and nobody
    follows. `readers` has each table that can be read.
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
    lease_held: bool | None
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


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view's newest cut; `behind` counts the cuts of each source since the one it was read at.

    It also has the versions of each external table since, by its place, and 1 for each view that has others since, `view b`.
    `not_applied`: the configuration has another definition than the one that is applied, and how to go on; else None.
    """

    view: str
    cut: ViewCut | None
    behind: Mapping[str, int]
    problems: tuple[Problem, ...]
    not_applied: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group's newest cut; `lag_bytes` is WAL that the least of its landings has beyond it, of source `slowest`."""

    group: str
    cut: GroupCut | None
    slowest: str | None
    lag_bytes: int | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Every source, view and group that the caller asked for; `cluster` is the master that Spark's tasks go to.

    It is None if they run in the command's own process.
    """

    sources: Mapping[str, SourceStatus]
    views: Mapping[str, ViewStatus]
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)
    cluster: str | None = None

    @property
    def held(self) -> bool:
        """True if any table stands still that somebody waits for."""
        return any(source.held.keys() - source.left_behind - source.paused for source in self.sources.values())

    @property
    def incomplete(self) -> bool:
        """True if a snapshot has left tables that nobody copies."""
        snapshots = (source.snapshot for source in self.sources.values())
        return any(s is not None and s.missing and s.running is False for s in snapshots)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of all sources, views and groups."""
        parts: list[SourceStatus | ViewStatus | GroupStatus] = [*self.sources.values(), *self.views.values()]
        parts += self.groups.values()
        return tuple(problem for part in parts for problem in part.problems)


def status(
    config: Config,
    names: Iterable[str] | None = None,
    *,
    servers: bool = True,
    sizes: Callable[[str], LakeSizes] | None = None,
) -> StatusReport:
    """Look at the sources `names`, the views that read them and the groups that they are in, at all of these by default.

    Without `servers` only the lake is read: no server can delay the answer, and none is a problem. `sizes` gives those
    of a source, if the caller wants them. Raises ConfigError for a lake of a kind that is not supported; everything
    else becomes a problem in the report.
    """
    chosen = list(config.sources if names is None else names)
    store = open_store(config.location)
    views = [v for v in config.views.values() if not set(chosen).isdisjoint(sources_of(config.views, v.name))]
    # All at once: a server that hangs is a problem of its source only.
    looks = run_concurrently(chosen, lambda name: _seen(config.sources[name])) if servers else {}
    return StatusReport(
        sources={name: _source(config, config.sources[name], looks.get(name), sizes) for name in chosen},
        views={view.name: _view(config, store, view) for view in views},
        groups={g: _group(config, store, g) for g, members in config.groups.items() if set(members) & set(chosen)},
        cluster=None if is_local(config.spark.master) else config.spark.master,
    )


class _Problems:
    """Reads, and collects the errors that they end with."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def look(self, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except LakeproofError as error:
            self.problems.append(Problem.of(error))
            return None


def _source(
    config: Config,
    source: SourceConfig,
    look: _Seen | Exception | None,
    sizes: Callable[[str], LakeSizes] | None,
) -> SourceStatus:
    problems = _Problems()
    lake = SourceLake.open(config.location, source.name)
    chain = problems.look(lambda: Chain.open_newest(lake))
    cut = problems.look(lambda: newest_cut(lake))
    server, slot, unpublished = (None if look is None else problems.look(lambda: _of(look))) or (None, None, ())
    if server is not None and chain is not None:
        known_chain = chain
        gap = problems.look(lambda: slot_gap(source, slot, known_chain))
        problems.problems.extend([gap] if gap is not None else [])
    health = None
    if server is not None and slot is not None:
        end_of_wal, state = server.current_lsn, slot
        health = problems.look(lambda: slot_health(state, end_of_wal, chain, source.health))
    _judge_health(source, health, chain, problems)
    _judge_switch(source, chain, cut, problems)
    room = None if sizes is None else problems.look(lambda: sizes(source.name))
    if room is not None:
        problems.problems.extend(
            Problem(thing, why.reason, why.remedy, transient=False) for thing, why in room.damaged.items()
        )
    end = chain.end if chain is not None else None
    held = {} if cut is None else dict(sorted(cut.held.items()))
    left = problems.look(lambda: left_behind(source, held, chain)) or set()
    aside = problems.look(lambda: paused_among(held, chain)) or set()
    paused = problems.look(lambda: read_paused(lake)) or {}
    return SourceStatus(
        source=source.name,
        server=server,
        slot=slot,
        health=health,
        landing=None if chain is None else _landing(chain),
        cut=None
        if cut is None
        else CutStatus(cut.number, cut.position, cut.commit_time, cut.created_at, len(cut.tables)),
        drain_lag_bytes=_distance(None if server is None else server.current_lsn, end),
        lake_lag_bytes=_distance(end, _position(cut, chain)),
        held=describe_all(held, source.name),
        left_behind=frozenset(left),
        paused=frozenset(aside),
        pausing=tuple(t for t, entry in paused.items() if not entry.resuming and t not in held),
        coming=None if look is None else problems.look(lambda: _coming(source.name, chain, cut)),
        snapshots=problems.look(lambda: _waiting(lake, chain, cut)) or {},
        lease_held=lake.store.is_locked(lake.paths.lease_lock),
        lease=problems.look(lambda: lease_holder(lake)),
        snapshot=problems.look(lambda: _snapshot(lake, chain)),
        proved=_proved(read_proved(lake), source, cut),
        sizes=room,
        problems=tuple(problems.problems),
        unpublished=tuple(table for table in unpublished if table not in paused),
        readers={} if cut is None else table_readers(lake, cut, source.portable),
    )


def _coming(source: str, chain: Chain | None, cut: Cut | None) -> dict[TableName, HeldReport]:
    """Return the tables that a newer reading of the catalog will hold; another incarnation's positions can't be followed."""
    if chain is None or cut is None or cut.incarnation != chain.incarnation:
        return {}
    return describe_all(will_be_held(chain, cut), source)


def _proved(proved: Mapping[TableName, Proved], source: SourceConfig, cut: Cut | None) -> dict[TableName, Proved]:
    """Return the proofs without those of tables that are not configured any more, or not in the lake if none is named."""
    tables = set(proved) if cut is None else {*cut.tables, *cut.held}
    if source.selection:
        tables = {table for table in proved if source.selection.selected(table)}
    return {table: proof for table, proof in sorted(proved.items()) if table in tables}


def _snapshot(lake: SourceLake, chain: Chain | None) -> SnapshotStatus | None:
    if chain is None:
        return None
    locked = lake.store.is_locked(lake.paths.snapshot_lock)
    return snapshot_status(lake, chain.incarnation, locked=locked)


def _landing(chain: Chain) -> LandingStatus:
    newest = chain.newest
    return LandingStatus(chain.incarnation, newest.end_lsn, newest.number, newest.created_at)


def _of(look: _Seen | Exception) -> _Seen:
    if isinstance(look, Exception):
        raise look
    return look


def _seen(source: SourceConfig) -> _Seen:
    with connect(source.dsn, "lakeproof status") as connection:
        return identify(connection), read_slot(connection, source.slot), selection.unpublished(connection, source)


def slot_gap(source: SourceConfig, slot: SlotState | None, chain: Chain) -> Problem | None:
    """Return what the slot alone shows to be wrong; every drain makes the whole comparison before it starts.

    `slot` was read after `chain` was opened. Raises LakeError for a damaged manifest.
    """
    thing, remedy = f"slot {source.slot}", f"changes after the landing's end are lost: {RECOVER}"
    if slot is None:
        return Problem(thing, f"it does not exist; the landing ends at {chain.end}", remedy, transient=False)
    if slot.lost:
        return Problem(thing, "the server has invalidated it", remedy, transient=False)
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and confirmed > chain.end:
        # A drain may have flushed and acknowledged since the chain was read.
        chain.refresh()
        if confirmed > chain.end:
            reason = f"it stands at {confirmed}, beyond the landing's end {chain.end}"
            return Problem(thing, reason, remedy, transient=False)
    return None


def _judge_health(source: SourceConfig, health: SlotHealth | None, chain: Chain | None, problems: _Problems) -> None:
    """Report what somebody should see to; a lost slot is reported already."""
    if health is None or health.level is not Level.ERROR or chain is None:
        return
    reasons = [str(reason) for reason in health.reasons if reason.cause is not HealthCause.INVALIDATED]
    remedy = f"see that its drain runs and keeps up, or tear it down ({manual('Running it', 'Disk')})"
    if reasons:
        problems.problems.append(Problem(f"slot {source.slot}", "; ".join(reasons), remedy, transient=False))


def _judge_switch(source: SourceConfig, chain: Chain | None, cut: Cut | None, problems: _Problems) -> None:
    if chain is None or cut is None or cut.incarnation == chain.incarnation:
        return
    reason = f"the lake stands in incarnation {cut.incarnation}, the landing in {chain.incarnation}"
    remedy = f"run `lakeproof compact {source.name}` (after `lakeproof recover`, where that was not finished)"
    problems.problems.append(Problem(f"source {source.name}", reason, remedy, transient=True))


def _waiting(lake: SourceLake, chain: Chain | None, cut: Cut | None) -> dict[TableName, Lsn]:
    if chain is None:
        return {}
    pending = pending_snapshots(lake, chain.incarnation, cut)
    return {table: snapshot.consistent_point for table, snapshot in sorted(pending.items())}


def _position(cut: Cut | None, chain: Chain | None) -> Lsn | None:
    """Return the lake's position in the chain: positions of another incarnation can't be compared with it."""
    if chain is None:
        return None
    return cut.position if cut is not None and cut.incarnation == chain.incarnation else chain.head.end_lsn


def _distance(later: Lsn | None, earlier: Lsn | None) -> int | None:
    return None if later is None or earlier is None else max(0, later - earlier)


def _group(config: Config, store: Store, group: str) -> GroupStatus:
    problems = _Problems()
    cut = problems.look(lambda: newest_group_cut(store, group))
    lakes = [SourceLake(store, LakePaths(source)) for source in config.group(group)]
    place = problems.look(lambda: group_position(group, lakes))
    lag = _distance(None if place is None else place.position, None if cut is None else cut.position)
    return GroupStatus(group, cut, None if place is None else place.slowest, lag, tuple(problems.problems))


def _view(config: Config, store: Store, view: ViewConfig) -> ViewStatus:
    problems = _Problems()
    cut = problems.look(lambda: newest_view_cut(store, view.name))
    behind: dict[str, int] = {}
    for name, number in sorted(cut.sources.items()) if cut is not None else ():
        newest = problems.look(lambda source=name: newest_for_views(config, store, source))  # type: ignore[misc]  # a default binds the loop's value
        if newest is not None:
            behind[name] = int(newest) - int(number)
    if cut is not None:
        behind |= problems.look(partial(behind_of_inputs, config, store, cut)) or {}
    return ViewStatus(view.name, cut, behind, tuple(problems.problems), why_not_applied(view, cut))
