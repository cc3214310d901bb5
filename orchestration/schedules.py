"""When compaction, maintenance, views and the proof run.

Whether a tick would be pointless is decided by `guard` (another run) and `lakeproof.commands.pending_work` (nothing to do).
"""

import math
import time
from collections.abc import Callable

import dagster as dg

from assets.checks.expectations import expectation_keys
from assets.checks.proof import due_proofs
from assets.current import CompactionRun
from jobs.names import (
    VIEWS_REFRESH,
    bootstrap_job_name,
    compaction_job_name,
    maintenance_job_name,
    slot_job_name,
    verification_job_name,
)
from lakeproof.commands.pending_work import changed_views, compaction_is_pointless, refresh_is_pointless
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from orchestration.policies import run as guard
from orchestration.runs import fail_dead, recent_runs
from resources import Settings

_PROOF_CRONS = {"hourly": "0 * * * *", "daily": "0 3 * * *"}
_MINUTES_PER_DAY = 24 * 60
# Once a day, between the proofs and away from midnight, when others run.
_MAINTENANCE_CRON = "30 2 * * *"
# An event costs some 9 KB in Dagster's database, and these are kept.
_SLOT_CRON = "*/15 * * * *"

# Why a tick is skipped, or None.
Obstacle = Callable[[dg.ScheduleEvaluationContext, Settings], str | None]
# What is run; a RunRequest without anything, where a schedule has none of its own.
Request = Callable[[Settings], dg.RunRequest]


def schedules(config: Config) -> list[dg.ScheduleDefinition]:
    """All schedules of a configuration."""
    sources = [source for source in config.sources.values() if source.tables]
    found = [_compaction(source) for source in sources]
    found += [_maintenance(source) for source in sources]
    found += [_slot(source) for source in sources]
    if config.proof_interval != "off":
        found += [_verification(config, source, _PROOF_CRONS[config.proof_interval]) for source in sources]
    if config.views:
        found.append(_views(config))
    return found


def cron_every(interval_s: float) -> str:
    """A cron expression for an interval, rounded up to minutes, and beyond an hour to hours; a day at most."""
    minutes = min(max(1, math.ceil(interval_s / 60)), _MINUTES_PER_DAY)
    if minutes == 1:
        return "* * * * *"
    if minutes < 60:
        return f"*/{minutes} * * * *"
    hours = math.ceil(minutes / 60)
    if hours == 1:
        return "0 * * * *"
    return f"0 */{hours} * * *" if hours < 24 else "0 0 * * *"


def _compaction(source: SourceConfig) -> dg.ScheduleDefinition:
    job, proof, upkeep = (n(source.name) for n in (compaction_job_name, verification_job_name, maintenance_job_name))

    def obstacle(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        state = settings.in_lake(source.name).sources[source.name]
        # A proof and a maintenance hold the same lease, so a compaction beside them could only fail.
        for name in (job, proof, upkeep):
            busy = _in_progress(context, settings, name)
            if busy is not None:
                return f"{name}: {busy}"
        # Nobody waits for these, but the dead ones among them would fill Dagster's queue.
        for name in (bootstrap_job_name(source.name), slot_job_name(source.name)):
            _in_progress(context, settings, name)
        return compaction_is_pointless(state, has_work=bool(state.landing) and settings.has_work(source.name))

    def request(settings: Settings) -> dg.RunRequest:
        del settings
        config = dg.RunConfig(ops={f"compact_{source.name}": CompactionRun(report="changed")})
        return dg.RunRequest(run_config=config)

    description = f"Compacts {source.name} where something has landed, unless a writer of that lake is in progress."
    return _schedule(job, cron_every(source.compaction.interval_s), description, obstacle, request)


def _maintenance(source: SourceConfig) -> dg.ScheduleDefinition:
    job = maintenance_job_name(source.name)

    def obstacle(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        if settings.newest_cut(source.name) is None:
            return "there is nothing in the lake yet"
        # The next tick is a day away: a run waits for its turn at the lease instead of being skipped.
        return _in_progress(context, settings, job)

    return _schedule(job, _MAINTENANCE_CRON, f"Keeps the lake of {source.name} as its retention says.", obstacle)


def _verification(config: Config, source: SourceConfig, cron: str) -> dg.ScheduleDefinition:
    job = verification_job_name(source.name)

    def obstacle(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        if settings.newest_cut(source.name) is None:
            return "there is nothing in the lake yet"
        return _in_progress(context, settings, job)

    def request(settings: Settings) -> dg.RunRequest:
        return dg.RunRequest(asset_selection=[*due_proofs(config, source, settings), *expectation_keys(source)])

    description = (
        f"Proves {source.name} equal to PostgreSQL, small tables each time and large ones, histories and views in turn, "
        "and checks all expectations, unless a proof is in progress."
    )
    return _schedule(job, cron, description, obstacle, request)


def _slot(source: SourceConfig) -> dg.ScheduleDefinition:
    def obstacle(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        del context
        # A slot that was there and is gone is for the check; before there is a landing there is nothing to check.
        return None if settings.in_lake(source.name).sources[source.name].landing else "there is no landing yet"

    description = f"Records where slot {source.slot} stands, and checks how long it will last."
    return _schedule(slot_job_name(source.name), _SLOT_CRON, description, obstacle)


def _views(config: Config) -> dg.ScheduleDefinition:
    reads = {view.name: sorted({source for source, _ in view.reads.values()}) for view in config.views.values()}
    interval_s = min(config.sources[source].compaction.interval_s for names in reads.values() for source in names)

    def obstacle(context: dg.ScheduleEvaluationContext, settings: Settings) -> str | None:
        busy = _in_progress(context, settings, VIEWS_REFRESH)
        if busy:
            return busy
        state = settings.in_lake()
        return refresh_is_pointless(state, reads, changed_views(settings.config(), state))

    description = "Refreshes the views where a source has a newer cut, unless a refresh is in progress."
    return _schedule(VIEWS_REFRESH, cron_every(interval_s), description, obstacle)


def _in_progress(context: dg.ScheduleEvaluationContext, settings: Settings, job: str) -> str | None:
    """The run of `job` that a new one must wait for; those whose process is gone are failed."""
    others = guard.others(recent_runs(context.instance, job), time.time(), settings.is_working(job))
    fail_dead(context.instance, others.dead)
    return others.busy


def _schedule(
    job: str, cron: str, description: str, obstacle: Obstacle, request: Request | None = None
) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{job}_schedule",
        job_name=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=description,
    )
    def tick(context: dg.ScheduleEvaluationContext, settings: Settings) -> dg.RunRequest | dg.SkipReason:
        try:
            reason = obstacle(context, settings)
            if reason:
                return dg.SkipReason(reason)
            return dg.RunRequest() if request is None else request(settings)
        except LakeproofError as error:
            return dg.SkipReason(f"the state could not be seen: {error}")

    return tick
