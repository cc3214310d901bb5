"""A view's newest cut, and how far it is behind what it reads. Refreshing it does not belong here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lakeproof.config.model import Config, ViewConfig
from lakeproof.lake.records.view_cuts import ViewCut, newest_view_cut
from lakeproof.lake.records.view_definitions import why_not_applied
from lakeproof.state.problem import Problem, Problems
from lakeproof.state.views_behind import behind_of_inputs, newest_for_views
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
    cut = problems.read(lambda: newest_view_cut(store, view.name), None)
    behind: dict[str, int] = {}
    for name, number in sorted(cut.sources.items()) if cut is not None else ():
        newest = problems.read(partial(newest_for_views, config, store, name), None)
        if newest is not None:
            behind[name] = int(newest) - int(number)
    if cut is not None:
        behind |= problems.read(partial(behind_of_inputs, config, store, cut), {})
    return ViewStatus(view.name, cut, behind, tuple(problems.listed), why_not_applied(view, cut))
