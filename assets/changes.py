"""The drain as an asset: one long-lived run per slot, which reports each table's progress at intervals.

Reading the slot does not belong here (`lakeproof.commands.drain`), nor keeping a run alive (`orchestration.sensors`).
No Spark and no pool are needed: PostgreSQL admits one reader per slot, and that is the lock.
"""

import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.slots import slot_positions
from assets.support import metadata as md
from assets.support.backlog import Backlog
from assets.support.engine_call import run_engine
from assets.support.event_budget import EventBudget
from assets.support.event_log import to_run_log
from assets.support.first_events import copies_unseen, without_event
from assets.support.freshness import Heartbeat, window_s
from assets.support.keys import Layer, slot_key, table_key
from assets.support.quiet_tables import QuietTables
from assets.support.specs import LayerTable, table_spec
from assets.support.throttle import ChangeSummary, EventThrottle
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.counts import DrainReport, LandedCounts
from lakeproof.drain.until import Until
from lakeproof.errors import LakeproofError
from lakeproof.events import counted
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from resources import Settings


class DrainRun(dg.Config):
    """Options of a drain. By default it reads all current changes and ends, as a person who materializes it expects."""

    until: Literal["caught_up", "max_seconds"] = "caught_up"
    max_seconds: float = Field(default=3600, gt=0, description="for `until: max_seconds`, which the sensor uses")
    event_seconds: float = Field(default=60, ge=1, description="minimum seconds between two events of one table")

    def as_until(self) -> Until:
        """Return the engine's form of these options."""
        return Until.caught_up() if self.until == "caught_up" else Until.seconds(self.max_seconds)


def changes_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the asset of one source's landed changes."""

    @dg.multi_asset(
        name=f"drain_{source.name}",
        specs=[_spec(config, source, table) for table in source.tables],
        can_subset=False,
    )
    def changes(
        context: dg.AssetExecutionContext, config: DrainRun, settings: Settings
    ) -> Iterator[dg.MaterializeResult[None]]:
        from lakeproof.commands.drain import drain

        budget = EventBudget(len(source.tables), time.monotonic())
        throttle = EventThrottle(config.event_seconds, budget=budget)
        windows = {t: window_s(settings.config(), source, t, Layer.CHANGES) for t in source.tables}
        quiet = QuietTables(Heartbeat(windows, time.monotonic()), throttle.is_waiting)
        reported: set[TableName] = set()

        def report(summaries: Mapping[TableName, ChangeSummary]) -> None:
            slot = _slot(settings, source) if summaries else {}
            quiet.heartbeat.beat(summaries, time.monotonic())
            reported.update(summaries)
            for table, summary in summaries.items():
                if table in source.tables:
                    context.log_event(_event(source, table, summary, slot))

        def first_events(position: Lsn) -> Iterator[dg.AssetMaterialization]:
            yield from copies_unseen(context.instance, settings.lake_of(source.name), source.tables)
            if config.until == "max_seconds":
                none = without_event(context.instance, source.name, source.tables)
                slot = _slot(settings, source) if none else {}
                quiet.heartbeat.beat(none, time.monotonic())
                summary = ChangeSummary(position, position, LandedCounts())
                yield from (_event(source, table, summary, slot) for table in none if table not in reported)

        # The slot comes first: nobody waits for these events.
        backlog = Backlog(first_events)
        log = backlog.heard(to_run_log(context.log.info))

        def report_due() -> None:
            if config.until == "max_seconds":
                report(throttle.take_due(time.monotonic()))
                if backlog.is_written(context.log_event):
                    report(quiet.summaries(lambda: settings.slot_status(source.name), time.monotonic(), budget))

        try:
            totals = run_engine(
                lambda stop: drain(settings.config(), source.name, config.as_until(), log, stop, on_flush=throttle.add),
                meanwhile=report_due,
                achieved=lambda: settings.durable_through(source.name),
            )
            # A drain with nothing to read has not asked for the slot.
            backlog.begin(totals.end_lsn)
            backlog.is_written(context.log_event, float("inf"))
        except BaseException:
            # Even if a person ended the run: report what is durable, so that plots have no gaps.
            report(throttle.take_all(time.monotonic()))
            raise
        if config.until == "max_seconds":
            report(throttle.take_all(time.monotonic()))
        else:
            yield from _results(source, totals, _slot(settings, source))

    return changes


def _results(source: SourceConfig, totals: DrainReport, slot: md.Metadata) -> Iterator[dg.MaterializeResult[None]]:
    """Yield the result of each table of a drain that has an end."""
    for table in source.tables:
        counts = totals.tables.get(table, LandedCounts())
        summary = ChangeSummary(totals.start_lsn, totals.end_lsn, counts, totals.transactions)
        yield dg.MaterializeResult(
            asset_key=table_key(Layer.CHANGES, source.name, table),
            data_version=md.data_version(totals.end_lsn),
            metadata=md.merged(_progress(source, summary), {"reason_for_end": totals.reason_for_end}, slot),
        )


def _spec(config: Config, source: SourceConfig, table: TableName) -> dg.AssetSpec:
    return table_spec(
        config,
        LayerTable(source, table, Layer.CHANGES, f"{source.name}/landing"),
        deps=[table_key(Layer.POSTGRES, source.name, table), slot_key(source.name)],
        kinds={"postgres", "parquet"},
        description=(
            f"The changes committed to {table}, as read from slot {source.slot}. The slot drain sensor keeps a run going; "
            "Materialize reads all current changes and ends."
        ),
    )


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
            lag_seconds=_rounded(summary.lag_s),
            lag_seconds_max=_rounded(summary.lag_s_max),
        ),
        md.lsns(start_lsn=summary.start_lsn, end_lsn=summary.end_lsn),
        {"transactions": summary.transactions, "landed_bytes": counts.bytes},
        md.times(first_commit=first, last_commit=last),
        {"slot": source.slot, "publication": source.publication},
    )


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


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
    source: SourceConfig, table: TableName, summary: ChangeSummary, slot: md.Metadata
) -> dg.AssetMaterialization:
    return dg.AssetMaterialization(
        asset_key=table_key(Layer.CHANGES, source.name, table),
        description=_in_words(summary),
        metadata=md.merged(_progress(source, summary), slot),
        tags={"dagster/data_version": str(summary.end_lsn)},
    )
