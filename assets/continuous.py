"""The compaction's run that goes on: cycles as changes land, views after them, and at intervals an event for each table.

The cycles do not belong here (`lakeproof.commands.follow`), nor keeping such a run alive (`orchestration.policies.follow`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg

from assets.cycle_metadata import written
from assets.cycle_totals import CutThrottle, TableTotals
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_log
from assets.support.freshness import Heartbeat, window_s
from assets.support.keys import Layer, view_key
from assets.views import view_event
from lakeproof.errors import LakeproofError
from lakeproof.events import RunControl
from lakeproof.names import TableName
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.commands.refresh import ViewReport


@dataclass(frozen=True, slots=True)
class Continuous:
    """A continuous compaction of `name`, a source or a group: the tables that Dagster shows, by source, and its times."""

    name: str
    tables: Mapping[str, Sequence[TableName]]
    max_seconds: float
    event_seconds: float


def follow_and_report(context: dg.AssetExecutionContext, settings: Settings, spark: Compute, what: Continuous) -> None:
    """Follow the landing until the time is over; raises dagster.Failure for the engine's errors."""
    from lakeproof.commands.follow import FollowOptions, follow

    cuts, views = CutThrottle(what.event_seconds), _ViewThrottle(what.event_seconds)
    log = to_run_log(context.log.info)
    quiet = _QuietTables(settings, what)

    def report(due: Mapping[tuple[str, TableName], TableTotals], refreshed: Sequence[ViewReport]) -> None:
        sources = {source for source, _ in due}
        newest = {source: settings.newest_cut(source) for source in sources}
        described = {source: settings.descriptions(source) for source in sources}
        quiet.heartbeat.beat(due, time.monotonic())
        for (source, table), totals in due.items():
            cut = newest[source]
            if cut is None or table not in what.tables.get(source, ()):
                continue
            for layer in written(source, table, cut, totals, described[source].get(table)):
                tags = {"dagster/data_version": layer.data_version.value}
                context.log_event(dg.AssetMaterialization(layer.key, layer.in_words, layer.metadata, tags=tags))
        for view in refreshed:
            context.log_event(view_event(view_key(view.view), view))

    def report_due() -> None:
        now_s = time.monotonic()
        report({**quiet.take(now_s), **cuts.take_due(now_s)}, views.take(now_s))

    options = FollowOptions(what.max_seconds, on_cuts=cuts.add, on_views=views.add)
    try:
        run_engine(
            lambda stop: follow(settings.config(), what.name, spark.session, RunControl(log, stop), options),
            meanwhile=report_due,
        )
    finally:
        # Even if a person ended the run, so that plots have no gaps.
        report(cuts.take_all(time.monotonic()), views.take(float("inf")))


class _QuietTables:
    """Tables without changes that are due for an event: all that has landed is in their source's newest cut."""

    _PAUSE_S = 30.0

    def __init__(self, settings: Settings, what: Continuous) -> None:
        config = settings.config()
        windows = {
            (name, table): window_s(config, config.sources[name], table, Layer.CURRENT)
            for name, tables in what.tables.items()
            for table in tables
        }
        self.heartbeat = Heartbeat(windows, time.monotonic())
        self._settings = settings
        self._looked_s = float("-inf")

    def take(self, now_s: float) -> dict[tuple[str, TableName], TableTotals]:
        """Return the tables that are due; not those that are held, nor those of a source whose changes wait."""
        due = self.heartbeat.due(now_s)
        if not due or now_s - self._looked_s < self._PAUSE_S:
            return {}
        self._looked_s = now_s
        try:
            held = {source: self._held(source) for source in {source for source, _ in due}}
        except LakeproofError:
            return {}
        return {
            (source, table): TableTotals()
            for source, table in due
            if (standing := held[source]) is not None and table not in standing
        }

    def _held(self, source: str) -> Container[TableName] | None:
        """Return the held tables of a source, None if its newest cut is not all that has landed."""
        cut = self._settings.newest_cut(source)
        return None if cut is None or self._settings.has_work(source) else cut.held


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
