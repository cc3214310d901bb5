"""Removes the ended runs of drains and continuous compactions after a while, with their events and captured output.

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
from orchestration.start import Start

NAME = "old_runs_sensor"
_INTERVAL_S = 600
# Of each job in one tick: a run of an hour has thousands of rows in Dagster's database.
RUNS_MAX = 25
# Of each job, these are looked at: as many assets may have their newest event in a run of their own that stays.
_LOOKED_AT_MAX = 1000
_ENDED = (DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED)
_ON = Start()

# A job that a sensor keeps going, and the assets whose events its runs have.
Lasting = Mapping[str, Collection[dg.AssetKey]]


def old_runs_sensor(
    config: Config, jobs: Lasting, clock: Callable[[], float] = time.time, start: Start = _ON, name: str = NAME
) -> list[dg.SensorDefinition]:
    """Return the sensor, none if runs are kept for ever or there is no such job."""
    keep_s = config.dagster.keep_runs_s
    if not keep_s or not jobs:
        return []

    @dg.sensor(
        name=name,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=start.sensor,
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
