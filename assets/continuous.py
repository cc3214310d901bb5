"""The compaction's run that goes on: cycles as changes land, views after them, and at intervals an event for each table.

The cycles do not belong here (`lakeproof.follow.follower`), nor keeping such a run alive (`orchestration.policies.lasting`).
"""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING

import dagster as dg

from assets.cycles import EVENTS, TableTotals, layers, totals
from assets.support.command_call import Lasting, run_lasting_command
from assets.support.keys import Layer
from assets.support.pace import EventBudget, Heartbeat, Throttle, window_s
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
        config = settings.config()
        windows = {
            (name, table): window_s(config, config.sources[name], table, Layer.CURRENT)
            for name, tables in what.tables.items()
            for table in tables
        }
        self._budget = EventBudget(EVENTS * len(windows), time.monotonic())
        self._cuts: Throttle[tuple[str, TableName], TableTotals] = Throttle(
            what.event_seconds,
            TableTotals.followed_by,
            attrgetter("schema_changes"),
            budget=self._budget,
            events=EVENTS,
        )
        self._views: Throttle[str, ViewReport] = Throttle(what.event_seconds, _both)
        # Each table is due as soon as a run has begun and its source is caught up: others may have compacted it.
        self._quiet = Heartbeat(windows, float("-inf"), self._cuts.is_waiting)
        self._lake = config.location
        self._round_s = _ROUND_S if folder_to_check(self._lake) is not None else _ROUND_S_REMOTE
        self._looked_s = float("-inf")

    def hear(self, event: Event) -> None:
        """Take the cycles or the refreshes that have just ended; the command's threads call it."""
        from lakeproof.lake.cycle.runner import CutReport
        from lakeproof.views.round import ViewReport

        if event.kind == FOLLOWED_CUTS:
            for source, ended in from_json(dict[str, list[CutReport]], event.fields["cuts"]).items():
                shown = self._tables.get(source, frozenset())
                self._cuts.add({(source, table): done for table, done in totals(ended).items() if table in shown})
        elif event.kind == FOLLOWED_VIEWS:
            for view in from_json(list[ViewReport], event.fields["views"]):
                self._views.add({view.view: view})

    def write_due(self) -> None:
        """Write the events that are due."""
        now_s = time.monotonic()
        if now_s - self._looked_s < self._round_s:
            return
        self._looked_s = now_s
        self._write({**dict.fromkeys(self._caught_up(now_s), TableTotals()), **self._cuts.take_due(now_s)})
        self._write_views(self._views.take_due(now_s))

    def write_rest(self) -> None:
        """Write the events of all that no event has, at the end."""
        self._write(self._cuts.take_all(time.monotonic()))
        self._write_views(self._views.take_all(time.monotonic()))

    def _write(self, done: Mapping[tuple[str, TableName], TableTotals]) -> None:
        for source in self._tables:
            own = {table: each for (of, table), each in done.items() if of == source}
            try:
                written = layers(self._settings, source, own)
            except LakeproofError as error:
                self._context.log.warning("events of %s are missing: %s", source, error)
                continue
            self._quiet.beat([(source, table) for table in own], time.monotonic())
            for event in written:
                self._context.log_event(event)

    def _write_views(self, views: Mapping[str, ViewReport]) -> None:
        for view in views.values():
            self._budget.spend(1, time.monotonic(), must=True)
            self._context.log_event(view_event(self._lake, view))

    def _caught_up(self, now_s: float) -> list[tuple[str, TableName]]:
        """Return the quiet tables that are due, as many as the budget has events for: all that has landed is in a cut.

        Not those that are held, nor those of a source whose changes wait.
        """
        due = self._quiet.due(now_s)
        try:
            held = {source: self._held(source) for source in {source for source, _ in due}}
        except LakeproofError:
            return []
        return [
            (source, table)
            for source, table in due
            if (standing := held[source]) is not None and table not in standing and self._budget.spend(EVENTS, now_s)
        ]

    def _held(self, source: str) -> Container[TableName] | None:
        """Return the held tables of a source, None if its newest cut is not all that has landed."""
        cut = self._settings.newest_cut(source)
        return None if cut is None or self._settings.has_work(source) else cut.held


def _both(before: ViewReport, later: ViewReport) -> ViewReport:
    """Return the sum of two refreshes of a view."""
    return replace(later, inserted=before.inserted + later.inserted, retracted=before.retracted + later.retracted)
