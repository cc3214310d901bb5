"""The condition that ends a drain.

`loop.py` and `supervisor.py` decide whether it is met.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lakeproof.lsn import Lsn


class Mode(Enum):
    """The four ways to end; a stop on request ends each of them."""

    CAUGHT_UP = "caught_up"
    LSN = "lsn"
    STOPPED = "stopped"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Until:
    """Created by one of the four class methods; `target` and `duration_s` are those of `lsn` and `seconds`."""

    mode: Mode
    target: Lsn | None = None
    duration_s: float | None = None

    @classmethod
    def caught_up(cls) -> Until:
        """End when everything that the server had flushed at the drain's start is durable."""
        return cls(Mode.CAUGHT_UP)

    @classmethod
    def lsn(cls, target: Lsn) -> Until:
        """End when the landing reaches `target` (it may end beyond it, at a commit)."""
        return cls(Mode.LSN, target=target)

    @classmethod
    def stopped(cls) -> Until:
        return cls(Mode.STOPPED)

    @classmethod
    def seconds(cls, duration_s: float) -> Until:
        return cls(Mode.SECONDS, duration_s=duration_s)

    @property
    def lasting(self) -> bool:
        """True if the drain reconnects after a lost connection instead of failing: nobody waits for a position."""
        return self.mode in (Mode.STOPPED, Mode.SECONDS)
