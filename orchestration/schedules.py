"""When compaction, views and the proof run.

Whether a tick is pointless because a run is still there is decided by `guard`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import dagster as dg

from assets.current import CompactionRun
from assets.keys import identifier
from jobs.names import VIEWS_REFRESH, compaction_job_name, verification_job_name
from orchestration.guard import in_progress
from orchestration.runs import recent_runs
from wal2delta.config.model import Config, SourceConfig

_PROOF_CRONS = {"hourly": "0 * * * *", "daily": "0 3 * * *"}
_MINUTES_PER_DAY = 24 * 60


def schedules(config: Config) -> list[dg.ScheduleDefinition]:
    """All schedules of a configuration."""
    sources = [source for source in config.sources.values() if source.tables]
    found = [_compaction(source) for source in sources]
    if config.proof_interval != "off":
        found += [_verification(source, _PROOF_CRONS[config.proof_interval]) for source in sources]
    if config.views:
        found.append(_views(min(source.compaction.interval_s for source in config.sources.values())))
    return found


def cron_every(interval_s: float) -> str:
    """A cron expression for an interval, rounded up to minutes, and beyond an hour to hours; a day at most."""
    minutes = min(max(1, math.ceil(interval_s / 60)), _MINUTES_PER_DAY)
    if minutes == 1:
        return "* * * * *"
    if minutes < 60:
        return f"*/{minutes} * * * *"
    hours = math.ceil(minutes / 60)
    return f"0 */{hours} * * *" if hours < 24 else "0 0 * * *"


def _compaction(source: SourceConfig) -> dg.ScheduleDefinition:
    job = compaction_job_name(source.name)
    config = dg.RunConfig(ops={f"compact_{identifier(source.name)}": CompactionRun(report="changed")})
    # A proof holds the same lease, so a compaction beside it could only fail.
    return _schedule(job, cron_every(source.compaction.interval_s), [job, verification_job_name(source.name)], config)


def _verification(source: SourceConfig, cron: str) -> dg.ScheduleDefinition:
    job = verification_job_name(source.name)
    return _schedule(job, cron, [job])


def _views(interval_s: float) -> dg.ScheduleDefinition:
    return _schedule(VIEWS_REFRESH, cron_every(interval_s), [VIEWS_REFRESH])


def _schedule(
    job: str, cron: str, waits_for: Sequence[str], config: dg.RunConfig | None = None
) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"{job}_schedule",
        job_name=job,
        cron_schedule=cron,
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Runs {job}, unless one of these is in progress: {', '.join(waits_for)}.",
    )
    def tick(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
        for other in waits_for:
            busy = in_progress(recent_runs(context.instance, other), time.time())
            if busy is not None:
                return dg.SkipReason(f"{other}: {busy}")
        return dg.RunRequest(run_config=config or dg.RunConfig())

    return tick
