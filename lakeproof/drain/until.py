"""When a drain is to end.

Whether that moment has come is decided in `loop.py` and `lakeproof.commands.drain`.
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
    """Made by one of the four class methods; `target` and `duration_s` belong to `lsn` and `seconds`."""

    mode: Mode
    target: Lsn | None = None
    duration_s: float | None = None

    @classmethod
    def caught_up(cls) -> Until:
        """All that the server had flushed when the drain began is durable."""
        return cls(Mode.CAUGHT_UP)

    @classmethod
    def lsn(cls, target: Lsn) -> Until:
        """The landing reaches `target` (it may end beyond it, at a commit)."""
        return cls(Mode.LSN, target=target)

    @classmethod
    def stopped(cls) -> Until:
        """Only when asked to stop."""
        return cls(Mode.STOPPED)

    @classmethod
    def seconds(cls, duration_s: float) -> Until:
        """After that many seconds."""
        return cls(Mode.SECONDS, duration_s=duration_s)

    @property
    def lasting(self) -> bool:
        """Whether a lost connection is made again instead of being an error: nobody waits for a position."""
        return self.mode in (Mode.STOPPED, Mode.SECONDS)
