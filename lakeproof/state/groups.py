"""A group's newest cut, and how far it is behind the landings of its sources. Making one does not belong here."""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.config.model import Config
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.records.group_cuts import GroupCut, newest_group_cut
from lakeproof.state.problem import Problem, Problems
from lakeproof.state.source import distance
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group's newest cut; `lag_bytes` is WAL that the least of its landings has beyond it, of source `slowest`."""

    group: str
    cut: GroupCut | None
    slowest: str | None
    lag_bytes: int | None
    problems: tuple[Problem, ...]


def group_status(config: Config, store: Store, group: str) -> GroupStatus:
    """Return the state of one group."""
    problems = Problems()
    cut = problems.read(lambda: newest_group_cut(store, group), None)
    lakes = [SourceLake(store, LakePaths(source)) for source in config.group(group)]
    place = problems.read(lambda: group_position(group, lakes), None)
    lag = distance(None if place is None else place.position, None if cut is None else cut.position)
    return GroupStatus(group, cut, None if place is None else place.slowest, lag, tuple(problems.listed))
