"""Decides if a continuous compaction must be started, and which of its runs are dead, from the lake's locks and the runs.

Pure: no lake, instance or clock is touched here; `orchestration.sensors` observes and carries out the decision.

A follower holds a lock in the lake while it lives, and its run holds the lock of its job: both are gone with the process. A
successor may be started early: it waits for its turn at the lease, and two followers never write at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestration.policies.drain import STARTING_S_MAX, Phase, Run, retry_at

# A run takes its job's lock when it has loaded the location; on a loaded machine that took more than 15 s.
UNLOCKED_S_MAX = 30.0
# The successor starts a JVM and makes it ready, and then waits for its turn.
HANDOVER_S = 60.0


@dataclass(frozen=True, slots=True)
class Lake:
    """State that the lake shows: is there a landing, and does a process follow it (None: that can't be known)."""

    has_landing: bool
    is_followed: bool | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to take: fail the `dead` runs, then `start` a run or not; `reason` explains it in the UI."""

    start: bool
    reason: str
    dead: tuple[str, ...] = ()


def decide(lake: Lake, runs: Sequence[Run], locked: bool | None, now: float, max_seconds: float) -> Decision:
    """Return the decision. `runs` are the sensor's, newest first; each ends by itself after `max_seconds`.

    `locked`: True if a run of the job has a process, False if none has, None if unknown.
    """
    if not lake.has_landing:
        return Decision(False, "there is no landing yet: bootstrap first")
    dead = tuple(run.id for run in runs if _is_dead(run, locked, now))
    live = [run for run in runs if run.id not in dead and run.phase in (Phase.QUEUED, Phase.STARTING, Phase.STARTED)]
    start, reason = _start(lake, live, runs, now, max_seconds)
    return Decision(start, reason, dead)


def _is_dead(run: Run, locked: bool | None, now: float) -> bool:
    if run.phase is Phase.STARTED:
        return locked is False and now - (run.started or run.created) > UNLOCKED_S_MAX
    return run.phase is Phase.STARTING and now - run.created > STARTING_S_MAX


def _start(lake: Lake, live: Sequence[Run], runs: Sequence[Run], now: float, max_seconds: float) -> tuple[bool, str]:
    if any(run.phase is not Phase.STARTED for run in live):
        return False, "a compaction is queued or starting"
    if live and any(now - (run.started or run.created) < max_seconds - HANDOVER_S for run in live):
        return False, f"compaction {live[0].id[:8]} is at work"
    if live:
        return True, f"compaction {live[0].id[:8]} is about to end; its successor waits for its turn"
    wait_s = retry_at(runs) - now
    if wait_s > 0:
        return False, f"the last compaction failed; the next try is in {wait_s:.0f} s"
    if lake.is_followed:
        return False, "a process that is not a run of this sensor's follows the landing"
    return True, "nobody follows the landing"
