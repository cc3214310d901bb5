"""The events that a pipeline step reports while it works, one at a time.

Showing an event (a progress bar, a JSON line, a Dagster log entry) does not belong here: the caller does that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

# A follower's cycles, and its refreshes of views, with what each did to every table: for whoever reports them further.
FOLLOWED_CUTS, FOLLOWED_VIEWS = "follow.cuts", "follow.refreshed"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: `kind` is a dotted name (`drain.flush`), `message` a sentence for people.

    `fields` holds JSON values; an LSN goes in as its text, bytes and rows as integers with the unit in the name.
    """

    kind: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)


Report: TypeAlias = Callable[[Event], None]


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun for a message: `1 file`, `2,500 files`; `plural` if that is not the noun with an s."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def silent(_event: Event) -> None:
    """A `Report` that shows nothing."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A request to end cleanly at the next safe point, from a signal handler or another thread."""

    _flag: threading.Event = field(default_factory=threading.Event)

    def request(self) -> None:
        """Ask for the end; may be called any number of times, from any thread or signal handler."""
        self._flag.set()

    @property
    def requested(self) -> bool:
        """True if the end was requested."""
        return self._flag.is_set()

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to `timeout_s` seconds, or until the end is requested; True if it is."""
        return self._flag.wait(timeout_s)


@dataclass(frozen=True, slots=True)
class RunControl:
    """Who hears of a run, and what ends it."""

    report: Report = silent
    stop: Stop = field(default_factory=Stop)
