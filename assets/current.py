"""Compaction: numbered cycles write every table's history and current, each up to one position.

The cycle does not belong here (`lakeproof.commands.compact`, and `lakeproof.follow` if a run goes on), nor keeping such a
run alive (`orchestration.policies.lasting`). One multi-asset per source, not per table: a cut covers all of its tables.
The sources of a group have one multi-asset together: they are compacted as one.
"""

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import dagster as dg
from pydantic import Field

from assets.catalog import Catalog
from assets.cycles import EVENTS, TableTotals, layers, totals
from assets.support import metadata as md
from assets.support.engine_call import run_command, run_engine
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, layer_keys, proof_key, table_key
from assets.support.pace import EventBudget, Throttle, window_s
from assets.support.step import asset_step
from assets.views import view_event
from lakeproof.cli.results import from_json
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.events import FOLLOWED_CUTS, FOLLOWED_VIEWS, Event, RunControl
from lakeproof.names import TableName
from lakeproof.storage.open import folder_to_check
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport
    from lakeproof.views.round import ViewReport

# Between two looks at what is due: on an object store a round takes three requests.
_ROUND_S, _ROUND_S_REMOTE = 0.5, 10.0
# Raise it when the same changes would produce different rows: the UI then marks older materializations as outdated.
_CODE_VERSION = "1"


class CompactionRun(dg.Config):
    """Options of a compaction. By default it brings the lake to the landing's end and ends, as a person expects.

    The tables that it reports are all of them for a person, only the changed ones for the schedule.
    """

    report: Literal["all", "changed"] = Field(
        default="all", description="`changed` leaves out the tables that did not change"
    )
    until: Literal["caught_up", "max_seconds"] = Field(
        default="caught_up", description="`max_seconds` goes on with each change that lands, as the sensor's runs do"
    )
    max_seconds: float = Field(default=3600, gt=0, description="for `until: max_seconds`")
    event_seconds: float = Field(default=60, ge=1, description="minimum seconds between two events of one table")


@dataclass(frozen=True, slots=True)
class CompactionUnit:
    """What one run compacts: a source, or all sources of a group; `name` is that of the source or group.

    `sources` are those with tables that Dagster shows.
    """

    name: str
    sources: tuple[SourceConfig, ...]
    is_group: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """Return what names it to a command."""
        return ("--group", self.name) if self.is_group else (self.name,)

    @property
    def is_continuous(self) -> bool:
        """True if a run is kept going, False if a schedule starts runs."""
        return all(source.compaction.mode == "continuous" for source in self.sources)


def compaction_units(config: Config) -> list[CompactionUnit]:
    """Return a unit for each group, and for each source that is in none, if it has tables."""
    groups = [
        CompactionUnit(group, tuple(s for n in names if (s := config.sources[n]).tables), is_group=True)
        for group, names in config.groups.items()
    ]
    alone = [CompactionUnit(s.name, (s,)) for s in config.sources.values() if config.group_of(s.name) is None]
    return [unit for unit in [*alone, *groups] if any(source.tables for source in unit.sources)]


def compaction_asset(catalog: Catalog, unit: CompactionUnit) -> dg.AssetsDefinition:
    """Return the asset that brings history and current of every table of a unit to the end of the landing."""

    @asset_step(
        f"compact_{unit.name}",
        [spec for source in unit.sources for spec in _specs(catalog, source)],
        after=[key for source in unit.sources for key in _steps_before(source)],
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionRun, settings: Settings, compute: Compute
    ) -> Iterator[dg.MaterializeResult[None]]:
        if config.until == "max_seconds":
            _follow(context, settings, compute, unit, config)
            return
        names = [source.name for source in unit.sources]
        cuts = _compact(context, compute, unit, lambda: settings.compacted_through(names))
        for source in unit.sources:
            done = totals(cuts.get(source.name, ()))
            every = source.tables if config.report == "all" else [table for table in source.tables if table in done]
            yield from map(
                md.result, layers(settings, source.name, {table: done.get(table, TableTotals()) for table in every})
            )

    return compaction


def _compact(
    context: dg.AssetExecutionContext, compute: Compute, unit: CompactionUnit, achieved: Callable[[], str]
) -> "Mapping[str, Sequence[CutReport]]":
    """Return the cycles of each source; `achieved` says what there is if the run is stopped."""
    from lakeproof.lake.cycle.runner import CutReport

    result = run_command(context, compute, "compact", *unit.words, achieved=achieved)
    sources = result["sources"] if unit.is_group else {unit.name: result}
    return {source: from_json(list[CutReport], of["cuts"]) for source, of in sources.items()}


def _follow(
    context: dg.AssetExecutionContext,
    settings: Settings,
    compute: Compute,
    unit: CompactionUnit,
    config: CompactionRun,
) -> None:
    """Follow the landing until the time is over; a sensor starts the next run, so nothing is tried again here."""
    reporter = _Reporter(context, settings, unit, config.event_seconds)
    words = ["compact", *unit.words, "--follow", "--seconds", str(config.max_seconds)]
    report = to_run_log(context.log.info, reporter.hear)
    try:
        run_engine(
            lambda stop: compute.run(context, words, RunControl(report, stop)),
            reporter.write_due,
            lambda: settings.compacted_through([source.name for source in unit.sources]),
        )
    finally:
        # Even if a person ended the run, so that plots have no gaps.
        reporter.write_rest()


def _specs(catalog: Catalog, source: SourceConfig) -> Iterator[dg.AssetSpec]:
    for table in source.tables:
        history, current = (table_key(layer, source.name, table) for layer in (Layer.HISTORY, Layer.CURRENT))
        texts = {
            history: f"Every change of {table}, as a complete row after the change, with its position and commit time.",
            current: f"The table {table} as it is at the newest cut. If it is equal to the source stands on its proof, "
            f"`{proof_key(current).to_user_string()}`, and what is expected of its rows on its expectations: both are "
            "linked in this asset's metadata.",
        }
        deps = [table_key(layer, source.name, table) for layer in (Layer.SNAPSHOT, Layer.CHANGES)]
        for key, text in texts.items():
            yield catalog.spec(key, text, {"deltalake", "spark"}, deps, code_version=_CODE_VERSION)


def _steps_before(source: SourceConfig) -> Iterator[dg.AssetKey]:
    """Yield the assets whose steps come first: any table may be copied alone, and a drain lands the changes of all."""
    yield from layer_keys(source, Layer.SNAPSHOT)
    yield from layer_keys(source, Layer.CHANGES)[:1]


class _Reporter:
    """The events of such a run: what is due, in rounds, each table once and then one event a second."""

    def __init__(
        self, context: dg.AssetExecutionContext, settings: Settings, unit: CompactionUnit, every_s: float
    ) -> None:
        self._context = context
        self._settings = settings
        self._tables = {source.name: frozenset(source.tables) for source in unit.sources}
        config = settings.config()
        windows = {
            (source.name, table): window_s(config, config.sources[source.name], table, Layer.CURRENT)
            for source in unit.sources
            for table in source.tables
        }
        self._budget = EventBudget(EVENTS * len(windows), time.monotonic())
        self._cuts: Throttle[tuple[str, TableName], TableTotals] = Throttle(
            every_s,
            TableTotals.followed_by,
            attrgetter("schema_changes"),
            budget=self._budget,
            events=EVENTS,
            # Each table is quiet as soon as a run has begun and its source is caught up: others may have compacted it.
            windows_s=windows,
        )
        self._views: Throttle[str, ViewReport] = Throttle(every_s, _both)
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
                self._context.log.warning("events of %s come later: %s", source, error)
                self._cuts.add({(source, table): each for table, each in own.items() if each.cycles})
                continue
            self._cuts.beat([(source, table) for table in own], time.monotonic())
            for event in written:
                self._context.log_event(event)

    def _write_views(self, views: "Mapping[str, ViewReport]") -> None:
        for view in views.values():
            self._budget.spend(1, time.monotonic(), must=True)
            self._context.log_event(view_event(self._lake, view))

    def _caught_up(self, now_s: float) -> list[tuple[str, TableName]]:
        """Return the quiet tables that are due, as many as the budget has events for: all that has landed is in a cut.

        Not those that are held, nor those of a source whose changes wait.
        """
        due = self._cuts.quiet(now_s)
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


def _both(before: "ViewReport", later: "ViewReport") -> "ViewReport":
    """Return the sum of two refreshes of a view."""
    return replace(later, inserted=before.inserted + later.inserted, retracted=before.retracted + later.retracted)
