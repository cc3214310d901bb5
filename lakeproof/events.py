"""The events that a pipeline step reports while it works, one at a time.

Showing an event (a progress bar, a JSON line, a Dagster log entry) does not belong here: the caller does that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
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


def listed(things: Iterable[object], most: int = 10) -> str:
    """Return the first things for a message, and how many there are beside them: `a, b and 2,500 more`."""
    texts = [str(thing) for thing in things]
    more = f" and {len(texts) - most:,} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def silent(_event: Event) -> None:
    """A `Report` that shows nothing."""


class Stop:
    """A request to end cleanly at the next safe point, from a signal handler or another thread.

    A handler runs amid whatever its thread is at, so nothing here holds a lock that a handler would wait for: an Event's own
    lock, held in `wait` by the thread that the signal interrupts, would never be free again.
    """

    __slots__ = ("_requested", "_wake")

    def __init__(self) -> None:
        self._requested = False
        # Its `put` may be called amid its `get`. Whoever waits puts back what it gets, for the next one.
        self._wake: SimpleQueue[None] = SimpleQueue()

    def request(self) -> None:
        """Ask for the end; may be called any number of times, from any thread or signal handler."""
        self._requested = True
        self._wake.put(None)

    @property
    def requested(self) -> bool:
        """True if the end was requested."""
        return self._requested

    def wait(self, timeout_s: float) -> bool:
        """Sleep up to `timeout_s` seconds, or until the end is requested; True if it is."""
        try:
            self._wake.get(timeout=max(timeout_s, 0.0))
        except Empty:
            return self._requested
        self._wake.put(None)
        return True


@dataclass(frozen=True, slots=True)
class RunControl:
    """Who hears of a run, and what ends it."""

    report: Report = silent
    stop: Stop = field(default_factory=Stop)
