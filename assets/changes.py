"""The drain as an asset: one long-lived run per slot, which reports each table's progress at intervals.

Reading the slot does not belong here (`lakeproof.commands.drain`), nor keeping a run alive (`orchestration.sensors`).
No Spark and no pool are needed: PostgreSQL admits one reader per slot, and that is the lock.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from operator import attrgetter
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.bootstrap import copies_unseen, newest_events
from assets.catalog import Catalog
from assets.slots import slot_positions
from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, table_key
from assets.support.pace import EventBudget, Throttle, window_s
from assets.support.step import asset_step
from lakeproof.config.model import SourceConfig
from lakeproof.drain.counts import DrainReport, Flush, LandedCounts
from lakeproof.drain.until import Until
from lakeproof.errors import LakeproofError
from lakeproof.events import Event, counted
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from resources import Settings

# Events that Dagster lacks are written a while at a time, so that the run can do other things.
_WHILE_S = 0.5


class DrainRun(dg.Config):
    """Options of a drain. By default it reads all current changes and ends, as a person who materializes it expects."""

    until: Literal["caught_up", "max_seconds"] = "caught_up"
    max_seconds: float = Field(default=3600, gt=0, description="for `until: max_seconds`, which the sensor uses")
    event_seconds: float = Field(default=60, ge=1, description="minimum seconds between two events of one table")


def changes_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the asset of one source's landed changes."""

    @asset_step(
        f"drain_{source.name}",
        [
            catalog.spec(
                table_key(Layer.CHANGES, source.name, table),
                f"The changes committed to {table}, as read from slot {source.slot}. The slot drain sensor keeps a run "
                "going; Materialize reads all current changes and ends.",
                {"postgres", "parquet"},
                [table_key(Layer.POSTGRES, source.name, table), Layer.SLOTS.key(source.name)],
            )
            for table in source.tables
        ],
        after=[Layer.SLOTS.key(source.name)],
    )
    def changes(
        context: dg.AssetExecutionContext, config: DrainRun, settings: Settings
    ) -> Iterator[dg.MaterializeResult[None]]:
        from lakeproof.commands.drain import drain

        until = Until.seconds(config.max_seconds) if config.until == "max_seconds" else Until.caught_up()
        reporter = _Reporter(context, settings, source, config)
        report = to_run_log(context.log.info, reporter.hear)
        try:
            totals = run_engine(
                lambda stop: drain(settings.config(), source.name, until, report, stop, on_flush=reporter.take),
                meanwhile=reporter.write_due,
                achieved=lambda: settings.durable_through(source.name),
            )
            # A drain with nothing to read has not asked for the slot.
            reporter.begin(totals.end_lsn)
            reporter.write_first(float("inf"))
        except BaseException:
            # Even if a person ended the run: report what is durable, so that plots have no gaps.
            reporter.write_rest()
            raise
        if config.until == "max_seconds":
            reporter.write_rest()
        else:
            yield from _results(source, totals, _slot(settings, source))

    return changes


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """One table's changes over the flushes of (start, end].

    `transactions` counts those of the whole source in that range; commit times are microseconds since 1970 UTC. `lag_s`
    is the time from the newest commit of the newest flush until that flush was durable, `lag_s_max` the maximum over
    all flushes. `urgent`: the table was truncated or its schema changed.
    """

    start_lsn: Lsn
    end_lsn: Lsn
    counts: LandedCounts
    transactions: int = 0
    first_commit_us: int | None = None
    last_commit_us: int | None = None
    lag_s: float | None = None
    lag_s_max: float | None = None
    urgent: bool = False

    @classmethod
    def none(cls, position: Lsn) -> "ChangeSummary":
        """Return the summary of a table that has no changes up to a position."""
        return cls(position, position, LandedCounts())

    def followed_by(self, later: "ChangeSummary") -> "ChangeSummary":
        """Return the sum of both ranges."""
        return replace(
            later,
            start_lsn=self.start_lsn,
            counts=self.counts + later.counts,
            transactions=self.transactions + later.transactions,
            first_commit_us=self.first_commit_us if self.first_commit_us is not None else later.first_commit_us,
            lag_s=self.lag_s if later.lag_s is None else later.lag_s,
            lag_s_max=max((s for s in (self.lag_s_max, later.lag_s_max) if s is not None), default=None),
            urgent=self.urgent or later.urgent,
        )


def changed(flush: Flush, now_s: Callable[[], float] = time.time) -> dict[TableName, ChangeSummary]:
    """Return what a flush, which has just become durable, has of each table."""
    changed_schemas = {version.table for version in flush.schemas}
    # The clocks of two machines may differ: a commit in the future counts as no lag.
    lag_s = None if flush.last_commit_us is None else max(0.0, now_s() - flush.last_commit_us / 1e6)
    return {
        table: ChangeSummary(
            start_lsn=flush.start_lsn,
            end_lsn=flush.end_lsn,
            counts=counts,
            transactions=flush.transactions,
            first_commit_us=flush.first_commit_us,
            last_commit_us=flush.last_commit_us,
            lag_s=lag_s,
            lag_s_max=lag_s,
            urgent=counts.truncates > 0 or table in changed_schemas,
        )
        for table, counts in flush.tables.items()
    }


class KeepsUp:
    """Looks by a drain's own events if it keeps up: it has moved since the last one, or no commit waits for long."""

    _LAG_S_MAX = 60.0
    # A drain at work reports its rates every 15 s.
    _RECENT_S = 60.0

    def __init__(self) -> None:
        self._durable, self._kept_up_s = Lsn.ZERO, float("-inf")

    def hear(self, event: Event, now_s: float) -> None:
        """Take an event of the drain."""
        if event.kind == "drain.rates":
            durable = Lsn.parse(str(event.fields["durable_lsn"]))
            if Lsn.ZERO < self._durable < durable or event.fields["lag_s"] <= self._LAG_S_MAX:
                self._kept_up_s = now_s
            self._durable = durable

    def through(self, now_s: float) -> Lsn | None:
        """Return up to where all has landed; None if the drain stands still, has lost its server, or says nothing."""
        return self._durable if now_s - self._kept_up_s <= self._RECENT_S else None


class _Reporter:
    """The events of a drain; only a run that lasts writes them while it works."""

    def __init__(
        self, context: dg.AssetExecutionContext, settings: Settings, source: SourceConfig, config: DrainRun
    ) -> None:
        self._context, self._settings, self._source = context, settings, source
        self._lasts = config.until == "max_seconds"
        self._budget = EventBudget(len(source.tables), time.monotonic())
        self._changes: Throttle[TableName, ChangeSummary] = Throttle(
            config.event_seconds,
            ChangeSummary.followed_by,
            attrgetter("urgent"),
            budget=self._budget,
            windows_s={t: window_s(settings.config(), source, t, Layer.CHANGES) for t in source.tables},
        )
        # A table is quiet some time after the run has begun, not with its beginning.
        self._changes.beat(source.tables, time.monotonic())
        self._keeps_up = KeepsUp()
        self._reported: set[TableName] = set()
        self._first: Iterator[dg.AssetMaterialization] | None = None

    def hear(self, event: Event) -> None:
        """Take an event of the drain; its threads call it."""
        self._keeps_up.hear(event, time.monotonic())
        if event.kind == "drain.start":
            self.begin(Lsn.parse(str(event.fields["start_lsn"])))

    def begin(self, position: Lsn) -> None:
        """Let the events that Dagster lacks be written from now on, at a drain's first position; any thread may call it.

        The slot comes first: nobody waits for these events.
        """
        if self._first is None:
            self._first = self._events_lacking(position)

    def write_first(self, seconds: float) -> bool:
        """Write them for some seconds; True if none is left. A source of hundreds of tables has hundreds of them."""
        until_s = time.monotonic() + seconds
        for event in self._first or ():
            self._context.log_event(event)
            if time.monotonic() >= until_s:
                return False
        return self._first is not None

    def take(self, flush: Flush) -> None:
        """Take a flush that has just become durable; the drain's threads call it."""
        self._changes.add(changed(flush))

    def write_due(self) -> None:
        """Write the events that are due."""
        if self._lasts:
            self._write(self._changes.take_due(time.monotonic()))
            if self.write_first(_WHILE_S):
                self._write(self._without_changes(time.monotonic()))

    def write_rest(self) -> None:
        """Write the events of all that no event has, at the end."""
        self._write(self._changes.take_all(time.monotonic()))

    def _write(self, summaries: Mapping[TableName, ChangeSummary]) -> None:
        slot = _slot(self._settings, self._source) if summaries else {}
        self._changes.beat(summaries, time.monotonic())
        self._reported.update(summaries)
        for table, summary in summaries.items():
            if table in self._source.tables:
                self._context.log_event(_event(self._source, table, summary, slot))

    def _without_changes(self, now_s: float) -> dict[TableName, ChangeSummary]:
        due = self._changes.quiet(now_s)
        position = self._keeps_up.through(now_s)
        if position is None:
            return {}
        return {table: ChangeSummary.none(position) for table in due if self._budget.spend(1, now_s)}

    def _events_lacking(self, position: Lsn) -> Iterator[dg.AssetMaterialization]:
        tables = self._source.tables
        try:
            yield from copies_unseen(self._context.instance, self._settings.lake_of(self._source.name), tables)
        except (LakeproofError, OSError) as error:
            # They are for people: what a copy left in the lake must not end a drain.
            self._context.log.warning("events of copies are not written: %s", error)
        if self._lasts:
            seen = newest_events(self._context.instance, Layer.CHANGES, self._source.name, tables)
            none = [table for table in tables if table not in seen]
            slot = _slot(self._settings, self._source) if none else {}
            self._changes.beat(none, time.monotonic())
            for table in none:
                if table not in self._reported:
                    yield _event(self._source, table, ChangeSummary.none(position), slot)


def _results(source: SourceConfig, totals: DrainReport, slot: md.Metadata) -> Iterator[dg.MaterializeResult[None]]:
    """Yield the result of each table of a drain that has an end."""
    for table in source.tables:
        counts = totals.tables.get(table, LandedCounts())
        summary = ChangeSummary(totals.start_lsn, totals.end_lsn, counts, totals.transactions)
        more = {"reason_for_end": totals.reason_for_end, **slot}
        yield md.result(_event(source, table, summary, more))


def _slot(settings: Settings, source: SourceConfig) -> md.Metadata:
    """Return the slot's positions on the server; nothing if the server can't be reached: that must not end a drain."""
    try:
        return slot_positions(settings.slot_status(source.name))
    except LakeproofError:
        return {}


def _progress(source: SourceConfig, summary: ChangeSummary) -> md.Metadata:
    """Return the changes first: a run's page shows the first values of an event."""
    counts = summary.counts
    first, last = _time(summary.first_commit_us), _time(summary.last_commit_us)
    return md.merged(
        {"inserts": counts.inserts, "updates": counts.updates, "deletes": counts.deletes},
        md.optional(
            truncates=counts.truncates or None,
            lag_seconds=None if summary.lag_s is None else round(summary.lag_s, 3),
            lag_seconds_max=None if summary.lag_s_max is None else round(summary.lag_s_max, 3),
        ),
        md.lsns(start_lsn=summary.start_lsn, end_lsn=summary.end_lsn),
        {"transactions": summary.transactions, "landed_bytes": counts.bytes},
        md.times(first_commit=first, last_commit=last),
        {"slot": source.slot, "publication": source.publication},
    )


def _in_words(summary: ChangeSummary) -> str:
    """Return the event's line on the run's page."""
    counts = summary.counts
    kinds = {"insert": counts.inserts, "update": counts.updates, "delete": counts.deletes, "truncate": counts.truncates}
    changes = [counted(number, kind) for kind, number in kinds.items() if number]
    lag = [] if summary.lag_s is None else [f"lag {summary.lag_s:.1f} s"]
    return ", ".join([*(changes or ["no changes"]), *lag])


def _time(us: int | None) -> datetime | None:
    return None if us is None else datetime.fromtimestamp(us / 1e6, timezone.utc)


def _event(
    source: SourceConfig, table: TableName, summary: ChangeSummary, more: md.Metadata
) -> dg.AssetMaterialization:
    key, metadata = table_key(Layer.CHANGES, source.name, table), md.merged(_progress(source, summary), more)
    return md.event(key, metadata, summary.end_lsn, _in_words(summary))
