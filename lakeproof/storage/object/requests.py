"""Sends requests to an object store: counts them, and repeats for a limited time what may succeed later."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeproof.errors import LakeproofError
from lakeproof.storage.object.errors import is_missing, is_refused_condition, passes, store_error
from lakeproof.storage.store import NotFoundError

T = TypeVar("T")
_PAUSE_FIRST_S = 0.1
_PAUSE_MAX_S = 5.0
_ACTIONS = {
    "get": "reading it",
    "head": "looking it up",
    "list": "listing it",
    "copy": "copying it",
    "put": "writing it",
    "create": "writing it",
    "swap": "writing it",
    "delete": "deleting it",
}


class Requests:
    """The requests of one store. `counts` has how many of each kind were sent; several threads may use it."""

    def __init__(self, retry_s: float) -> None:
        self.counts: Counter[str] = Counter()
        self.retry_s = retry_s
        self._lock = threading.Lock()

    def count(self, kind: str, number: int = 1) -> None:
        """Count requests that are sent elsewhere (the parts of a large file)."""
        with self._lock:
            self.counts[kind] += number

    def once(self, kind: str, call: Callable[[], T]) -> T:
        """Send a request once; whatever the library raises comes out."""
        self.count(kind)
        return call()

    def send(self, kind: str, thing: str, key: str, call: Callable[[], T]) -> T:
        """Send a request that may be repeated without harm.

        Raises NotFoundError for a missing key, the library's error for a refused condition, and else our own.
        """
        for pause in self.pauses():
            try:
                return self.once(kind, call)
            except LakeproofError:
                raise
            except Exception as error:  # broad: whatever the library raises is sorted here
                if is_missing(error):
                    raise NotFoundError(key) from None
                if is_refused_condition(error):
                    raise
                if not passes(error) or not pause():
                    raise store_error(error, thing, _ACTIONS[kind]) from error
        raise AssertionError("there is no end of pauses")

    def pauses(self) -> Iterator[Callable[[], bool]]:
        """Yield, for each attempt, a function that waits before the next one; it returns False if the time is up."""
        deadline = time.monotonic() + self.retry_s
        wait_s = _PAUSE_FIRST_S

        def pause() -> bool:
            nonlocal wait_s
            chosen = wait_s * random.uniform(0.5, 1.0)  # noqa: S311  so that several do not come back together
            wait_s = min(_PAUSE_MAX_S, 2 * wait_s)
            if time.monotonic() + chosen >= deadline:
                return False
            time.sleep(chosen)
            return True

        while True:
            yield pause
