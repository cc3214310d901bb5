"""How every source and view stands: slot, landing, cut, held tables, waiting snapshots, and how far each stage is behind.

Nothing is written and nothing is started here, Spark least of all. What lies in the lake is told also where the server can't
be reached; whatever could not be looked at is listed as a problem instead of ending the look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lakeproof.commands.concurrently import side_by_side
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.drain.slot_health import Level, SlotHealth, slot_health
from lakeproof.errors import RECOVER, LakeproofError, TransientError, manual
from lakeproof.lake.planning.forecast import will_be_held
from lakeproof.lake.planning.left_behind import left_behind
from lakeproof.lake.planning.pending import pending_snapshots
from lakeproof.lake.records.documents import Cut, Held
from lakeproof.lake.records.lease import lease_holder
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.records.view_cuts import ViewCut
from lakeproof.lake.records.view_cuts import newest_cut as newest_view_cut
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.postgres import catalog_selection as selection
from lakeproof.postgres.connection import connect
from lakeproof.postgres.replication_slot import SlotState, read_slot
from lakeproof.postgres.server import ServerIdentity, identify
from lakeproof.proof.record import Proved, read_proved
from lakeproof.snapshot.status import SnapshotStatus, snapshot_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

if TYPE_CHECKING:
    # It needs PySpark to be imported, which a status without sizes does not.
    from lakeproof.commands.sizes import LakeSizes

_T = TypeVar("_T")
_Seen: TypeAlias = tuple[ServerIdentity, SlotState | None, tuple[TableName, ...]]
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be looked at, or that is wrong; `transient` where trying again may help."""

    thing: str
    reason: str
    remedy: str
    transient: bool

    @classmethod
    def of(cls, error: LakeproofError) -> Problem:
        """What the error says."""
        return cls(error.thing, error.reason, error.remedy, isinstance(error, TransientError))


@dataclass(frozen=True, slots=True)
class LandingStatus:
    """The newest incarnation's chain: where it ends, its newest link's number and when that was written."""

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
    """One source. A None where there is nothing yet, or where `problems` says why it could not be seen.

    `health` says how long the slot will last. `drain_lag_bytes` is WAL that has not landed (of the whole cluster, so also
    what is not published), `lake_lag_bytes` what has landed and is in no cut. `snapshots` are tables whose snapshot has not
    entered the lake, with its consistent point; `snapshot` is one that runs, or left tables for another run. Of `held`
    nobody waits for those in `left_behind`; `coming` are tables that the next compaction will hold, as far as the landing
    knows it already (None where nobody asked).
    `lease_held` is None where the system can't tell. `proved` is what the last proof of each configured table said. `sizes`
    is None where nobody asked. `unpublished` are tables that a pattern of the configuration matches and nobody follows.
    """

    source: str
    server: ServerIdentity | None
    slot: SlotState | None
    health: SlotHealth | None
    landing: LandingStatus | None
    cut: CutStatus | None
    drain_lag_bytes: int | None
    lake_lag_bytes: int | None
    held: Mapping[TableName, Held]
    snapshots: Mapping[TableName, Lsn]
    lease_held: bool | None
    lease: str | None
    problems: tuple[Problem, ...]
    snapshot: SnapshotStatus | None = None
    proved: Mapping[TableName, Proved] = field(default_factory=dict)
    left_behind: frozenset[TableName] = frozenset()
    coming: Mapping[TableName, Held] | None = None
    sizes: LakeSizes | None = None
    unpublished: tuple[TableName, ...] = ()


@dataclass(frozen=True, slots=True)
class ViewStatus:
    """One view's newest cut; `behind` counts the cuts of each source since the one it was read at."""

    view: str
    cut: ViewCut | None
    behind: Mapping[str, int]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Every source and view that was asked for."""

    sources: Mapping[str, SourceStatus]
    views: Mapping[str, ViewStatus]

    @property
    def held(self) -> bool:
        """Whether any table stands still that somebody waits for."""
        return any(source.held.keys() - source.left_behind for source in self.sources.values())

    @property
    def incomplete(self) -> bool:
        """Whether a snapshot has left tables that nobody copies."""
        snapshots = (source.snapshot for source in self.sources.values())
        return any(s is not None and s.missing and s.running is False for s in snapshots)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All of them."""
        parts: list[SourceStatus | ViewStatus] = [*self.sources.values(), *self.views.values()]
        return tuple(problem for part in parts for problem in part.problems)


def status(
    config: Config,
    names: Iterable[str] | None = None,
    *,
    servers: bool = True,
    sizes: Callable[[str], LakeSizes] | None = None,
) -> StatusReport:
    """Look at the sources `names` and the views that read them, at all of both by default.

    Without `servers` only what lies in the lake is looked at: no server can delay the answer, and none is a problem. `sizes`
    gives those of a source, where they are wanted.
    Raises ConfigError for a lake of a kind that is not supported; everything else becomes a problem in the report.
    """
    chosen = list(config.sources if names is None else names)
    store = open_store(config.lake)
    views = [v for v in config.views.values() if any(source in chosen for source, _ in v.reads.values())]
    # Each beside the others: a server that hangs is a problem of its own source.
    looks = side_by_side(chosen, lambda name: _seen(config.sources[name])) if servers else {}
    return StatusReport(
        sources={name: _source(store, config, config.sources[name], looks.get(name), sizes) for name in chosen},
        views={view.name: _view(store, config, view) for view in views},
    )


class _Problems:
    """Looks, and what they failed with."""

    def __init__(self) -> None:
        self.found: list[Problem] = []

    def look(self, at: Callable[[], _T]) -> _T | None:
        try:
            return at()
        except LakeproofError as error:
            self.found.append(Problem.of(error))
            return None


def _source(
    store: Store,
    config: Config,
    source: SourceConfig,
    look: _Seen | Exception | None,
    sizes: Callable[[str], LakeSizes] | None,
) -> SourceStatus:
    problems = _Problems()
    paths = LakePaths(config.lake, source.name)
    chain = problems.look(lambda: Chain.open_newest(store, paths))
    cut = problems.look(lambda: newest_cut(store, paths))
    server, slot, unpublished = (None if look is None else problems.look(lambda: _of(look))) or (None, None, ())
    if server is not None and chain is not None:
        begun = chain
        gap = problems.look(lambda: slot_gap(source, slot, begun))
        problems.found.extend([gap] if gap is not None else [])
    health = None
    if server is not None and slot is not None:
        at, state = server.current_lsn, slot
        health = problems.look(lambda: slot_health(state, at, chain, source.health))
    _judge_health(source, health, chain, problems)
    _judge_crossing(source, chain, cut, problems)
    room = None if sizes is None else problems.look(lambda: sizes(source.name))
    if room is not None:
        problems.found.extend(
            Problem(thing, why.reason, why.remedy, transient=False) for thing, why in room.damaged.items()
        )
    end = chain.end if chain is not None else None
    held = {} if cut is None else dict(sorted(cut.held.items()))
    left = problems.look(lambda: left_behind(source, held, chain)) or set()
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
        held=held,
        left_behind=frozenset(left),
        coming=None if look is None else problems.look(lambda: _coming(chain, cut)),
        snapshots=problems.look(lambda: _waiting(store, paths, chain, cut)) or {},
        lease_held=_is_locked(Path(paths.url(paths.lease_lock))),
        lease=problems.look(lambda: lease_holder(store, paths)),
        snapshot=problems.look(lambda: _snapshot(store, paths, chain)),
        proved=_proved(read_proved(store, paths), source, cut),
        sizes=room,
        problems=tuple(problems.found),
        unpublished=unpublished,
    )


def _coming(chain: Chain | None, cut: Cut | None) -> dict[TableName, Held]:
    """What a look at the catalog has found since the cut; positions of another incarnation can't be followed from it."""
    if chain is None or cut is None or cut.incarnation != chain.incarnation:
        return {}
    return will_be_held(chain, cut)


def _proved(proved: Mapping[TableName, Proved], source: SourceConfig, cut: Cut | None) -> dict[TableName, Proved]:
    """Without the tables that are not configured any more; where none is, those that the lake does not have."""
    known = set(proved) if cut is None else {*cut.tables, *cut.held}
    if source.selection:
        known = {table for table in proved if source.selection.selected(table)}
    return {table: said for table, said in sorted(proved.items()) if table in known}


def _snapshot(store: Store, paths: LakePaths, chain: Chain | None) -> SnapshotStatus | None:
    if chain is None:
        return None
    locked = _is_locked(Path(paths.url(paths.snapshot_lock)))
    return snapshot_status(store, paths, chain.incarnation, locked=locked)


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
    """What the slot alone shows to be wrong; the whole comparison is made by every drain before it starts.

    `slot` was read after `chain` was opened. Raises LakeError for a damaged link.
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
    """What has come so far that somebody should see to it; a lost slot has been named already."""
    if health is None or health.level is not Level.ERROR or chain is None:
        return
    reasons = [reason for reason in health.reasons if "invalidated it" not in reason]
    remedy = f"see that its drain runs and keeps up, or tear it down ({manual('Running it', 'Disk')})"
    if reasons:
        problems.found.append(Problem(f"slot {source.slot}", "; ".join(reasons), remedy, transient=False))


def _judge_crossing(source: SourceConfig, chain: Chain | None, cut: Cut | None, problems: _Problems) -> None:
    if chain is None or cut is None or cut.incarnation == chain.incarnation:
        return
    reason = f"the lake stands in incarnation {cut.incarnation}, the landing in {chain.incarnation}"
    remedy = f"run `lakeproof compact {source.name}` (after `lakeproof recover`, where that was not finished)"
    problems.found.append(Problem(f"source {source.name}", reason, remedy, transient=True))


def _waiting(store: Store, paths: LakePaths, chain: Chain | None, cut: Cut | None) -> dict[TableName, Lsn]:
    if chain is None:
        return {}
    pending = pending_snapshots(store, paths, chain.incarnation, cut)
    return {table: snapshot.consistent_point for table, snapshot in sorted(pending.items())}


def _position(cut: Cut | None, chain: Chain | None) -> Lsn | None:
    """Where the lake stands in the chain: positions of another incarnation can't be compared with it."""
    if chain is None:
        return None
    return cut.position if cut is not None and cut.incarnation == chain.incarnation else chain.head.end_lsn


def _distance(later: Lsn | None, earlier: Lsn | None) -> int | None:
    return None if later is None or earlier is None else max(0, later - earlier)


def _view(store: Store, config: Config, view: ViewConfig) -> ViewStatus:
    problems = _Problems()
    cut = problems.look(lambda: newest_view_cut(store, view.name))
    behind: dict[str, int] = {}
    for name, at in sorted(cut.sources.items()) if cut is not None else ():
        newest = problems.look(lambda source=name: newest_cut(store, LakePaths(config.lake, source)))  # type: ignore[misc]  # a default binds the loop's value
        if newest is not None:
            behind[name] = int(newest.number) - int(at)
    return ViewStatus(view.name, cut, behind, tuple(problems.found))


def _is_locked(file: Path) -> bool | None:
    """Whether a process holds `file`'s flock: read from the kernel's list, since trying the lock would disturb its taker."""
    try:
        inode = file.stat().st_ino
    except OSError:
        return False
    try:
        lines = _LOCKS.read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    # 1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF
    held = (line.split() for line in lines if " FLOCK " in line)
    return any(len(f) > 5 and f[5].rpartition(":")[2] == str(inode) for f in held if f[1] == "FLOCK")
