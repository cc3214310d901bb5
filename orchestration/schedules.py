"""The schedules of compaction, maintenance, slot checks, days, proofs and views.

A tick is skipped if another run is in the way (`orchestration.policies.run`) or if there is nothing to do
(`lakeproof.compaction.pending`); neither decision is made here.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import dagster as dg

from assets.checks.expectations import expectation_keys
from assets.checks.proof import due_proofs
from assets.current import CompactionRun, CompactionUnit, compaction_units
from assets.daily import daily_tables_of
from assets.support.keys import Layer, table_key
from jobs.names import VIEWS_REFRESH, SourceJob
from lakeproof.compaction.pending import compaction_has_work, group_has_work
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import LakeproofError
from lakeproof.state.due import due_days
from lakeproof.state.due_work import compaction_is_pointless, drifted_views, refresh_is_pointless
from lakeproof.state.source_state import SourceState
from orchestration.policies.run import pause_after_failures
from orchestration.runs import run_in_the_way, runs_of
from resources import Settings

# Dagster's tags of a run over a range of partitions.
_RANGE_START, _RANGE_END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"

_PROOF_CRONS = {"hourly": "0 * * * *", "daily": "0 3 * * *"}
_MINUTES_PER_DAY = 24 * 60
# Once a day, between the proofs, and not at midnight, when other jobs run.
_MAINTENANCE_CRON = "30 2 * * *"
# An event costs some 9 KB in Dagster's database, and these are kept.
_SLOT_CRON = "*/15 * * * *"
# A day is made soon after its end, again once the lake has a commit of a later day, and a day that was missed at any hour.
_DAILY_CRON = "10 * * * *"
# A day that can't be made fails each run.
_DAILY_PAUSE_S = 6 * 3600.0
_EMPTY = "there is nothing in the lake yet"

# Starts the run that a tick requests, with the job's defaults if it is none, and nothing if it is a reason to skip.
Tick = Callable[[dg.ScheduleEvaluationContext, Settings], dg.RunRequest | str | None]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A schedule of a job."""

    job: str
    cron: str
    description: str
    tick: Tick


def schedules(config: Config, start: str = "RUNNING") -> list[dg.ScheduleDefinition]:
    """Return all schedules of a configuration."""
    sources = [source for source in config.sources.values() if source.tables]
    plans = [_compaction(unit) for unit in compaction_units(config) if not unit.is_continuous]
    plans += [_maintenance(source) for source in sources]
    plans += [_slot(source) for source in sources]
    plans += [_daily(source) for source in sources if daily_tables_of(source)]
    if config.proof_interval != "off":
        plans += [_verification(config, source, _PROOF_CRONS[config.proof_interval]) for source in sources]
    if scheduled_views(config):
        plans.append(_views(config))
    return [_schedule(plan, start) for plan in plans]


def cron_every(interval_s: float) -> str:
    """Return a cron expression for an interval: rounded up to minutes, above an hour to hours, a day at most."""
    minutes = min(max(1, math.ceil(interval_s / 60)), _MINUTES_PER_DAY)
    hours = math.ceil(minutes / 60)
    if minutes < 60:
        return f"*/{minutes} * * * *"
    return f"0 */{hours} * * *" if hours < 24 else "0 0 * * *"


def _compaction(unit: CompactionUnit) -> _Plan:
    job, names = SourceJob.COMPACTION.of(unit.name), [source.name for source in unit.sources]
    writers = [job, *map(SourceJob.VERIFICATION.of, names), *map(SourceJob.MAINTENANCE.of, names)]

    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> dg.RunRequest | str:
        states = [settings.lake_status(name).sources[name] for name in names]
        # Proof and maintenance hold the same lease, so a compaction beside them could only fail.
        for writer in writers:
            busy = _in_progress(context, settings, writer)
            if busy is not None:
                return f"{writer}: {busy}"
        # Compaction does not wait for these, but their dead runs would fill Dagster's queue.
        for other in (*map(SourceJob.BOOTSTRAP.of, names), *map(SourceJob.SLOT.of, names)):
            _in_progress(context, settings, other)
        landed, config = all(state.landing for state in states), settings.config()
        has_work = landed and (
            group_has_work(config, unit.name) if unit.is_group else compaction_has_work(config, unit.name)
        )
        reason = next((why for state in states if (why := compaction_is_pointless(state, has_work=has_work))), None)
        run = dg.RunConfig(ops={f"compact_{unit.name}": CompactionRun(report="changed")})
        return reason or dg.RunRequest(run_config=run)

    description = f"Compacts {unit.name} if something has landed, unless another writer of its lake is running."
    interval_s = min(source.compaction.interval_s for source in unit.sources)
    return _Plan(job, cron_every(interval_s), description, tick)


def _maintenance(source: SourceConfig) -> _Plan:
    job = SourceJob.MAINTENANCE.of(source.name)

    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        # The next tick is a day away, so a run waits for the lease instead of being skipped.
        return _EMPTY if settings.newest_cut(source.name) is None else _in_progress(context, settings, job)

    return _Plan(job, _MAINTENANCE_CRON, f"Applies the retention of {source.name} to its lake.", tick)


def _verification(config: Config, source: SourceConfig, cron: str) -> _Plan:
    job = SourceJob.VERIFICATION.of(source.name)

    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> dg.RunRequest | str:
        reason = _EMPTY if settings.newest_cut(source.name) is None else _in_progress(context, settings, job)
        if reason is not None:
            return reason
        return dg.RunRequest(asset_selection=[*due_proofs(config, source, settings), *expectation_keys(source)])

    description = (
        f"Proves {source.name} equal to PostgreSQL: small tables every time; large tables, histories and views in turn. "
        "Also checks all expectations. Skipped while a proof is running."
    )
    return _Plan(job, cron, description, tick)


def _slot(source: SourceConfig) -> _Plan:
    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        del context
        # The check reports a slot that has disappeared; before the first landing there is nothing to check.
        return None if settings.lake_status(source.name).sources[source.name].landing else "there is no landing yet"

    description = f"Records the position of slot {source.slot}, and checks how long it will last."
    return _Plan(SourceJob.SLOT.of(source.name), _SLOT_CRON, description, tick)


def _daily(source: SourceConfig) -> _Plan:
    job, listed = SourceJob.DAILY.of(source.name), daily_tables_of(source)

    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> dg.RunRequest | str:
        runs = runs_of(context.instance, settings, job, time.time())
        pause = pause_after_failures(runs, _DAILY_PAUSE_S, _DAILY_PAUSE_S)
        reason = run_in_the_way(context.instance, runs) or pause
        if reason is not None:
            return reason
        due = due_days(SourceState.of(settings.config(), source.name), listed, datetime.now(timezone.utc))
        if due is None:
            return "no day of the last week is due"
        return dg.RunRequest(
            asset_selection=[table_key(Layer.DAILY, source.name, table) for table in due.tables],
            # As a backfill of a range in one run.
            tags={_RANGE_START: due.first.isoformat(), _RANGE_END: due.last.isoformat()},
        )

    description = (
        f"Makes the days of {source.name} that have ended within the last week and are not there, or were made before the "
        "lake had all of them; days further back are for a person to ask for."
    )
    return _Plan(job, _DAILY_CRON, description, tick)


def scheduled_views(config: Config) -> dict[str, list[str]]:
    """Return the views that no continuous compaction refreshes, with the sources that they read."""
    continuous = {s.name for unit in compaction_units(config) if unit.is_continuous for s in unit.sources}
    reads = {name: sources_of(config.views, name) for name in config.views}
    return {view: sources for view, sources in reads.items() if not continuous.issuperset(sources)}


def _views(config: Config) -> _Plan:
    reads = scheduled_views(config)
    sources = {source for names in reads.values() for source in names}
    interval_s = min(config.sources[source].compaction.interval_s for source in sources)

    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        if (busy := _in_progress(context, settings, VIEWS_REFRESH)) is not None:
            return busy
        state = settings.lake_status()
        return refresh_is_pointless(state, reads, drifted_views(settings.config(), state))

    description = (
        "Refreshes the views if one of their sources has a newer cut, an external table a newer version, or a view has"
        " drifted, unless a refresh is running."
    )
    return _Plan(VIEWS_REFRESH, cron_every(interval_s), description, tick)


def _in_progress(context: dg.ScheduleEvaluationContext, settings: Settings, job: str) -> str | None:
    return run_in_the_way(context.instance, runs_of(context.instance, settings, job, time.time()))


def _schedule(plan: _Plan, start: str) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{plan.job}_schedule",
        job_name=plan.job,
        cron_schedule=plan.cron,
        default_status=dg.DefaultScheduleStatus(start),
        description=plan.description,
    )
    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> dg.RunRequest | dg.SkipReason:
        try:
            answer = plan.tick(context, settings)
        except LakeproofError as error:
            answer = f"the state can't be read: {error}"
        return dg.SkipReason(answer) if isinstance(answer, str) else answer or dg.RunRequest()

    return tick


def refreshed_by(config: Config, view: str) -> str:
    """Return what refreshes a view without being asked, in a sentence for its page."""
    if view in scheduled_views(config):
        return f"`{VIEWS_REFRESH}_schedule` refreshes it when a source that it reads has a newer cut."
    reads = {*sources_of(config.views, view)}
    jobs = [
        SourceJob.COMPACTION.of(unit.name)
        for unit in compaction_units(config)
        if unit.is_continuous and reads & {source.name for source in unit.sources}
    ]
    runs = " and ".join(f"`{job}`, which `{job}_sensor` keeps going," for job in sorted(jobs))
    return f"The run of {runs} refreshes it after each cut that has changes for it."
