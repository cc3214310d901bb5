"""Refreshes views, all at the same cuts of the sources they read: the newest ones, or those of a group, when it begins.

Computing and committing one view does not belong here but in `lakeproof.views.refresh`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import SparkSession

from lakeproof.commands.sql_catalog import name_views
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Event, Report, counted, silent
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.group_cuts import group_cuts
from lakeproof.lake.records.store import newest_cut, read_cut
from lakeproof.lake.records.view_cuts import newest_view_cut_number, one_refresh, view_path
from lakeproof.lake.spark.executors import at_work
from lakeproof.lake.spark.failures import concerns_all, reading, reason_of, without_java
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store
from lakeproof.views.refresh import ViewInputs, refresh_view, view_tables
from lakeproof.views.since_cut import changes_since


@dataclass(frozen=True, slots=True)
class ViewReport:
    """The result of a refresh of one view.

    `sources` gives for each source the number and the position of the cut it was read at. If `held` says why the view stands
    still, nothing was written and `cut` and `delta_version` are None. `strategy`, `reason` and `changed_rows` are its cut's.
    """

    view: str
    cut: CycleNumber | None
    delta_version: int | None
    inserted: int
    retracted: int
    sources: Mapping[str, tuple[CycleNumber, Lsn]] = field(default_factory=dict)
    held: str | None = None
    strategy: str | None = None
    reason: str | None = None
    changed_rows: int | None = None


@without_java(lambda _config, view, *_, **__: f"view {view}" if isinstance(view, str) else "views")
def refresh(
    config: Config, view: str | Collection[str] | None, spark: SparkSession, report: Report = silent
) -> list[ViewReport]:
    """Refresh the view of that name, those of these names, or every view.

    A view over a table that is held or not in the lake yet is held itself. If not just one view is refreshed, so is one
    with a wrong definition (or one that is wrong since a column was renamed), a damaged document or table. Raises
    ConfigError for an unknown name, and for one view's wrong definition, LakeError for a damaged cut or table,
    TransientError if another process refreshes views of this lake.
    """
    views = _chosen(config, view)
    store = open_store(config.location)
    reports = []
    with at_work(spark, config.location), one_refresh(store):
        point = _Point(config, store, int(newest_view_cut_number(store)) + 1)
        for chosen in views:
            try:
                view_report = _refresh_one(config, chosen, spark.newSession(), point)
            except (LakeError, ConfigError) as error:
                # A fault of one view's source, definition or table does not concern the other views.
                if isinstance(view, str) or concerns_all(error):
                    raise
                view_report = ViewReport(chosen.name, None, None, 0, 0, held=str(error))
            reports.append(view_report)
            report(_event(view_report))
        name_views(config, spark, report)
    return reports


def _chosen(config: Config, view: str | Collection[str] | None) -> list[ViewConfig]:
    if view is None:
        return list(config.views.values())
    chosen = [view] if isinstance(view, str) else [*view]
    for name in chosen:
        if name not in config.views:
            names = ", ".join(sorted(config.views)) or "there are none"
            raise ConfigError(f"view {name}", f"it is not in {config.path}", f"name one of its views: {names}")
    return [config.views[name] for name in chosen]


@dataclass(frozen=True, slots=True)
class _Point:
    """The newest cut of each source, read once for all views of one refresh; `number` is the refresh's own.

    Of a source in a group it is the cut that the group's newest cut names.
    """

    config: Config
    store: Store
    number: int
    cuts: dict[str, Cut | None] = field(default_factory=dict)

    def cut(self, source: str) -> Cut | None:
        """Return the source's cut."""
        if source not in self.cuts:
            group = self.config.group_of(source)
            members = [source] if group is None else self.config.group(group)
            # Of all its sources at once: the group may get another cut at any time.
            numbers = {} if group is None else group_cuts(self.store, group)
            for member in members:
                lake = SourceLake(self.store, LakePaths(member))
                number = numbers.get(member)
                cut = newest_cut(lake) if group is None else None
                self.cuts[member] = cut if number is None else read_cut(lake, number)
        return self.cuts[source]


def _refresh_one(config: Config, view: ViewConfig, session: SparkSession, point: _Point) -> ViewReport:
    cuts = {source: point.cut(source) for source, _ in view.reads.values()}
    held = _why_held(config, view, cuts)
    if held is not None:
        return ViewReport(view.name, None, None, 0, 0, held=held)
    existing_cuts = {source: cut for source, cut in cuts.items() if cut is not None}
    tables = view_tables(session, config.location, view, existing_cuts)
    numbers = {source: cut.number for source, cut in existing_cuts.items()}
    with reading(session) as attempt:
        since = partial(changes_since, session, config.location, view, now=existing_cuts)
        inputs = ViewInputs(tables, numbers, point.number, since)
        view_cut = refresh_view(session, point.store, view, inputs)
    if attempt.error is not None:
        raise LakeError(
            f"view {view.name}: {view_path(point.store, view.name)}",
            f"its table, or a table that it reads, can't be read or written: {reason_of(attempt.error)}",
            "if the damaged table is the view's own, move that folder away: the next refresh creates it again",
        ) from attempt.error
    return ViewReport(
        view=view.name,
        cut=view_cut.number,
        delta_version=view_cut.delta_version,
        inserted=view_cut.inserted,
        retracted=view_cut.retracted,
        sources={source: (cut.number, cut.position) for source, cut in existing_cuts.items()},
        strategy=view_cut.strategy,
        reason=view_cut.reason,
        changed_rows=view_cut.changed_rows,
    )


def _why_held(config: Config, view: ViewConfig, cuts: Mapping[str, Cut | None]) -> str | None:
    for source, table in view.reads.values():
        cut, group = cuts[source], config.group_of(source)
        if cut is None and group is not None:
            return f"group {group} of {source} has no cut yet"
        if cut is None or table not in cut.tables:
            return f"{source}: {table} is not in the lake yet"
        if table in cut.held:
            return f"{source}: {table} is held at {cut.held[table].at_lsn}: {cut.held[table].reason}"
    return None


def held_views(config: Config, view: str | None) -> list[ViewReport]:
    """Return the views (or one) that a refresh would leave alone: they read a table that is held or not in the lake."""
    point = _Point(config, open_store(config.location), 0)
    reasons = {
        v.name: _why_held(config, v, {s: point.cut(s) for s, _ in v.reads.values()}) for v in _chosen(config, view)
    }
    return [ViewReport(name, None, None, 0, 0, held=held) for name, held in reasons.items() if held is not None]


def _event(report: ViewReport) -> Event:
    if report.held is not None:
        return Event("view.held", f"view {report.view} stands still: {report.held}", {"view": report.view})
    how = f"as a whole: {report.reason}"
    if report.changed_rows is not None:
        how = f"{report.strategy}, from {counted(report.changed_rows, 'changed row')}"
    return Event(
        "view.refreshed",
        f"view {report.view}: {counted(report.inserted, 'row')} inserted, {report.retracted:,} retracted ({how})",
        {
            "view": report.view,
            "strategy": report.strategy,
            "reason": report.reason,
            "changed_rows": report.changed_rows,
            "cut": report.cut,
            "delta_version": report.delta_version,
            "inserted_rows": report.inserted,
            "retracted_rows": report.retracted,
            "sources": {s: {"cut": int(n), "position": str(p)} for s, (n, p) in report.sources.items()},
        },
    )
