"""The condition that ends a drain.

`loop.py` and `supervisor.py` decide whether it is met.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.lsn import Lsn


@dataclass(frozen=True, slots=True)
class Until:
    """Created by one of the four class methods, each a way to end; a stop on request ends each of them."""

    target: Lsn | None = None
    duration_s: float | None = None
    catches_up: bool = False

    @classmethod
    def caught_up(cls) -> Until:
        """End when everything that the server had flushed at the drain's start is durable."""
        return cls(catches_up=True)

    @classmethod
    def lsn(cls, target: Lsn) -> Until:
        """End when the landing reaches `target` (it may end beyond it, at a commit)."""
        return cls(target=target)

    @classmethod
    def seconds(cls, duration_s: float) -> Until:
        """End after that many seconds."""
        return cls(duration_s=duration_s)

    @classmethod
    def stopped(cls) -> Until:
        """End only when asked to stop."""
        return cls()

    @property
    def lasting(self) -> bool:
        """True if the drain reconnects after a lost connection instead of failing: nobody waits for a position."""
        return self.target is None and not self.catches_up

    @property
    def endless(self) -> bool:
        """True if only a stop ends the drain."""
        return self.lasting and self.duration_s is None
