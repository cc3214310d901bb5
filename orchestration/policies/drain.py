"""Decides if a source's drain must be started, and which runs are dead, from the slot and the run records.

Pure: no server, instance or clock is touched here; `orchestration.sensors` observes and carries out the decision.

The slot is asked first, the runs second. After a kill -9 of the code server a run says STARTED for ever, and a sensor that
trusts the run's status waits for ever. PostgreSQL, however, knows at once that nobody reads the slot, and admits only one
reader. So if the slot has had no reader for a while, a STARTED run is dead; and a successor may always be started early: it
waits on the slot itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# A drain holds its slot within seconds of its start. On a loaded machine it has taken more than 15 s.
UNREAD_S_MAX = 30.0
# A run that no process has picked up. Time in the queue does not count and has no limit.
STARTING_S_MAX = 300.0
# The successor's process needs 1 to 8 s to reach the slot.
HANDOVER_S = 12.0
# A drain that lived this long did not fail because of a lasting problem, so it is started again at once.
HEALTHY_S = 60.0
RETRY_S_FIRST = 5.0
RETRY_S_MAX = 300.0


class Phase(Enum):
    """The status of a Dagster run, as far as the policies need it."""

    QUEUED = "queued"
    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot as the server sees it; `holder` is the process that reads it, None if nobody does.

    `gap` is the reason why no drain could continue from it, None if one could.
    """

    name: str
    holder: int | None
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a job. Times are seconds since 1970; `started` and `ended` are None before the run has got that far."""

    id: str
    phase: Phase
    created: float
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """State that one tick passes to the next: since when nobody has read the slot."""

    unread_since: float | None = None

    def to_cursor(self, **more: object) -> str:
        """Return the sensor's cursor, with the entries of `more` added."""
        return json.dumps({**more, "unread_since": self.unread_since})

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Memory:
        """Read such a cursor; anything else, also a cursor of another version of this file, is an empty memory."""
        try:
            since = json.loads(cursor or "{}").get("unread_since")
        except (ValueError, AttributeError):
            return cls()
        return cls(float(since)) if isinstance(since, int | float) else cls()


@dataclass(frozen=True, slots=True)
class Decision:
    """The action to take: fail the `dead` runs, then `start` a run or not; `reason` explains it in the UI."""

    start: bool
    reason: str
    memory: Memory
    dead: tuple[str, ...] = ()


def decide(slot: Slot | None, runs: Sequence[Run], memory: Memory, now: float, max_seconds: float) -> Decision:
    """Return the decision. `runs` are newest first; a drain ends by itself after `max_seconds`.

    With a gap nothing is started: each run would fail because of it until somebody has run `recover`. The slot's check
    reports the gap.
    """
    if slot is None:
        return Decision(False, "there is no landing yet: bootstrap first", Memory())
    memory = (
        Memory(None) if slot.holder is not None else Memory(now if memory.unread_since is None else memory.unread_since)
    )
    unread_s = 0.0 if memory.unread_since is None else now - memory.unread_since
    dead = tuple(run.id for run in runs if _is_dead(run, unread_s, now))
    live = [run for run in runs if run.id not in dead and run.phase in (Phase.QUEUED, Phase.STARTING, Phase.STARTED)]
    start, reason = _start(slot, live, runs, now, max_seconds)
    return Decision(start, reason, memory, dead)


def _is_dead(run: Run, unread_s: float, now: float) -> bool:
    if run.phase is Phase.STARTED:
        return unread_s > UNREAD_S_MAX and now - (run.started or run.created) > UNREAD_S_MAX
    return run.phase is Phase.STARTING and now - run.created > STARTING_S_MAX


def _start(slot: Slot, live: Sequence[Run], runs: Sequence[Run], now: float, max_seconds: float) -> tuple[bool, str]:
    if any(run.phase is not Phase.STARTED for run in live):
        return False, "a drain is queued or starting"
    if slot.gap is not None and not live:
        return False, f"no drain can go on: {slot.gap}"
    if live and any(now - (run.started or run.created) < max_seconds - HANDOVER_S for run in live):
        return False, f"drain {live[0].id[:8]} is at work"
    if live:
        return True, f"drain {live[0].id[:8]} is about to end; its successor waits on the slot"
    if slot.holder is not None:
        return False, f"slot {slot.name} is read by process {slot.holder}, which is not a drain of this sensor's"
    wait_s = retry_at(runs) - now
    if wait_s > 0:
        return False, f"the last drain failed; the next try is in {wait_s:.0f} s"
    return True, "nobody reads the slot"


def retry_at(runs: Sequence[Run]) -> float:
    """Return the time of the next try after the failures at the front of `runs`; the wait doubles with each failure."""
    wait_s, last = 0.0, 0.0
    for run in runs:
        # Runs that we failed because they were dead do not count: they say nothing about the next run.
        short = run.ended is not None and run.ended - (run.started or run.created) < HEALTHY_S
        if run.phase is not Phase.FAILED or not short:
            break
        last = max(last, run.ended or 0.0)
        wait_s = min(RETRY_S_MAX, wait_s * 2 or RETRY_S_FIRST)
    return last + wait_s
