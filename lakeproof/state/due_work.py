"""Decides from a state if a compaction or a refresh has anything to do, before a command begins it or Dagster starts a run.

Doing it does not belong here, nor planning cycles (`lakeproof.compaction.pending`). In Dagster,
`orchestration.policies.run` decides whether another run is in the way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from lakeproof.config.model import Config
from lakeproof.config.view_graph import sources_of
from lakeproof.landing.chain import newest_incarnation
from lakeproof.state.source import SourceStatus
from lakeproof.state.status import StatusReport, lake_status
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.drift import why_drifted


def compaction_is_pointless(state: SourceStatus, *, has_work: bool) -> str | None:
    """Return why a compaction would do nothing, or fail; None if it has work."""
    if state.landing is None:
        return "there is no landing yet: bootstrap first"
    if state.lease_taken:
        return f"the lake is being written to ({state.lease})"
    return None if has_work else f"everything up to {state.landing.end_lsn} is in the lake"


def why_not_refresh(config: Config, view: str | Collection[str] | None) -> str | None:
    """Return why a refresh of a view, of these, or of all, would change nothing; None if one has work."""
    names = config.views if view is None else [view] if isinstance(view, str) else view
    chosen = [v for v in config.views.values() if v.name in names]
    if not chosen:
        return "each view has a mistake in its section" if config.faulty_views else "the configuration has no views"
    state = lake_status(config)
    if any(problem for v in chosen for problem in state.views[v.name].problems):
        # The refresh reports it.
        return None
    reads = {v.name: sources_of(config.views, v.name) for v in chosen}
    return refresh_is_pointless(state, reads, drifted_views(config, state))


def due_views(config: Config, names: Sequence[str]) -> list[str]:
    """Return those of the views that a refresh has work with, or can say more about."""
    state = lake_status(config)
    drifted = drifted_views(config, state)
    reads = {name: sources_of(config.views, name) for name in names}
    return [
        name
        for name in names
        if state.views[name].problems or refresh_is_pointless(state, {name: reads[name]}, drifted) is None
    ]


def drifted_views(config: Config, state: StatusReport) -> dict[str, str]:
    """Return the views that a refresh would look at although no source has a newer cut, with the reasons."""
    store, drifted = open_store(config.location), dict[str, str]()
    for view in config.views.values():
        cut = state.views[view.name].cut if view.name in state.views else None
        # Versions are those of this process; a command that runs elsewhere compares its own.
        reason = None if cut is None else why_drifted(store, view, cut, here=config.compute is None)
        if reason is not None:
            drifted[view.name] = reason
    return drifted


def refresh_is_pointless(
    state: StatusReport, reads: Mapping[str, Sequence[str]], drifted: Collection[str] = ()
) -> str | None:
    """Return why a refresh of views would change nothing; None if one has work. `reads` gives each view's sources.

    `drifted` is what `drifted_views` gives.
    """
    for view, sources in reads.items():
        view_status = state.views.get(view)
        if view_status is None:
            continue
        if view_status.cut is None and all(state.sources[source].cut is not None for source in sources):
            return None
        if view in drifted or any(view_status.behind.values()):
            return None
    return "no source that a view reads has a newer cut"


@dataclass(frozen=True, slots=True)
class FollowState:
    """State of a source in the lake: has it a landing, and does a process follow it (None: that can't be known)."""

    has_landing: bool
    is_followed: bool | None


def follow_state(lake: SourceLake) -> FollowState:
    """Return what the lake shows of a process that follows the source's landing."""
    return FollowState(newest_incarnation(lake) is not None, lake.store.is_locked(lake.paths.follow_lock))
