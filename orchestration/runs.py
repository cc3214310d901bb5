"""Run records of a Dagster instance as the plain values that the policies decide on.

Failing a dead run takes a call outside Dagster's public interface; it is made here and nowhere else. Decisions do not belong
here.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from orchestration.policies.run import Phase, Run

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


def recent_runs(instance: DagsterInstance, job: str, tag: str | None = None) -> list[Run]:
    """Return the newest runs of `job`, newest first; with `tag`, only runs that carry it."""
    # Filter by job name here and by tag afterwards: Dagster's filter by tag joins the run_tags table.
    records = instance.get_run_records(RunsFilter(job_name=job), limit=_RECORDS_MAX)
    return [_run(record) for record in records if tag is None or tag in record.dagster_run.tags]


def fail_dead(instance: DagsterInstance, run_ids: Sequence[str]) -> None:
    """Record each run as failed; if its process is still alive after all, it ends itself (`assets.support.own_run`)."""
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
