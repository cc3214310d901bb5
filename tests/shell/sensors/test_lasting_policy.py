"""Decisions of the sensors that keep a run going, case by case: the lock and the place of the work, never a run's word."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestration.policies.lasting import COMPACTION, DRAIN, Decision, LastingKind, Workplace, decide_run
from orchestration.policies.run import JobRuns, Phase, Run
from orchestration.sensors import INTERVAL_S

NOW = 1_000_000.0
FREE, READ = Workplace(), Workplace("slot s is read by process 4711")
LOST = Workplace(None, "the server has invalidated it; run `lakeproof recover`")


def _run(phase: Phase, started_ago: float | None = None, ended_ago: float | None = None, name: str = "r1") -> Run:
    return Run(
        id=name,
        phase=phase,
        created=NOW - (started_ago or 5.0) - 1.0,
        started=None if started_ago is None else NOW - started_ago,
        ended=None if ended_ago is None else NOW - ended_ago,
    )


@dataclass(frozen=True, slots=True)
class Case:
    """A situation and the expected decision."""

    name: str
    place: Workplace | None
    runs: tuple[Run, ...]
    locked: bool | None
    start: bool
    says: str
    dead: tuple[str, ...] = ()
    kind: LastingKind = DRAIN


AT_WORK = _run(Phase.STARTED, started_ago=200)
FAILED_AT_ONCE = _run(Phase.FAILED, started_ago=3, ended_ago=1)
CASES = [
    Case("no landing", None, (), False, False, "bootstrap first"),
    Case("no landing, whatever runs", None, (AT_WORK,), False, False, "bootstrap first"),
    Case("nobody works", FREE, (), False, True, "nobody reads the slot"),
    Case("nobody works, no lock is known", FREE, (), None, True, "nobody reads the slot"),
    Case("nobody follows", FREE, (), False, True, "nobody follows the landing", kind=COMPACTION),
    Case("an obstacle", LOST, (), False, False, "no drain can go on: the server has invalidated it; run `lakeproof"),
    Case("an obstacle under a drain at work", LOST, (AT_WORK,), True, False, "is at work"),
    Case("an obstacle under a dead drain", LOST, (AT_WORK,), False, False, "no drain can go on", ("r1",)),
    Case("somebody else works", READ, (), False, False, "process 4711, which is not a run of this sensor's"),
    Case("a run that is over works on", READ, (_run(Phase.FAILED, 50, 20),), True, False, "is over and ends itself"),
    Case("a run that is over does not work", FREE, (_run(Phase.FAILED, 900, 20),), True, True, "nobody reads"),
    Case("our drain works", READ, (AT_WORK,), True, False, "is at work"),
    Case("one is queued", FREE, (_run(Phase.QUEUED),), False, False, "queued or starting"),
    Case("one is starting", FREE, (_run(Phase.STARTING),), False, False, "queued or starting"),
    Case("slow to its lock and its work", FREE, (_run(Phase.STARTED, 170),), False, False, "is at work"),
    Case("slow or stopped, and not at its work", FREE, (AT_WORK,), True, False, "is at work"),
    Case("stopped for most of its hour", FREE, (_run(Phase.STARTED, 3500),), True, False, "is at work"),
    Case("the store does not say who lives", FREE, (AT_WORK,), None, False, "is at work"),
    Case("killed", FREE, (AT_WORK,), False, True, "nobody reads", ("r1",)),
    Case("killed while somebody else works", READ, (AT_WORK,), False, False, "process 4711", ("r1",)),
    Case("killed while it waited", FREE, (AT_WORK,), False, True, "nobody follows", ("r1",), COMPACTION),
    Case("near its end", READ, (_run(Phase.STARTED, 3575),), True, True, "successor waits on the slot"),
    Case("not yet near its end", READ, (_run(Phase.STARTED, 3565),), True, False, "is at work"),
    Case("near its end with a JVM", READ, (_run(Phase.STARTED, 3545),), True, True, "for its turn", kind=COMPACTION),
    Case("not near with a JVM", READ, (_run(Phase.STARTED, 3530),), True, False, "is at work", kind=COMPACTION),
    Case(
        "the successor is there",
        READ,
        (_run(Phase.STARTED, 4, name="r2"), _run(Phase.STARTED, 3595)),
        True,
        False,
        "is at work",
    ),
    Case(
        "the successor is queued",
        READ,
        (_run(Phase.QUEUED, name="r2"), _run(Phase.STARTED, 3595)),
        True,
        False,
        "queued or starting",
    ),
    Case("never picked up", FREE, (_run(Phase.STARTING, 400),), False, True, "nobody reads", ("r1",)),
    Case("long in the queue", FREE, (_run(Phase.QUEUED, 4000),), False, False, "queued or starting"),
    Case("the last one ended well", FREE, (_run(Phase.ENDED, 3600, 1),), False, True, "nobody reads"),
    Case("failed a moment ago", FREE, (FAILED_AT_ONCE,), False, False, "next try is at 1970-01-12 13:46:44 UTC"),
    Case("failed after long work", FREE, (_run(Phase.FAILED, 900, 1),), False, True, "nobody reads"),
    Case("failed, then paused", FREE, (_run(Phase.FAILED, 8, 6),), False, True, "nobody reads"),
    Case(
        "failed three times",
        FREE,
        (FAILED_AT_ONCE, _run(Phase.FAILED, 10, 9), _run(Phase.FAILED, 20, 19)),
        False,
        False,
        "next try is at 1970-01-12 13:46:59 UTC",
    ),
    Case(
        "failed for ever",
        FREE,
        tuple(_run(Phase.FAILED, 300.0 * n + 2, 300.0 * n + 1) for n in range(12)),
        False,
        False,
        "next try is at 1970-01-12 13:51:39 UTC",
    ),
    Case(
        "failures before a success don't count",
        FREE,
        (_run(Phase.ENDED, 50, 1), _run(Phase.FAILED, 60, 59)),
        False,
        True,
        "nobody reads",
    ),
]


@pytest.mark.parametrize("kind", [DRAIN, COMPACTION])
def test_a_sensor_looks_in_time_to_start_a_successor(kind: LastingKind) -> None:
    """Its ticks are at most a loop of the daemon, 5 s, further apart than asked for; then the process has 8 s to start."""
    assert kind.handover_s > INTERVAL_S + 5 + 8


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_policy_decides_for_drains_and_compactions(case: Case) -> None:
    """Each situation has one decision, and its words are what the UI shows."""
    decision = decide_run(case.kind, case.place, JobRuns(case.runs, NOW, case.locked), max_seconds=3600)
    assert decision == Decision(case.start, decision.reason, case.dead)
    assert case.says in decision.reason
