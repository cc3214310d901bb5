"""Decides if a compaction has anything to do, before a command takes the lease or Dagster starts a run.

A compaction plans each cycle from manifests and documents alone, so the same plan answers here. If the landing only moved
on, because the server wrote what is not published, there is no work: the cut would have another position and nothing else.
"""

from __future__ import annotations

from lakeproof.config.model import Config
from lakeproof.events import counted
from lakeproof.lake.planning.entries import pending_snapshots
from lakeproof.lake.planning.forecast import after_plan, next_plan
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.planning.next_incarnation import plan_switch, to_be_followed
from lakeproof.lake.planning.plan import CyclePlan
from lakeproof.lake.records.cuts.groups import newest_group_cut
from lakeproof.lake.records.documents import Cut, CycleKind
from lakeproof.lake.records.store import newest_cut, newest_number
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.landing.missing import no_landing
from lakeproof.lsn import Lsn
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake


def compaction_has_work(config: Config, name: str) -> bool:
    """True if a compaction of the source `name` would write something other than its position, or end an interrupted cycle.

    Raises LakeError if there is no landing, or one that is damaged.
    """
    lake = SourceLake.open(config.location, name)
    if newest_incarnation(lake) is None:
        raise no_landing(lake)
    return _is_interrupted(lake) or _has_work_up_to(config, lake)


def what_is_left(config: Config, name: str) -> str | None:
    """Return what a compaction of the source `name` would still do, for people; None if it has no work."""
    if not compaction_has_work(config, name):
        return None
    lake = SourceLake.open(config.location, name)
    cut, chain, parts = newest_cut(lake), Chain.open_newest(lake), list[str]()
    if chain is not None:
        follows = cut is not None and cut.incarnation == chain.incarnation
        start = cut.position if cut is not None and follows else chain.head.end_lsn
        changes = sum(manifest.rows for manifest in chain.between(start, chain.end))
        copies = len(pending_snapshots(lake, chain.incarnation, cut))
        parts += [counted(changes, "change")] if changes else []
        parts += [counted(copies, "copied table")] if copies else []
    return " and ".join(parts) or "an interrupted cycle"


def group_has_work(config: Config, group: str) -> bool:
    """Return True if a compaction of a group would write more than positions, or end an interrupted cycle.

    Raises as `group_position`.
    """
    lakes = [SourceLake.open(config.location, name) for name in config.group(group)]
    if any(_is_interrupted(lake) for lake in lakes):
        return True
    end = group_position(group, lakes).position
    newest = newest_group_cut(open_store(config.location), group)
    if newest is None or any(_has_work_up_to(config, lake, end) for lake in lakes):
        return True
    # A proof brings one source further than the others.
    return any(newest.names(lake.source) != newest_number(lake.store, lake.paths.cuts) for lake in lakes)


def _is_interrupted(lake: SourceLake) -> bool:
    return newest_number(lake.store, lake.paths.intents) > newest_number(lake.store, lake.paths.cuts)


def _has_work_up_to(config: Config, lake: SourceLake, end: Lsn | None = None) -> bool:
    cut = newest_cut(lake)
    rows = config.source(lake.source).compaction.cycle_rows
    for incarnation in to_be_followed(lake, cut):
        chain = Chain.open(lake, incarnation)
        if cut is not None and incarnation != cut.incarnation:
            pending = pending_snapshots(lake, incarnation, cut)
            return plan_switch(chain, cut, pending) is not None
        if _has_work(chain, cut, rows, chain.end if end is None else end):
            return True
    return False


def _has_work(chain: Chain, cut: Cut | None, cycle_rows: int, end: Lsn) -> bool:
    start = chain.head.end_lsn if cut is None else cut.position
    if any(manifest.rows for manifest in chain.between(start, end)):
        return True
    plan = next_plan(chain, cut, cycle_rows=cycle_rows, end=end)
    if plan is None or not _only_moves(plan, cut):
        return plan is not None
    # Something ends the range there, and becomes due then.
    if plan.end < end:
        return True
    return cut is not None and next_plan(chain, after_plan(cut, plan, {}), cycle_rows=cycle_rows, end=end) is not None


def _only_moves(plan: CyclePlan, cut: Cut | None) -> bool:
    """True if the cycle would write another position and nothing else."""
    held = set() if cut is None else cut.held.keys()
    return plan.kind is CycleKind.APPLY and not plan.tables and not plan.ordinals.segments and plan.held.keys() == held
