"""A view's newest cut, and how far it is behind what it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lakeproof.config.model import Config, ViewConfig
from lakeproof.lake.delta.log.commits import NO_VERSION, LogGapError, newest_external
from lakeproof.lake.delta.log.state import table_shape
from lakeproof.lake.records.cuts.groups import group_cuts
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion, newest_view_cut, view_path
from lakeproof.lake.records.views.definitions import why_not_applied
from lakeproof.names import CycleNumber
from lakeproof.state.problem import Problem, Problems
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


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


def view_status(config: Config, store: Store, view: ViewConfig) -> ViewStatus:
    """Return the state of one view."""
    problems = Problems()
    cut = problems.read(partial(newest_view_cut, store), view.name, None)
    behind: dict[str, int] = {}
    for name, number in sorted(cut.sources.items()) if cut is not None else ():
        newest = problems.read(partial(newest_for_views, config, store), name, None)
        if newest is not None:
            behind[name] = int(newest) - int(number)
    if cut is not None:
        behind |= problems.read(partial(behind_of_inputs, config, store), cut, {})
    return ViewStatus(view.name, cut, behind, tuple(problems.listed), why_not_applied(view, cut))


def behind_of_inputs(config: Config, store: Store, cut: ViewCut) -> dict[str, int]:
    """Return the versions of each external table since a view's cut, by its place, and 1 for each view that has others.

    Another table in the same place counts as 1, and so does one whose log has not even the version of the cut: the refresh
    says what is the matter. Raises LakeError for a damaged cut.
    """
    behind = {place: _versions(config, pinned) for place, pinned in cut.external.items()}
    for name, read in cut.views.items():
        newest, path = newest_view_cut(store, name), view_path(store, name)
        is_other = newest is not None and (newest.delta_version != read.delta_version or _is_another(path, read))
        behind[f"view {name}"] = int(is_other)
    return behind


def newest_for_views(config: Config, store: Store, source: str) -> CycleNumber | None:
    """Return the number of the source's cut that a refresh would read now."""
    group = config.group_of(source)
    if group is not None:
        return group_cuts(store, group).get(source)
    cut = newest_cut(SourceLake(store, LakePaths(source)))
    return None if cut is None else cut.number


def _versions(config: Config, pinned: ExternalVersion) -> int:
    try:
        newest = newest_external(config, pinned.path, pinned.delta_version)
        if newest == pinned.delta_version:
            return int(_is_another(pinned.path, pinned))
    except OSError:
        return 1
    return 1 if newest == NO_VERSION else newest - pinned.delta_version


def _is_another(path: str, read: ViewVersion | ExternalVersion) -> bool:
    """Return True if the table at `path` is not the one that was read; its log must have the version."""
    try:
        return bool(table_shape(path, read.delta_version).metadata["id"] != read.table_id)
    except LogGapError:
        return True
