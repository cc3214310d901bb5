"""Decisions of the slot drain sensor, case by case: the slot first, the runs second."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from orchestration.policies.drain import Decision, Memory, Phase, Run, Slot, decide

NOW = 1_000_000.0
HELD = Slot("s", 4711)
FREE = Slot("s", None)
LOST = Slot("s", None, "the server has invalidated it; run `lakeproof recover`")


def _run(phase: Phase, started_ago: float | None = None, ended_ago: float | None = None, name: str = "r1") -> Run:
    return Run(
        id=name,
        phase=phase,
        created=NOW - (started_ago or 5.0) - 1.0,
        started=None if started_ago is None else NOW - started_ago,
        ended=None if ended_ago is None else NOW - ended_ago,
    )


def _decide(slot: Slot | None, *runs: Run, unread_s: float | None = None) -> Decision:
    memory = Memory(None if unread_s is None else NOW - unread_s)
    return decide(slot, runs, memory, NOW, max_seconds=3600)


@dataclass(frozen=True, slots=True)
class Case:
    """A situation and the expected decision."""

    name: str
    decision: Decision
    start: bool
    says: str
    dead: tuple[str, ...] = ()


AT_WORK = _run(Phase.STARTED, started_ago=100)
FAILED_AT_ONCE = _run(Phase.FAILED, started_ago=3, ended_ago=1)
CASES = [
    Case("no slot", _decide(None), False, "bootstrap first"),
    Case("no slot, whatever runs", _decide(None, AT_WORK), False, "bootstrap first"),
    Case("nobody reads", _decide(FREE), True, "nobody reads the slot"),
    Case("a gap", _decide(LOST), False, "no drain can go on: the server has invalidated it; run `lakeproof recover`"),
    Case("a gap under a drain at work", _decide(LOST, AT_WORK, unread_s=10), False, "is at work"),
    Case("a gap under a dead drain", _decide(LOST, AT_WORK, unread_s=31), False, "no drain can go on", ("r1",)),
    Case("somebody else reads", _decide(HELD), False, "process 4711"),
    Case("our drain reads", _decide(HELD, AT_WORK), False, "is at work"),
    Case("a drain is queued", _decide(FREE, _run(Phase.QUEUED)), False, "queued or starting"),
    Case("a drain is starting", _decide(FREE, _run(Phase.STARTING)), False, "queued or starting"),
    Case("just started, not at the slot yet", _decide(FREE, _run(Phase.STARTED, 5), unread_s=50), False, "is at work"),
    Case("reconnecting", _decide(FREE, AT_WORK, unread_s=10), False, "is at work"),
    Case("killed: STARTED, but nobody reads", _decide(FREE, AT_WORK, unread_s=31), True, "nobody reads", ("r1",)),
    Case("seen unread for the first time", _decide(FREE, AT_WORK), False, "is at work"),
    Case("near its end", _decide(HELD, _run(Phase.STARTED, 3590)), True, "successor waits on the slot"),
    Case("not yet near its end", _decide(HELD, _run(Phase.STARTED, 3580)), False, "is at work"),
    Case(
        "the successor is there",
        _decide(HELD, _run(Phase.STARTED, 4, name="r2"), _run(Phase.STARTED, 3595)),
        False,
        "is at work",
    ),
    Case(
        "the successor is queued",
        _decide(HELD, _run(Phase.QUEUED, name="r2"), _run(Phase.STARTED, 3595)),
        False,
        "queued or starting",
    ),
    Case("never picked up", _decide(FREE, _run(Phase.STARTING, 400)), True, "nobody reads", ("r1",)),
    Case("long in the queue", _decide(FREE, _run(Phase.QUEUED, 4000)), False, "queued or starting"),
    Case("the last one ended well", _decide(FREE, _run(Phase.ENDED, 3600, 1)), True, "nobody reads"),
    Case("failed a moment ago", _decide(FREE, FAILED_AT_ONCE), False, "next try is in 4 s"),
    Case("failed after long work", _decide(FREE, _run(Phase.FAILED, 900, 1)), True, "nobody reads"),
    Case("failed, then paused", _decide(FREE, _run(Phase.FAILED, 8, 6)), True, "nobody reads"),
    Case(
        "failed three times",
        _decide(FREE, FAILED_AT_ONCE, _run(Phase.FAILED, 10, 9), _run(Phase.FAILED, 20, 19)),
        False,
        "next try is in 19 s",
    ),
    Case(
        "failed for ever",
        _decide(FREE, *[_run(Phase.FAILED, 300.0 * n + 2, 300.0 * n + 1) for n in range(12)]),
        False,
        "next try is in 299 s",
    ),
    Case(
        "failures before a success don't count",
        _decide(FREE, _run(Phase.ENDED, 50, 1), _run(Phase.FAILED, 60, 59)),
        True,
        "nobody reads",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_policy_decides_by_the_slot_first(case: Case) -> None:
    """Each situation has one decision, and its words are what the UI shows."""
    assert case.decision.start == case.start
    assert case.says in case.decision.reason
    assert case.decision.dead == case.dead


def test_the_memory_begins_when_the_slot_is_first_seen_unread_and_is_kept() -> None:
    """The grace period runs from the first look that saw no reader, not from the last."""
    assert _decide(FREE).memory == Memory(NOW)
    assert _decide(FREE, unread_s=7).memory == Memory(NOW - 7)
    assert _decide(HELD, unread_s=7).memory == Memory(None)


@pytest.mark.parametrize("cursor", [None, "", "null", "7", "[]", "not json", '{"unread_since": "x"}', '{"other": 1}'])
def test_a_cursor_that_is_not_ours_is_an_empty_memory(cursor: str | None) -> None:
    """A cursor left behind by another version never stops a tick."""
    assert Memory.from_cursor(cursor) == Memory(None)


def test_a_memory_survives_its_cursor() -> None:
    """The next tick reads what one tick writes."""
    assert Memory.from_cursor(Memory(12.5).to_cursor()) == Memory(12.5)
