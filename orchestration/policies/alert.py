"""Decides which messages about problems are sent now: once for each, again when it lasts or grows, and when it is over.

Each way of notifying people has a memory of its own, and it changes only by what was sent: what could not be sent is
due again at the next look.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakeproof.cli.results import from_json, to_json
from resources.messages import Alert, AlertSeverity, Message

# A problem that comes and goes within this time is reported once.
SETTLED_S = 60.0
_HOUR_S = 3600.0

_RANK: Mapping[AlertSeverity, int] = {"warn": 0, "error": 1}


@dataclass(frozen=True, slots=True)
class Reported:
    """A problem that was reported, and when; `gone_since` if it is no more, but may come back."""

    problem: Alert
    since: float
    sent_at: float
    gone_since: float | None = None


@dataclass(frozen=True, slots=True)
class AlertMemory:
    """The problems that one way has reported, and the times of its requests within the last hour."""

    reported: Mapping[str, Reported] = field(default_factory=dict)
    sent: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class AlertState:
    """State that one tick passes to the next: the memory of each way, and failed runs.

    `runs` has the newest failed run of each job that has not got over it, and its text; `looked` is the time of the look.
    """

    ways: Mapping[str, AlertMemory]
    runs: Mapping[str, tuple[str, str]]
    looked: float

    @classmethod
    def from_cursor(cls, text: str | None, now: float) -> AlertState:
        """Read a cursor; without one, or with that of another version of this file, runs count from now on."""
        try:
            return from_json(cls, json.loads(text or "{}"))
        except ValueError:
            return cls({}, {}, now)

    def cursor(self) -> str:
        """Return it as the sensor keeps it."""
        return json.dumps(to_json(self))


def look(memory: AlertMemory, problems: Sequence[Alert], now: float) -> AlertMemory:
    """Return the memory with those that are no problems any more marked as gone, and those that came back as never gone."""
    keys = {problem.key for problem in problems}
    reported = {
        key: replace(one, gone_since=None if key in keys else now if one.gone_since is None else one.gone_since)
        for key, one in memory.reported.items()
    }
    return AlertMemory(reported, tuple(sent for sent in memory.sent if now - sent < _HOUR_S))


def due_messages(memory: AlertMemory, problems: Sequence[Alert], now: float, repeat_s: float) -> list[Message]:
    """Return the messages to send now, the worst first; `memory` has seen `look`.

    What lasts is reported again after `repeat_s`, 0 never.
    """
    messages = [
        message for problem in problems if (message := _of(memory.reported.get(problem.key), problem, now, repeat_s))
    ]
    messages += [
        Message("over", one.problem, one.since)
        for one in memory.reported.values()
        if one.gone_since is not None and now - one.gone_since >= SETTLED_S
    ]
    messages.sort(key=lambda message: (message.event == "over", -_RANK[message.problem.severity], message.problem.key))
    return messages


def _of(reported: Reported | None, problem: Alert, now: float, repeat_s: float) -> Message | None:
    if reported is None:
        return Message("problem", problem, now)
    if _RANK[problem.severity] > _RANK[reported.problem.severity]:
        return Message("worse", problem, reported.since)
    if repeat_s and now - reported.sent_at >= repeat_s:
        return Message("lasts", problem, reported.since)
    return None


def sent(memory: AlertMemory, messages: Sequence[Message], now: float) -> AlertMemory:
    """Return the memory after these messages were sent, in one request."""
    reported = dict(memory.reported)
    for message in messages:
        problem = message.problem
        if message.event == "over":
            reported.pop(problem.key, None)
        else:
            # The text may be long, and nobody reads it again.
            reported[problem.key] = Reported(replace(problem, text=""), message.since, now)
    return AlertMemory(reported, (*memory.sent, now))
