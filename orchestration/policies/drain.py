"""Decides whether a source's drain must be started, and which runs are dead, from the slot and the run records.

Pure: no server, instance or clock is touched here; `orchestration.sensors` brings what is seen and does what is decided.

The slot is asked first, the runs second. After a kill -9 of the code server a run says STARTED for ever, and whatever
trusts run status waits for ever; PostgreSQL, on the other hand, knows at once that nobody reads the slot, and admits one
reader only. So a slot without a reader for a while makes a STARTED run a dead one, and a successor may always be
started early: it waits on the slot itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

# A drain holds its slot within seconds of its start, also on a loaded machine; 15 s was seen to be passed there.
UNHELD_S_MAX = 30.0
# A run that was never picked up by its process; the queue itself may take as long as it likes.
STARTING_S_MAX = 300.0
# The successor's process needs 1 to 8 s until it stands at the slot.
HANDOVER_S = 12.0
# A drain that lived this long did not fail because of how things stand, so it is started again at once.
HEALTHY_S = 60.0
RETRY_S_FIRST = 5.0
RETRY_S_MAX = 300.0


class Phase(Enum):
    """What Dagster says of a run, as far as the keeper cares."""

    QUEUED = "queued"
    STARTING = "starting"
    STARTED = "started"
    FAILED = "failed"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Slot:
    """The slot as the server sees it; `holder` is the process that reads it, None where nobody does.

    `gap` says why no drain could go on with it, None where one can.
    """

    name: str
    holder: int | None
    gap: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One drain run. Times are seconds since 1970; `started` and `ended` None where it has not come to that."""

    id: str
    phase: Phase
    created: float
    started: float | None = None
    ended: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What one look must tell the next: since when nobody reads the slot."""

    unheld_since: float | None = None

    def to_cursor(self, **more: object) -> str:
        """Return the sensor's cursor, with whatever `more` it carries."""
        return json.dumps({"unheld_since": self.unheld_since, **more})

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Memory:
        """The inverse; anything else, also from another version of this file, is an empty memory."""
        try:
            since = json.loads(cursor or "{}").get("unheld_since")
        except (ValueError, AttributeError):
            return cls()
        return cls(float(since)) if isinstance(since, int | float) else cls()


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do: fail the `dead` runs, then `start` one or not; `reason` says why in words for the UI."""

    start: bool
    reason: str
    memory: Memory
    dead: tuple[str, ...] = ()


def decide(slot: Slot | None, runs: Sequence[Run], memory: Memory, now: float, max_seconds: float) -> Decision:
    """The decision; `runs` are the newest first, `max_seconds` is how long a drain runs before it ends by itself.

    With a gap nothing is started: each run would fail with it, until somebody has run `recover`. That is told by the
    check of the slot.
    """
    if slot is None:
        return Decision(False, "there is no landing yet: bootstrap first", Memory())
    memory = (
        Memory(None) if slot.holder is not None else Memory(now if memory.unheld_since is None else memory.unheld_since)
    )
    unheld_s = 0.0 if memory.unheld_since is None else now - memory.unheld_since
    dead = tuple(run.id for run in runs if _is_dead(run, unheld_s, now))
    live = [run for run in runs if run.id not in dead and run.phase in (Phase.QUEUED, Phase.STARTING, Phase.STARTED)]
    start, reason = _start(slot, live, runs, now, max_seconds)
    return Decision(start, reason, memory, dead)


def _is_dead(run: Run, unheld_s: float, now: float) -> bool:
    if run.phase is Phase.STARTED:
        return unheld_s > UNHELD_S_MAX and now - (run.started or run.created) > UNHELD_S_MAX
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
    wait_s = _retry_at(runs) - now
    if wait_s > 0:
        return False, f"the last drain failed; the next try is in {wait_s:.0f} s"
    return True, "nobody reads the slot"


def _retry_at(runs: Sequence[Run]) -> float:
    """When a new try may be made after the failures that stand at the front of `runs`: twice as long after each."""
    wait_s, last = 0.0, 0.0
    for run in runs:
        # Our own verdict on a dead run has no part in this: it says nothing of how the next will fare.
        short = run.ended is not None and run.ended - (run.started or run.created) < HEALTHY_S
        if run.phase is not Phase.FAILED or not short:
            break
        last = max(last, run.ended or 0.0)
        wait_s = min(RETRY_S_MAX, wait_s * 2 or RETRY_S_FIRST)
    return last + wait_s
