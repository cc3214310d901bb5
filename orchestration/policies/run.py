"""Runs as the policies see them: which are dead, and which are in the way of a new one.

`lakeproof.compaction.pending` decides if there is anything to do, and the lease keeps two writers from meeting in the
lake. Only pointless runs are prevented here: each would be a process for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

# A process that was killed leaves its run STARTED for ever. If no lock answers, a new run is started after this long.
IN_PROGRESS_S_MAX = 6 * 3600.0
# A run takes its lock as soon as it has loaded the location: seconds, or a minute on a loaded machine.
UNLOCKED_S_MAX = 180.0


class Phase(Enum):
    """The status of a Dagster run, as far as the policies need it."""

    QUEUED = "queued"
    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Times are seconds since 1970; `started` and `ended` are None before the run has got that far."""

    id: str
    phase: Phase
    created: float
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class JobRuns:
    """The recent runs of one job, newest first, as they are `now` (seconds since 1970).

    `locked`: True if a process holds the lock that the job's runs hold while they live, False if none does, None if unknown.
    """

    runs: Sequence[Run]
    now: float
    locked: bool | None = None


@dataclass(frozen=True, slots=True)
class OtherRuns:
    """The runs that a new run must wait for: `busy` names one, None if there are none; `dead` runs must be failed."""

    busy: str | None
    dead: tuple[str, ...] = ()


def other_runs(job: JobRuns) -> OtherRuns:
    """Return the run to wait for, and the runs that say STARTED although nobody holds their lock."""
    dead = tuple(run.id for run in job.runs if is_dead(run, job))
    live = [run for run in job.runs if run.id not in dead and _is_live(run, job)]
    return OtherRuns(f"run {live[0].id[:8]} is {live[0].phase.value}" if live else None, dead)


def pause_after_failures(job: JobRuns, first_s: float, max_s: float, healthy_s: float = math.inf) -> str | None:
    """Return why a new run has to wait, if the newest runs failed one after the other; else None.

    The pause is `first_s`, and doubles with each failure up to `max_s`. A run that lived for `healthy_s` does not count, nor
    do those before it: what it failed of is no lasting problem, or it was dead, which says nothing about the next one.
    """
    pause_s, last = 0.0, 0.0
    for run in job.runs:
        ended = run.ended or run.created
        if run.phase is not Phase.FAILED or ended - (run.started or run.created) >= healthy_s:
            break
        last = max(last, ended)
        pause_s = min(max_s, pause_s * 2 or first_s)
    if job.now >= last + pause_s:
        return None
    next_try = datetime.fromtimestamp(last + pause_s, timezone.utc)
    return f"the last run failed; the next try is at {next_try:%Y-%m-%d %H:%M:%S} UTC"


def is_dead(run: Run, job: JobRuns) -> bool:
    """Return True if a run says STARTED, has had the time to take its job's lock, and nobody holds that."""
    return run.phase is Phase.STARTED and job.locked is False and _age_s(run, job.now) > UNLOCKED_S_MAX


def _age_s(run: Run, now: float) -> float:
    return now - (run.started if run.phase is Phase.STARTED and run.started else run.created)


def _is_live(run: Run, job: JobRuns) -> bool:
    if run.phase is Phase.STARTED and job.locked:
        return True
    return run.phase in (Phase.QUEUED, Phase.STARTING, Phase.STARTED) and _age_s(run, job.now) < IN_PROGRESS_S_MAX
