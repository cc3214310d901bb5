"""Messages about problems: each problem once, again when it lasts or grows, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence

from orchestration.policies.alert import SETTLED_S, AlertMemory, AlertState, due_messages, look, sent
from resources.messages import Alert

_REPEAT_S, _PER_HOUR = 1000, 3
_Looks = list[tuple[float, list[Alert]]]
_WARN, _ERROR = Alert("a", "slot", "warn", "a"), Alert("a", "slot", "error", "a")


def _tick(memory: AlertMemory, problems: Sequence[Alert], now: float) -> tuple[AlertMemory, list[tuple[str, str]]]:
    """Look and send everything that is due, in one request."""
    memory = look(memory, problems, now)
    messages = due_messages(memory, problems, now, _REPEAT_S)
    if not messages or len(memory.sent) >= _PER_HOUR:
        return memory, []
    return sent(memory, messages, now), [(message.event, message.problem.key) for message in messages]


def _events(*looks: tuple[float, Sequence[Alert]]) -> list[list[tuple[str, str]]]:
    memory, result = AlertMemory(), []
    for now, problems in looks:
        memory, events = _tick(memory, problems, now)
        # A tick leaves nothing to the next one but a text.
        memory = AlertState.from_cursor(AlertState({"way": memory}, {}, now).cursor(), now).ways["way"]
        result.append(events)
    return result


def test_a_problem_is_reported_once_and_when_it_is_over() -> None:
    """Over is what has been gone for a minute."""
    gone = SETTLED_S + 60
    looks: _Looks = [
        (0, [_ERROR]),
        (30, [_ERROR]),
        (60, []),
        (90, []),
        (gone, []),
        (gone + 30, []),
    ]
    assert _events(*looks) == [[("problem", "a")], [], [], [], [("over", "a")], []]


def test_what_comes_and_goes_is_reported_once() -> None:
    """Nobody hears of its pauses."""
    looks: _Looks = [(0, [_WARN]), (30, []), (60, [_WARN]), (90, []), (120, [_WARN])]
    assert _events(*looks) == [[("problem", "a")], [], [], [], []]


def test_what_grows_worse_and_what_lasts_is_reported_again() -> None:
    """A warning that becomes an error, not the other way round."""
    looks: _Looks = [
        (0, [_WARN]),
        (30, [_ERROR]),
        (60, [_WARN]),
        (1029, [_ERROR]),
        (1030, [_ERROR]),
    ]
    assert _events(*looks) == [[("problem", "a")], [("worse", "a")], [], [], [("lasts", "a")]]


def test_no_more_requests_than_an_hour_may_have_and_nothing_is_lost() -> None:
    """The rest waits and is sent together; errors come first."""
    problems = [Alert(f"p{n}", "run", "warn", f"p{n}") for n in range(5)]
    memory, counts = AlertMemory(), []
    for now, some in [
        *((n * 30.0, problems[: n + 1]) for n in range(5)),
        (3599.0, problems),
        (3600.0, [*problems, _ERROR]),
    ]:
        memory = look(memory, some, now)
        messages = due_messages(memory, some, now, 0) if len(memory.sent) < _PER_HOUR else []
        memory = sent(memory, messages, now) if messages else memory
        counts.append([message.problem.key for message in messages])
    assert counts == [["p0"], ["p1"], ["p2"], [], [], [], ["a", "p3", "p4"]]


def test_what_was_not_sent_is_due_again() -> None:
    """The memory changes by what was sent alone."""
    memory = look(AlertMemory(), [_ERROR], 0)
    assert (
        due_messages(memory, [_ERROR], 0, _REPEAT_S)
        == due_messages(look(memory, [_ERROR], 0), [_ERROR], 0, _REPEAT_S)
        != []
    )


def test_a_cursor_of_another_version_is_a_fresh_start() -> None:
    """Better reported twice than never."""
    strangers = [None, "", "{", "[]", "7", '{"ways": {"way": {"reported": {"a": {"x": 1}}, "sent": []}}}']
    assert [AlertState.from_cursor(cursor, 7.0) for cursor in strangers] == [AlertState({}, {}, 7.0)] * len(strangers)
