"""Run records of a Dagster instance: as the plain values that policies decide on, failed when dead, removed when old.

Failing a dead run takes a call outside Dagster's public interface; it is made here and nowhere else.

Runs that a person or a schedule has started are kept, and so is every run that has the newest event of an asset: an asset
page never becomes empty. The positions of a slot stay readable: the runs of `slots/<source>` keep them, four an hour.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timezone

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from jobs.names import SENSOR_TAG
from lakeproof.config.model import Config
from orchestration.policies.run import JobRuns, Phase, Run, other_runs
from resources import Settings

_PHASES = {
    DagsterRunStatus.QUEUED: Phase.QUEUED,
    DagsterRunStatus.NOT_STARTED: Phase.STARTING,
    DagsterRunStatus.STARTING: Phase.STARTING,
    DagsterRunStatus.STARTED: Phase.STARTED,
    DagsterRunStatus.CANCELING: Phase.STARTED,
    DagsterRunStatus.FAILURE: Phase.FAILED,
}

# Enough for every live run, and for the failures that the drain policy's pause depends on.
_RECORDS_MAX = 12
_GONE = "no run of this job has a process, so this run's process is gone"


def runs_of(instance: DagsterInstance, settings: Settings, job: str, now: float, tag: str | None = None) -> JobRuns:
    """Return the newest runs of `job` and the state of its lock; with `tag`, only runs that carry it."""
    # The lock first: a run that ends in between has noted it by the time its record is read.
    locked = settings.has_live_process(job)
    # Filter by job name here and by tag afterwards: Dagster's filter by tag joins the run_tags table.
    records = instance.get_run_records(RunsFilter(job_name=job), limit=_RECORDS_MAX)
    return JobRuns([_run(r) for r in records if tag is None or tag in r.dagster_run.tags], now, locked)


def run_in_the_way(instance: DagsterInstance, runs: JobRuns) -> str | None:
    """Return the run that a new run of the same job must wait for, or None; fail the runs whose process is gone."""
    others = other_runs(runs)
    fail_dead(instance, others.dead)
    return others.busy


def fail_dead(instance: DagsterInstance, run_ids: Sequence[str]) -> None:
    """Record each run as failed; if its process is still alive after all, it ends itself (`assets.support.engine_call`)."""
    for run_id in run_ids:
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            # Dagster's own retries would launch it again, beside the run that the caller is about to start.
            instance.add_run_tags(run_id, {"dagster/max_retries": "0"})
            instance.report_run_failed(run, _GONE)


def _run(record: dg.RunRecord) -> Run:
    run = record.dagster_run
    return Run(
        id=run.run_id,
        phase=_PHASES.get(run.status, Phase.ENDED),
        created=record.create_timestamp.timestamp(),
        started=record.start_time,
        ended=record.end_time,
    )


OLD_RUNS = "old_runs_sensor"
_INTERVAL_S = 600
# Of each job in one tick: a run of an hour has thousands of rows in Dagster's database.
RUNS_MAX = 25
# Of each job, these are looked at: as many assets may have their newest event in a run of their own that stays.
_LOOKED_AT_MAX = 1000
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)

# A job that a sensor keeps going, and the assets whose events its runs have.
LastingJobs = Mapping[str, Collection[dg.AssetKey]]


def old_runs_sensor(
    config: Config,
    jobs: LastingJobs,
    clock: Callable[[], float] = time.time,
    start: str = "RUNNING",
    name: str = OLD_RUNS,
) -> list[dg.SensorDefinition]:
    """Return the sensor, none if runs are kept for ever or there is no such job."""
    keep_s = config.dagster.keep_runs_s
    if not keep_s or not jobs:
        return []

    @dg.sensor(
        name=name,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus(start),
        description=(
            f"Removes runs of {', '.join(sorted(jobs))} that a sensor has started and that ended more than "
            f"{keep_s / 86_400:g} days ago, with their events and output. A run with the newest event of an asset stays."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        removed = [run for job, keys in jobs.items() for run in _remove(context.instance, job, keys, clock() - keep_s)]
        return dg.SkipReason(f"removed {len(removed)} old runs" if removed else "there is no old run")

    return [sensor]


def _remove(instance: DagsterInstance, job: str, keys: Collection[dg.AssetKey], before_s: float) -> Sequence[str]:
    """Remove the oldest runs of a job that ended before a time, and return their ids."""
    # `updated` is the time of a run's last change of status, so of its end.
    before = datetime.fromtimestamp(before_s, timezone.utc)
    ended = RunsFilter(job_name=job, statuses=_ENDED, updated_before=before, tags={SENSOR_TAG: "true"})
    runs = [r.dagster_run.run_id for r in instance.get_run_records(ended, limit=_LOOKED_AT_MAX, ascending=True)]
    if not runs:
        return []
    entries = [record.asset_entry for record in instance.get_asset_records(list(keys))]
    newest = {e.last_materialization_record.run_id for e in entries if e.last_materialization_record is not None}
    removed = [run for run in runs if run not in newest][:RUNS_MAX]
    for run in removed:
        instance.compute_log_manager.delete_logs(prefix=[run])
        instance.delete_run(run)
    return removed
