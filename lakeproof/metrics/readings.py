"""Reads something outside the process for a scrape: not more often than every few seconds, and never for longer than a few.

A server or a store may hang. So the reading is done by a thread, and a scrape waits for it for `WAIT_S` seconds: then it has
what was read before, whose age is a metric of its own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from lakeproof.metrics import definitions as m
from lakeproof.metrics.samples import Sample

T = TypeVar("T")

# A scrape finds values that are at most this old, if they can be read in time.
FRESH_S = 5.0
# The longest wait of a scrape for one reading; Prometheus gives up after 10 s by default.
WAIT_S = 2.0


class PolledValue(Generic[T]):
    """The newest value that `read` has returned; for any number of threads."""

    def __init__(
        self, name: str, read: Callable[[], T], clock: Callable[[], float] = time.monotonic, wait_s: float = WAIT_S
    ) -> None:
        self._name, self._read, self._clock, self._wait_s = name, read, clock, wait_s
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._working = False
        self._tried_s: float | None = None
        self._value: tuple[T, float] | None = None
        self.errors = 0

    def value(self) -> tuple[T, float] | None:
        """Return the newest value and its age in seconds, None if there is none; never raises."""
        with self._lock:
            due = self._tried_s is None or self._clock() - self._tried_s >= FRESH_S
            if due and not self._working:
                self._working, self._tried_s = True, self._clock()
                self._done.clear()
                threading.Thread(target=self._work, name=f"lakeproof {self._name}", daemon=True).start()
        if not self._done.wait(self._wait_s):
            self.errors += 1
        newest = self._value
        return None if newest is None else (newest[0], self._clock() - newest[1])

    def samples(self, of: str, labels: Mapping[str, str], state: Callable[[T], Iterable[Sample]]) -> Iterator[Sample]:
        """Yield the samples of the newest value, beside its age and the number of errors; `of` says what was read."""
        newest = self.value()
        yield Sample(m.STATE_ERRORS, self.errors, {**labels, "of": of})
        if newest is not None:
            yield Sample(m.STATE_AGE, newest[1], {**labels, "of": of})
            yield from state(newest[0])

    def _work(self) -> None:
        began_s = self._clock()
        try:
            self._value = self._read(), began_s
        except Exception:  # noqa: BLE001  whatever it is, a scrape goes on without the value, and counts it
            self.errors += 1
        finally:
            self._working = False
            self._done.set()
