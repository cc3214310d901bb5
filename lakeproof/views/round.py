"""Refreshes views, all at the same cuts of the sources they read: the newest ones, or those of a group, when it begins.

Computing and committing one view is in `lakeproof.views.refresh`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from pyspark.sql import SparkSession

from lakeproof.concurrently import after_inputs
from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.view_graph import with_inputs
from lakeproof.errors import ConfigError, LakeError
from lakeproof.events import Event, Report, counted, silent
from lakeproof.lake.records.views.cuts import ViewsLock, newest_view_cut_number
from lakeproof.lake.records.views.definitions import why_not_applied
from lakeproof.lake.rows.memory import fit, views_at_once
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import concerns_all, reading, without_java
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber
from lakeproof.sql_catalog import name_views
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store
from lakeproof.views.applied import AppliedViews
from lakeproof.views.incremental.since_cut import changes_since, table_rows
from lakeproof.views.read_at import ViewInputs, unreadable_error
from lakeproof.views.refresh import refresh_view
from lakeproof.views.refresh_point import Point

# Two refreshes of one process put one set of names.
_NAMING = Lock()


@dataclass(frozen=True, slots=True)
class ViewReport:
    """The result of a refresh of one view.

    `sources` gives for each source the number and the position of the cut it was read at. If `stands_still` gives a reason,
    nothing was written and `cut` and `delta_version` are None. `strategy`, `reason`, `changed_rows` and `rows_read` are its
    cut's, and so are the versions of its `external` tables, by place; `not_applied` as in a view's status.
    """

    view: str
    cut: CycleNumber | None = None
    delta_version: int | None = None
    inserted: int = 0
    retracted: int = 0
    sources: Mapping[str, tuple[CycleNumber, Lsn]] = field(default_factory=dict)
    stands_still: str | None = None
    strategy: str | None = None
    reason: str | None = None
    changed_rows: int | None = None
    rows_read: int | None = None
    external: Mapping[str, int] = field(default_factory=dict)
    not_applied: str | None = None


@dataclass(frozen=True, slots=True)
class Round:
    """One refresh under a lock that its caller holds; its `number` is no other refresh's.

    At most `threads` of its views are computed at a time (None: as the configuration says), and `ended` is called with each
    as it ends. With `whole` each is computed by its whole query, whatever has changed.
    """

    lock: ViewsLock
    number: int
    threads: int | None = None
    whole: bool = False
    ended: Callable[[str], None] = lambda _name: None


@without_java(lambda _this, _config, view, *_, **__: f"view {view}" if isinstance(view, str) else "views")
def refresh_under(
    this: Round, config: Config, view: str | Collection[str] | None, spark: SparkSession, report: Report = silent
) -> list[ViewReport]:
    """Refresh the views that were chosen, and those that they read; raises as `lakeproof.commands.refresh`.

    Several rounds may be at work under one lock, if no view is in two of them, nor reads one that is.
    """
    chosen = chosen_views(config, view)
    store = open_store(config.location)
    reports: dict[str, ViewReport] = {}
    with at_work(spark, config.location):
        applied = AppliedViews.read(config, store)
        needs = applied.in_order(chosen)
        run = _Run(config, applied, Point(applied.config, store, this.number), this.lock, spark, this.whole)
        threads = this.threads or views_at_once(spark, config.views_at_once)
        faulty = faulty_views(config, view, report)
        for name, view_report in after_inputs(needs, lambda n: run.refresh_or_stop(n, raises=n == view), threads):
            reports[name] = view_report
            report(_event(view_report))
            this.ended(name)
        with _NAMING:
            name_views(config, spark, report)
    return [*faulty, *(reports[name] for name in needs)]


def faulty_views(config: Config, view: str | Collection[str] | None, report: Report) -> list[ViewReport]:
    """Return a report of each view of a refresh whose section has mistakes: it stands still, and all other views go on."""
    names = config.faulty_views if view is None else [view] if isinstance(view, str) else view
    chosen = [name for name in config.faulty_views if name in names]
    reports = [ViewReport(n, stands_still=str(config.faulty_views[n])) for n in chosen]
    for view_report in reports:
        report(_event(view_report))
    return reports


def chosen_views(config: Config, view: str | Collection[str] | None) -> list[str]:
    """Return the names of the views of a refresh; raises ConfigError for one that is not there or has mistakes."""
    if view is None:
        return list(config.views)
    chosen = [view] if isinstance(view, str) else [name for name in view if name not in config.faulty_views]
    return [config.view(name).name for name in chosen]


@dataclass(frozen=True, slots=True)
class _Run:
    """One refresh at work: the configuration as the file has it, the views as they are applied, and their point."""

    config: Config
    applied: AppliedViews
    point: Point
    lock: ViewsLock
    spark: SparkSession
    whole: bool

    def refresh_or_stop(self, name: str, *, raises: bool) -> ViewReport:
        """Refresh one view; its own fault does not concern the other views, unless `raises`."""
        try:
            fault = self.applied.faults.get(name)
            if fault is not None:
                raise type(fault)(fault.thing, fault.reason, fault.remedy)
            report = self._refresh(self.applied.config.views[name], self.spark.newSession())
        except (LakeError, ConfigError) as error:
            if raises or concerns_all(error):
                raise
            report = ViewReport(name, stands_still=str(error))
        if report.stands_still is not None:
            self.point.stop(name, report.stands_still)
        return report

    def _refresh(self, view: ViewConfig, session: SparkSession) -> ViewReport:
        point, location = self.point, self.config.location
        why = point.why_still(view)
        if why is not None:
            return ViewReport(view.name, stands_still=why)
        cuts, read = point.cuts_of(view), point.read_at(session, view)
        fit(session, read.row_bytes(view), views_at_once(session, self.config.views_at_once))
        numbers = {source: cut.number for source, cut in cuts.items()}
        with reading(session) as attempt:
            since = None if self.whole else partial(changes_since, session, location, view, now=read)
            rows = partial(table_rows, location, view)
            inputs = ViewInputs(read.frames(session, location, view), numbers, point.number, since, rows, read)
            view_cut = refresh_view(session, point.store, view, inputs, self.lock)
            point.brought_up(view_cut)
        if attempt.error is not None:
            raise unreadable_error(point.store, view, read, attempt.error) from attempt.error
        return ViewReport(
            view=view.name,
            cut=view_cut.number,
            delta_version=view_cut.delta_version,
            inserted=view_cut.inserted,
            retracted=view_cut.retracted,
            sources={source: (cut.number, cut.position) for source, cut in cuts.items()},
            strategy=view_cut.strategy,
            reason=view_cut.reason,
            changed_rows=view_cut.changed_rows,
            rows_read=view_cut.rows_read,
            external={place: pinned.delta_version for place, pinned in view_cut.external.items()},
            not_applied=why_not_applied(self.config.views[view.name], self.applied.newest.get(view.name)),
        )


def inputs_at_newest(config: Config, view: ViewConfig, session: SparkSession, store: Store) -> ViewInputs:
    """Return what a view reads by the definition given, for a refresh of it alone as a whole.

    Tables are at the newest cuts, or at those of the views that it reads, which stay as they are. Raises LakeError if it
    stands still, or if these views are of different points or older than the view; ConfigError for a circle.
    """
    applied = AppliedViews.read(config, store)
    views = {**applied.config.views, view.name: view}
    point = Point(config.model_copy(update={"views": views}), store, int(newest_view_cut_number(store)) + 1)
    for other in with_inputs(views, [view.name])[:-1]:
        if other in applied.faults:
            raise applied.faults[other]
        if other not in applied.newest:
            raise LakeError(f"view {other}", "the lake does not have it yet", f"run `lakeproof refresh {other}` first")
        point.stand_on(applied.newest[other])
    why = point.why_still(view)
    if why is not None:
        raise LakeError(f"view {view.name}", f"it stands still: {why}", "put that right first")
    cuts, read = {source: cut.number for source, cut in point.cuts_of(view).items()}, point.read_at(session, view)
    own = applied.newest.get(view.name)
    if own is not None and any(number < own.sources.get(source, number) for source, number in cuts.items()):
        reason = "a view that it reads is older than the view itself"
        raise LakeError(f"view {view.name}", reason, "run `lakeproof refresh`, then this again")
    fit(session, read.row_bytes(view))
    return ViewInputs(read.frames(session, config.location, view), cuts, point.number, point=read)


def _event(report: ViewReport) -> Event:
    if report.stands_still is not None:
        return Event(
            "view.stands_still", f"view {report.view} stands still: {report.stands_still}", {"view": report.view}
        )
    how = f"as a whole: {report.reason}"
    if report.changed_rows is not None:
        how = f"{report.strategy}, from {counted(report.changed_rows, 'changed row')}"
    return Event(
        "view.refreshed",
        f"view {report.view}: {counted(report.inserted, 'row')} inserted, {report.retracted:,} retracted ({how};"
        f" {counted(report.rows_read or 0, 'row')} read)"
        + ("" if report.not_applied is None else f"; {report.not_applied}"),
        {
            "view": report.view,
            "not_applied": report.not_applied,
            "strategy": report.strategy,
            "reason": report.reason,
            "changed_rows": report.changed_rows,
            "rows_read": report.rows_read,
            "cut": report.cut,
            "delta_version": report.delta_version,
            "inserted_rows": report.inserted,
            "retracted_rows": report.retracted,
            "sources": {s: {"cut": int(n), "position": str(p)} for s, (n, p) in report.sources.items()},
            "external": dict(report.external),
        },
    )
