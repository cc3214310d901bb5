"""Decides if a run that lasts (a drain, a continuous compaction) must be started, and which of its runs are dead.

Two ways to see life are asked, and the word of a run's record is none of them. The lock of the job (`policies.run`) says if
any of its runs has a process. The place of the work says who does it now, whosever process that is: the slot has a reader,
the landing a follower. So a run that is slow to its work, or stopped for a while, is alive as long as its process is; and a
successor may always be started early: at the slot, and at the lease, there is room for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.policies.run import JobRuns, Phase, Run, is_dead, pause_after_failures

# A run that no process has picked up. Time in the queue does not count and has no limit.
STARTING_S_MAX = 300.0
# A run that lived this long did not fail because of a lasting problem, so it is started again at once.
HEALTHY_S = 60.0
RETRY_S_FIRST = 5.0
RETRY_S_MAX = 300.0
_LIVE = (Phase.QUEUED, Phase.STARTING, Phase.STARTED)


@dataclass(frozen=True, slots=True)
class LastingKind:
    """A kind of lasting run, in words, and how long before its end its successor is started."""

    noun: str
    idle: str
    waits: str
    handover_s: float


# A sensor looks every 15 s, or 20, and a drain's process needs 1 to 8 s to reach the slot.
DRAIN = LastingKind("drain", "nobody reads the slot", "waits on the slot", 30.0)
# The successor of a compaction holds no JVM while it waits, so there is time for a slow start of its run.
COMPACTION = LastingKind("compaction", "nobody follows the landing", "waits for its turn", 60.0)


@dataclass(frozen=True, slots=True)
class Workplace:
    """The place of the work: `worker` says who works there now, None if nobody does or that can't be known.

    `obstacle` is the reason why no run could work there, None if one could.
    """

    worker: str | None = None
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to take: fail the `dead` runs, then `start` a run or not; `reason` explains it in the UI."""

    start: bool
    reason: str
    dead: tuple[str, ...] = ()


def decide_run(kind: LastingKind, place: Workplace | None, job: JobRuns, max_seconds: float) -> Decision:
    """Return the decision; `place` is None before the first landing. The job's runs end by themselves after `max_seconds`.

    With an obstacle nothing is started: each run would fail because of it until somebody has removed it.
    """
    if place is None:
        return Decision(False, "there is no landing yet: bootstrap first")
    dead = tuple(
        run.id
        for run in job.runs
        if is_dead(run, job) or (run.phase is Phase.STARTING and job.now - run.created > STARTING_S_MAX)
    )
    live = [run for run in job.runs if run.id not in dead and run.phase in _LIVE]
    start, reason = _start(kind, place, live, job, max_seconds)
    return Decision(start, reason, dead)


def _start(
    kind: LastingKind, place: Workplace, live: Sequence[Run], job: JobRuns, max_seconds: float
) -> tuple[bool, str]:
    if any(run.phase is not Phase.STARTED for run in live):
        return False, f"a {kind.noun} is queued or starting"
    if place.obstacle is not None and not live:
        return False, f"no {kind.noun} can go on: {place.obstacle}"
    if live and any(job.now - (run.started or run.created) < max_seconds - kind.handover_s for run in live):
        return False, f"{kind.noun} {live[0].id[:8]} is at work"
    if live:
        return True, f"{kind.noun} {live[0].id[:8]} is about to end; its successor {kind.waits}"
    if place.worker is not None:
        # None of the sensor's runs is in progress.
        whose = "which is not a run of this sensor's"
        if job.locked:
            whose = "in a run that somebody has started, or one that is over and ends itself"
        return False, f"{place.worker}, {whose}"
    pause = pause_after_failures(job, RETRY_S_FIRST, RETRY_S_MAX, HEALTHY_S)
    return pause is None, pause or kind.idle
