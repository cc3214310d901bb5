"""The compaction's run that goes on: cycles as changes land, views after them, and at intervals an event for each table.

The cycles do not belong here (`lakeproof.follow.follower`), nor keeping such a run alive (`orchestration.policies.lasting`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import dagster as dg

from assets.cycle_events import CycleEvents
from assets.cycle_totals import EVENTS, CutThrottle, TableTotals, Taken
from assets.support.engine_call import run_engine
from assets.support.event_budget import EventBudget
from assets.support.event_log import to_run_log
from assets.support.freshness import Heartbeat, window_s
from assets.support.keys import Layer
from assets.views import view_event
from lakeproof.errors import LakeproofError
from lakeproof.events import RunControl
from lakeproof.names import TableName
from lakeproof.storage.open import folder_to_check
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.views.round import ViewReport

# Between two looks at what is due: on an object store a round takes three requests.
_ROUND_S, _ROUND_S_REMOTE = 0.5, 10.0
# Another run writes its events in less.
_TURN_S = 10.0


@dataclass(frozen=True, slots=True)
class Continuous:
    """A continuous compaction of `name`, a source or a group: the tables that Dagster shows, by source, and its times."""

    name: str
    tables: Mapping[str, Sequence[TableName]]
    max_seconds: float
    event_seconds: float


def follow_and_report(context: dg.AssetExecutionContext, settings: Settings, spark: Compute, what: Continuous) -> None:
    """Follow the landing until the time is over; raises dagster.Failure for the engine's errors."""
    from lakeproof.commands.compact import follow
    from lakeproof.follow.follower import FollowOptions

    reporter = _Reporter(context, settings, what)
    log = to_run_log(context.log.info)
    options = FollowOptions(what.max_seconds, on_cuts=reporter.take_cuts, on_views=reporter.views.add)
    try:
        run_engine(
            lambda stop: follow(settings.config(), what.name, spark.on_demand, RunControl(log, stop), options),
            meanwhile=reporter.write_due,
            achieved=lambda: settings.compacted_through(what.tables),
        )
    finally:
        # Even if a person ended the run, so that plots have no gaps.
        reporter.write_rest()


class _Reporter:
    """The events of such a run: what is due, in rounds, each table once and then one event a second."""

    def __init__(self, context: dg.AssetExecutionContext, settings: Settings, what: Continuous) -> None:
        now_s, tables = time.monotonic(), what.tables
        self._context = context
        self._tables = {source: frozenset(names) for source, names in tables.items()}
        self._budget = EventBudget(EVENTS * sum(map(len, tables.values())), now_s)
        self._events = {s: CycleEvents(context.instance, settings, s, names) for s, names in tables.items()}
        unreported = {source: events.unreported() for source, events in self._events.items()}
        through = {source: int(each.through) for source, each in unreported.items()}
        self._cuts = CutThrottle(what.event_seconds, through, self._budget)
        for source, each in unreported.items():
            self._cuts.add_totals(source, each.tables, each.through)
        self.views = _ViewThrottle(what.event_seconds)
        self._quiet = _QuietTables(settings, what, self._cuts.is_waiting)
        self._lake = settings.config().location
        is_remote = folder_to_check(self._lake) is None
        self._round_s = _ROUND_S_REMOTE if is_remote else _ROUND_S
        self._looked_s = float("-inf")

    def take_cuts(self, cuts: Mapping[str, Sequence[CutReport]]) -> None:
        """Take the cycles that have just ended, with those that others have ended before; the follower's threads call it."""
        for source, ended in cuts.items():
            if ended and source in self._tables:
                before, first = self._cuts.through(source), int(ended[0].number)
                if first > before + 1:
                    self._cuts.add_totals(source, self._events[source].between(before, first - 1), first - 1)
                self._cuts.add(source, ended, self._tables[source])

    def write_due(self) -> None:
        """Write the events that are due."""
        now_s = time.monotonic()
        if now_s - self._looked_s < self._round_s:
            return
        self._looked_s = now_s
        quiet = self._quiet.take(now_s, self._budget)
        for source in self._tables:
            own = {table: TableTotals() for of, table in quiet if of == source}
            if own or self._cuts.is_due(source, now_s):
                with self._events[source].turn(0) as is_mine:
                    if is_mine:
                        self._write(source, self._cuts.take_due(source, now_s), own)
        self._write_views(now_s)

    def write_rest(self) -> None:
        """Write the events of all that no event has, at the end; what can't be written the next compaction reports."""
        for source, events in self._events.items():
            with events.turn(_TURN_S) as is_mine:
                if is_mine:
                    self._write(source, self._cuts.take_all(source, time.monotonic()), {})
        self._write_views(float("inf"))

    def _write(self, source: str, taken: Taken, quiet: Mapping[TableName, TableTotals]) -> None:
        done = {**quiet, **taken.tables}
        try:
            layers = list(self._events[source].events(done, taken.through))
        except LakeproofError as error:
            self._context.log.warning("events of %s have to wait: %s", source, error)
            self._cuts.put_back(source, taken)
            return
        self._quiet.heartbeat.beat([(source, table) for table in done], time.monotonic())
        for layer in layers:
            tags = {"dagster/data_version": layer.data_version.value}
            self._context.log_event(dg.AssetMaterialization(layer.key, layer.in_words, layer.metadata, tags=tags))

    def _write_views(self, now_s: float) -> None:
        for view in self.views.take(now_s):
            self._budget.spend(1, time.monotonic(), must=True)
            self._context.log_event(view_event(self._lake, view))


class _QuietTables:
    """Tables without changes that are due for an event: all that has landed is in their source's newest cut."""

    _PAUSE_S = 30.0

    def __init__(self, settings: Settings, what: Continuous, is_waiting: Callable[[str, TableName], bool]) -> None:
        config = settings.config()
        windows = {
            (name, table): window_s(config, config.sources[name], table, Layer.CURRENT)
            for name, tables in what.tables.items()
            for table in tables
        }
        self.heartbeat = Heartbeat(windows, time.monotonic())
        self._settings = settings
        self._is_waiting = is_waiting
        self._looked_s = float("-inf")

    def take(self, now_s: float, budget: EventBudget) -> list[tuple[str, TableName]]:
        """Return the tables that are due, as many as `budget` has events for.

        Not those that are held or wait for an event of their changes, nor those of a source whose changes wait.
        """
        due = [key for key in self.heartbeat.due(now_s) if not self._is_waiting(*key)]
        if not due or now_s - self._looked_s < self._PAUSE_S:
            return []
        self._looked_s = now_s
        try:
            held = {source: self._held(source) for source in {source for source, _ in due}}
        except LakeproofError:
            return []
        return [
            (source, table)
            for source, table in due
            if (standing := held[source]) is not None and table not in standing and budget.spend(EVENTS, now_s)
        ]

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
