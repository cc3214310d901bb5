"""The state of sources, views and groups that a caller asks for, and the one word on it: it differs, or not.

Nothing is written and nothing is started here, least of all Spark. What is in the lake is reported even if the server can't
be reached, and whatever could not be read is listed as a problem.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lakeproof.config.model import Config
from lakeproof.config.section.spark import is_local
from lakeproof.config.view_graph import readers_of
from lakeproof.lake.planning.group_position import group_position
from lakeproof.lake.records.cuts.groups import GroupCut, newest_group_cut
from lakeproof.state.problem import Problem, Problems
from lakeproof.state.source import ServerLook, SourceStatus, distance, source_status
from lakeproof.state.views import ViewStatus, view_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store

if TYPE_CHECKING:
    # Importing it needs PySpark, which a status without sizes does not.
    from lakeproof.compaction.sizes import LakeSizes


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
    def differs(self) -> bool:
        """True if the lake is not what a source is."""
        return any(source.differs for source in self.sources.values())

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Return the problems of all sources, views and groups."""
        parts: list[SourceStatus | ViewStatus | GroupStatus] = [*self.sources.values(), *self.views.values()]
        parts += self.groups.values()
        return tuple(problem for part in parts for problem in part.problems)


def lake_status(
    config: Config,
    names: Iterable[str] | None = None,
    looks: Mapping[str, ServerLook | Exception] | None = None,
    sizes: Callable[[str], LakeSizes] | None = None,
) -> StatusReport:
    """Look at the sources `names`, the views that read them and the groups that they are in, at all of these by default.

    Without `looks`, what was seen of each server, only the lake is read, and of it only what decides if there is work.
    `sizes` gives those of a source, if the caller wants them. Raises ConfigError for a lake of a kind that is not supported;
    everything else becomes a problem in the report.
    """
    chosen = list(config.sources if names is None else names)
    store = open_store(config.location)
    return StatusReport(
        sources={name: source_status(config, name, (looks or {}).get(name), sizes) for name in chosen},
        views={view.name: view_status(config, store, view) for view in readers_of(config.views, chosen)}
        | {n: ViewStatus(n, None, {}, (Problem.of(fault),)) for n, fault in config.faulty_views.items()},
        groups={
            g: group_status(config, store, g) for g, members in config.groups.items() if set(members) & set(chosen)
        },
        cluster=None if is_local(config.spark.master) else config.spark.master,
    )


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
    cut = problems.read(partial(newest_group_cut, store), group, None)
    lakes = [SourceLake(store, LakePaths(source)) for source in config.group(group)]
    place = problems.read(partial(group_position, group), lakes, None)
    lag = distance(None if place is None else place.position, None if cut is None else cut.position)
    return GroupStatus(group, cut, None if place is None else place.slowest, lag, tuple(problems.listed))
