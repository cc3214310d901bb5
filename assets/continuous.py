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

from assets.cycle_metadata import layers
from assets.cycle_totals import EVENTS, CutThrottle, TableTotals
from assets.support.command_call import Lasting, run_lasting_command
from assets.support.event_budget import EventBudget
from assets.support.freshness import Heartbeat, window_s
from assets.support.keys import Layer
from assets.views import view_event
from lakeproof.cli.results import from_json
from lakeproof.errors import LakeproofError
from lakeproof.events import FOLLOWED_CUTS, FOLLOWED_VIEWS, Event
from lakeproof.names import TableName
from lakeproof.storage.open import folder_to_check
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.views.round import ViewReport

# Between two looks at what is due: on an object store a round takes three requests.
_ROUND_S, _ROUND_S_REMOTE = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Continuous:
    """A continuous compaction of `name`, a source or a group: the tables that Dagster shows, by source, and its times."""

    name: str
    tables: Mapping[str, Sequence[TableName]]
    max_seconds: float
    event_seconds: float


def follow_and_report(
    context: dg.AssetExecutionContext, settings: Settings, compute: Compute, what: Continuous
) -> None:
    """Follow the landing until the time is over; raises as `run_lasting_command` does."""
    reporter = _Reporter(context, settings, what)
    of = ["--group", what.name] if what.name in settings.config().groups else [what.name]
    words = ["compact", *of, "--follow", "--seconds", str(what.max_seconds)]
    beside = Lasting(reporter.hear, reporter.write_due, lambda: settings.compacted_through(what.tables))
    try:
        run_lasting_command(context, compute, words, beside)
    finally:
        # Even if a person ended the run, so that plots have no gaps.
        reporter.write_rest()


class _Reporter:
    """The events of such a run: what is due, in rounds, each table once and then one event a second."""

    def __init__(self, context: dg.AssetExecutionContext, settings: Settings, what: Continuous) -> None:
        self._context = context
        self._settings = settings
        self._tables = {source: frozenset(names) for source, names in what.tables.items()}
        self._budget = EventBudget(EVENTS * sum(map(len, what.tables.values())), time.monotonic())
        self._cuts = CutThrottle(what.event_seconds, self._budget)
        self._views = _ViewThrottle(what.event_seconds)
        self._quiet = _QuietTables(settings, what, self._cuts.is_waiting)
        self._lake = settings.config().location
        is_remote = folder_to_check(self._lake) is None
        self._round_s = _ROUND_S_REMOTE if is_remote else _ROUND_S
        self._looked_s = float("-inf")

    def hear(self, event: Event) -> None:
        """Take the cycles or the refreshes that have just ended; the command's threads call it."""
        from lakeproof.lake.cycle.runner import CutReport
        from lakeproof.views.round import ViewReport

        if event.kind == FOLLOWED_CUTS:
            for source, ended in from_json(dict[str, list[CutReport]], event.fields["cuts"]).items():
                self._cuts.add(source, ended, self._tables.get(source, frozenset()))
        elif event.kind == FOLLOWED_VIEWS:
            self._views.add(from_json(list[ViewReport], event.fields["views"]))

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
                self._write(source, {**own, **self._cuts.take_due(source, now_s)})
        self._write_views(now_s)

    def write_rest(self) -> None:
        """Write the events of all that no event has, at the end."""
        for source in self._tables:
            self._write(source, self._cuts.take_all(source, time.monotonic()))
        self._write_views(float("inf"))

    def _write(self, source: str, done: Mapping[TableName, TableTotals]) -> None:
        try:
            written = layers(self._settings, source, done)
        except LakeproofError as error:
            self._context.log.warning("events of %s are missing: %s", source, error)
            return
        self._quiet.heartbeat.beat([(source, table) for table in done], time.monotonic())
        for layer in written:
            tags = {"dagster/data_version": layer.data_version.value}
            self._context.log_event(dg.AssetMaterialization(layer.key, layer.in_words, layer.metadata, tags=tags))

    def _write_views(self, now_s: float) -> None:
        for view in self._views.take(now_s):
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
        # Each table is due as soon as a run has begun and its source is caught up: others may have compacted it.
        self.heartbeat = Heartbeat(windows, float("-inf"))
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
