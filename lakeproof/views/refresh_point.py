"""The point of one refresh: the cut of each source, the version of each external table, and what its views have become.

Computing and committing a view does not belong here (`lakeproof.views.refresh`), nor choosing views (`refresh`).

All views of a refresh are computed at this point. External Delta tables are found by place or name, and pinned to their
newest version; their changes are in `incremental.since_cut`. A view reads another at the version that this refresh has
given it, so two ways to one table lead to one cut; if the other was not brought up, whatever reads it stands still.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from urllib.parse import unquote

from pyspark.sql import SparkSession

from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import LakeError
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_external
from lakeproof.lake.delta.log.state import table_shape
from lakeproof.lake.delta.versions import TableDetail, table_detail
from lakeproof.lake.records.cuts.groups import group_cuts
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion, view_path
from lakeproof.lake.spark.failures import reading, reason_of
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store
from lakeproof.views.read_at import ReadAt

_CONVERT = "write it as a Delta table (CONVERT TO DELTA takes a folder of Parquet files), or bind the name to another"


@dataclass(slots=True)
class Point:
    """The newest cut of each source, read once for all views of one refresh; `number` is the refresh's own.

    Of a source in a group it is the cut that the group's newest cut names. Several threads may ask.
    """

    config: Config
    store: Store
    number: int
    _cuts: dict[str, Cut | None] = field(default_factory=dict)
    _versions: dict[str, ViewVersion] = field(default_factory=dict)
    _still: dict[str, str] = field(default_factory=dict)
    _external: ExternalTables = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._external = ExternalTables(self.config)

    def cut(self, source: str) -> Cut | None:
        """Return the source's cut."""
        with self._lock:
            if source not in self._cuts:
                group = self.config.group_of(source)
                members = [source] if group is None else self.config.group(group)
                # Of all its sources at once: the group may get another cut at any time.
                numbers = {} if group is None else group_cuts(self.store, group)
                for member in members:
                    lake = SourceLake(self.store, LakePaths(member))
                    number = numbers.get(member)
                    cut = newest_cut(lake) if group is None else None
                    self._take(member, cut if number is None else read_cut(lake, number))
            return self._cuts[source]

    def cuts_of(self, view: ViewConfig) -> dict[str, Cut]:
        """Return the cuts that there are of the view's sources, and of those of the views that it reads."""
        cuts = {source: self.cut(source) for source in sources_of(self.config.views, view.name)}
        return {source: cut for source, cut in cuts.items() if cut is not None}

    def read_at(self, session: SparkSession, view: ViewConfig) -> ReadAt:
        """Return the point for a view that does not stand still; raises LakeError if an external table can't be pinned."""
        own = {source for source, _ in view.reads.values()}
        cuts = {source: cut for source, cut in self.cuts_of(view).items() if source in own}
        views = {other: self._versions[other] for other in view.views.values()}
        external = {str(table): self._external.pin(session, table) for table in view.external.values()}
        return ReadAt(cuts, views, external)

    def stand_on(self, cut: ViewCut) -> None:
        """Take a view at its cut, with the versions behind it; raises LakeError if another view is of another state."""
        for source, number in cut.sources.items():
            self._take(source, read_cut(SourceLake(self.store, LakePaths(source)), number))
        for place, version in cut.external.items():
            if not self._external.keep(place, version):
                raise _other_point(f"external table {place}")
        self._take_version(cut)

    def _take(self, source: str, cut: Cut | None) -> None:
        taken = self._cuts.setdefault(source, cut)
        if taken is not cut and (taken is None or cut is None or taken.number != cut.number):
            raise _other_point(source)

    def brought_up(self, cut: ViewCut) -> None:
        """Note what a view has become, if another reads it."""
        if any(cut.view in view.views.values() for view in self.config.views.values()):
            self._take_version(cut)

    def _take_version(self, cut: ViewCut) -> None:
        shape = table_shape(view_path(self.store, cut.view), cut.delta_version)
        self._versions[cut.view] = ViewVersion(cut.delta_version, shape.metadata["id"], cut.row_bytes)

    def stop(self, view: str, reason: str) -> None:
        """Note why a view stands still."""
        self._still[view] = reason

    def why_still(self, view: ViewConfig) -> str | None:
        """Return why a view can't be brought to this point: a table that is held or missing, or a view that stands still."""
        for source, table in view.reads.values():
            cut, group = self.cut(source), self.config.group_of(source)
            if cut is None and group is not None:
                return f"group {group} of {source} has no cut yet"
            if cut is None or table not in cut.tables:
                return f"{source}: {table} is not in the lake yet"
            if table in cut.held:
                return f"{source}: {table} is held at {cut.held[table].at_lsn}: {cut.held[table].reason}"
        other = next((name for name in view.views.values() if name in self._still), None)
        return None if other is None else f"view {other}, which it reads, stands still: {self._still[other]}"


def _other_point(thing: str) -> LakeError:
    reason = "the views that are read were computed from different states of it"
    return LakeError(thing, reason, "run `lakeproof refresh`, which brings all views to one point, then this again")


class ExternalTables:
    """The external tables of one refresh: each is pinned once, so that all views of the refresh read the same version."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pinned: dict[str, ExternalVersion | LakeError] = {}
        self._lock = threading.Lock()

    def keep(self, place: str, version: ExternalVersion) -> bool:
        """Pin a table to the version that is given; False if it is pinned to another."""
        with self._lock:
            return self._pinned.setdefault(place, version) == version

    def pin(self, session: SparkSession, table: ExternalTable) -> ExternalVersion:
        """Return the table's version in this refresh; raises LakeError if it is none, or can't be read."""
        with self._lock:
            if str(table) not in self._pinned:
                try:
                    self._pinned[str(table)] = _pin(session, self._config, table)
                except LakeError as error:
                    self._pinned[str(table)] = error
            result = self._pinned[str(table)]
        if isinstance(result, LakeError):
            raise LakeError(result.thing, result.reason, result.remedy)
        return result


def _pin(session: SparkSession, config: Config, table: ExternalTable) -> ExternalVersion:
    thing = f"external table {table}"
    if table.kind == "delta":
        # Before Spark is asked, which would say it in its own words.
        if _newest(config, table.place, thing) == NO_VERSION:
            raise LakeError(thing, "there is no Delta table in this place, or nobody may read it", _CONVERT)
        name = f"delta.{quoted(table.place)}"
    else:
        name = ".".join(quoted(part) for part in table.place.split("."))
    detail = _detail(session, name, thing)
    if detail.format != "delta":
        raise LakeError(thing, f"it is no Delta table ({detail.format})", _CONVERT)
    path = table.place if table.kind == "delta" else _place(detail.path)
    version = _newest(config, path, thing)
    if version == NO_VERSION:
        raise LakeError(thing, "its log has no version", "see whether somebody is writing it, then refresh again")
    return ExternalVersion(path, detail.table_id, version)


def _newest(config: Config, path: str, thing: str) -> int:
    try:
        return newest_external(config, path)
    except OSError as error:
        raise LakeError(
            thing,
            f"its log can't be read ({error.strerror or type(error).__name__})",
            "give lakeproof the right to read it",
        ) from None


def _detail(session: SparkSession, name: str, thing: str) -> TableDetail:
    with reading(session) as attempt:
        detail = table_detail(session, name)
    if attempt.error is not None:
        raise LakeError(
            thing,
            f"it can't be read: {reason_of(attempt.error)}",
            "correct its name, or give lakeproof the right to read it",
        )
    return detail


def _place(location: str) -> str:
    """Return a location as Hadoop writes it (`file:/a%20b`) as a place that stores know."""
    return (
        unquote(location.removeprefix("file:")) if location.startswith("file:/") and "://" not in location else location
    )
