"""Decisions of the sensor that keeps a compaction going, case by case: the lake's locks first, the runs second."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestration.policies.drain import Phase, Run
from orchestration.policies.follow import Decision, Lake, decide

NOW = 1_000_000.0
FREE, FOLLOWED, EMPTY = Lake(True, False), Lake(True, True), Lake(False, False)


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
    lake: Lake
    runs: tuple[Run, ...]
    locked: bool | None
    start: bool
    says: str
    dead: tuple[str, ...] = ()


AT_WORK = _run(Phase.STARTED, started_ago=100)
CASES = [
    Case("no landing", EMPTY, (), None, False, "bootstrap first"),
    Case("nobody follows", FREE, (), None, True, "nobody follows"),
    Case("somebody else follows", FOLLOWED, (), False, False, "not a run of this sensor's"),
    Case("one is queued", FREE, (_run(Phase.QUEUED),), False, False, "queued or starting"),
    Case("one is starting", FREE, (_run(Phase.STARTING),), False, False, "queued or starting"),
    Case("one is at work", FOLLOWED, (AT_WORK,), True, False, "is at work"),
    Case("one waits for its turn", FREE, (AT_WORK,), True, False, "is at work"),
    Case("the store does not say who has a process", FREE, (AT_WORK,), None, False, "is at work"),
    Case("one was killed", FREE, (AT_WORK,), False, True, "nobody follows", ("r1",)),
    Case("one has just started", FREE, (_run(Phase.STARTED, 20),), False, False, "is at work"),
    Case("one was never picked up", FREE, (_run(Phase.STARTING, 400),), False, True, "nobody follows", ("r1",)),
    Case("one is near its end", FOLLOWED, (_run(Phase.STARTED, 3545),), True, True, "waits for its turn"),
    Case("one is not yet near its end", FOLLOWED, (_run(Phase.STARTED, 3530),), True, False, "is at work"),
    Case(
        "the successor is there",
        FOLLOWED,
        (_run(Phase.STARTED, 4, name="r2"), _run(Phase.STARTED, 3550)),
        True,
        False,
        "is at work",
    ),
    Case("the last one failed", FREE, (_run(Phase.FAILED, 3, 1),), False, False, "next try is in 4 s"),
    Case("the last one failed after long work", FREE, (_run(Phase.FAILED, 900, 1),), False, True, "nobody follows"),
    Case("the last one ended well", FREE, (_run(Phase.ENDED, 3600, 1),), False, True, "nobody follows"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_decision(case: Case) -> None:
    """A run is started exactly where nobody follows, or shortly before the one that does ends."""
    decision = decide(case.lake, case.runs, case.locked, NOW, max_seconds=3600)
    assert decision == Decision(case.start, decision.reason, case.dead)
    assert case.says in decision.reason
