"""The compaction's run that goes on: cycles as changes land, views after them, and at intervals an event for each table.

The cycles do not belong here (`lakeproof.commands.follow`), nor keeping such a run alive (`orchestration.policies.follow`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import dagster as dg

from assets.cycle_metadata import written
from assets.cycle_totals import CutThrottle, TableTotals
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_log
from assets.support.keys import view_key
from assets.views import view_event
from lakeproof.commands.follow import FollowOptions, follow
from lakeproof.commands.refresh import ViewReport
from lakeproof.events import RunControl
from lakeproof.names import TableName
from resources import Compute, Settings


@dataclass(frozen=True, slots=True)
class Continuous:
    """A continuous compaction of `name`, a source or a group: the tables that Dagster shows, by source, and its times."""

    name: str
    tables: Mapping[str, Sequence[TableName]]
    max_seconds: float
    event_seconds: float


def follow_and_report(context: dg.AssetExecutionContext, settings: Settings, spark: Compute, what: Continuous) -> None:
    """Follow the landing until the time is over; raises dagster.Failure for the engine's errors."""
    cuts, views = CutThrottle(what.event_seconds), _ViewThrottle(what.event_seconds)
    log = to_run_log(context.log.info)

    def report(due: Mapping[tuple[str, TableName], TableTotals], refreshed: Sequence[ViewReport]) -> None:
        newest = {source: settings.newest_cut(source) for source in {source for source, _ in due}}
        for (source, table), totals in due.items():
            cut = newest[source]
            if cut is None or table not in what.tables.get(source, ()):
                continue
            for layer in written(source, table, cut, totals):
                tags = {"dagster/data_version": layer.data_version.value}
                context.log_event(dg.AssetMaterialization(layer.key, metadata=layer.metadata, tags=tags))
        for view in refreshed:
            context.log_event(view_event(view_key(view.view), view))

    def report_due() -> None:
        now_s = time.monotonic()
        report(cuts.take_due(now_s), views.take(now_s))

    options = FollowOptions(what.max_seconds, on_cuts=cuts.add, on_views=views.add)
    try:
        run_engine(
            lambda stop: follow(settings.config(), what.name, spark.session, RunControl(log, stop), options),
            meanwhile=report_due,
        )
    finally:
        # Even if a person ended the run, so that plots have no gaps.
        report(cuts.take_all(time.monotonic()), views.take(float("inf")))


class _ViewThrottle:
    """Refreshes of views that no event has reported yet; called from different threads."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._waiting: dict[str, ViewReport] = {}
        self._last_event_s: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, views: Sequence[ViewReport]) -> None:
        with self._lock:
            for view in views:
                before = self._waiting.get(view.view)
                if before is not None:
                    rows = before.inserted + view.inserted, before.retracted + view.retracted
                    self._waiting[view.view] = replace(view, inserted=rows[0], retracted=rows[1])
                else:
                    self._waiting[view.view] = view

    def take(self, now_s: float) -> list[ViewReport]:
        with self._lock:
            due = [v for v in self._waiting if now_s - self._last_event_s.get(v, float("-inf")) >= self._every_s]
            self._last_event_s.update(dict.fromkeys(due, now_s))
            return [self._waiting.pop(view) for view in due]
