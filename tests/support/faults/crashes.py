"""The end of a process, as an exception that nobody may catch, by chance at the places that a test names."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakeproof.failpoints import watched


class Crash(BaseException):
    """The process is gone: no handler of an Exception may see it."""


@dataclass
class Crashes:
    """Crashes by chance at failpoints; `hit` counts them by place."""

    rng: random.Random
    chance: float
    hit: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def possible_at(self, places: Collection[str]) -> Iterator[None]:
        """Let any passing of these places in the block be the last thing that this process does."""

        def passing(name: str) -> None:
            if name in places and self.rng.random() < self.chance:
                self.hit[name] += 1
                raise Crash(name)

        with watched(passing):
            yield
