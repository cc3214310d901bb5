"""Run records of a Dagster instance as the plain values that `keeper` and `guard` decide on.

The one call that is not part of Dagster's public interface, failing a dead run, is here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from orchestration.policies.drain import Phase, Run

_PHASES = {
    DagsterRunStatus.QUEUED: Phase.QUEUED,
    DagsterRunStatus.NOT_STARTED: Phase.STARTING,
    DagsterRunStatus.STARTING: Phase.STARTING,
    DagsterRunStatus.STARTED: Phase.STARTED,
    DagsterRunStatus.CANCELING: Phase.STARTED,
    DagsterRunStatus.FAILURE: Phase.FAILED,
}

# Enough for every live run and for the failures that the keeper's pause is reckoned from.
_RECORDS_MAX = 12
_GONE = "no run of this job has a process, so this one's is gone"


def recent_runs(instance: DagsterInstance, job: str, tag: str | None = None) -> list[Run]:
    """The newest runs of `job`, newest first; with `tag`, only those that carry it."""
    # By job name, and by tag afterwards: a filter by tag joins the run_tags table.
    records = instance.get_run_records(RunsFilter(job_name=job), limit=_RECORDS_MAX)
    return [_run(record) for record in records if tag is None or tag in record.dagster_run.tags]


def fail_dead(instance: DagsterInstance, run_ids: Sequence[str], reason: str = _GONE) -> None:
    """Say of each run that it failed; a process of it that lives on all the same is not touched."""
    for run_id in run_ids:
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            # Dagster's own retries would launch it again, beside the run that whoever asks here is going to start.
            instance.add_run_tags(run_id, {"dagster/max_retries": "0"})
            instance.report_run_failed(run, reason)


def _run(record: dg.RunRecord) -> Run:
    run = record.dagster_run
    return Run(
        id=run.run_id,
        phase=_PHASES.get(run.status, Phase.ENDED),
        created=record.create_timestamp.timestamp(),
        started=record.start_time,
        ended=record.end_time,
    )
