"""Named places at which a test may kill or delay this process, to show that the state on disk is enough to go on.

The names of failpoints are in the code that passes them. Without LAKEPROOF_FAILPOINT, passing one costs one comparison.

    LAKEPROOF_FAILPOINT=drain.after_manifest            kill -9 of itself at the first passing
    LAKEPROOF_FAILPOINT=drain.after_manifest:7          at the seventh
    LAKEPROOF_FAILPOINT=drain.after_data_files@hang:5   sleep 5 s there, once
    LAKEPROOF_FAILPOINT=drain.decoded@hold:/tmp/here    create the file there, and go on when somebody has removed it

A test that needs no process of its own uses `watched`.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "LAKEPROOF_FAILPOINT"
_HOLD_LOOK_S = 0.01


@dataclass(slots=True)
class Armed:
    """An armed failpoint; it kills the process if `hang_s` and `hold` are None."""

    name: str
    nth: int
    hang_s: float | None
    hold: Path | None = None
    passed: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def parse(cls, text: str) -> Armed:
        """Parse the variable's value; raise ValueError for another form."""
        name, separator, how = text.partition("@")
        stem, colon, last = name.rpartition(":")
        nth = 1
        if colon and last.isascii() and last.isdigit():
            name, nth = stem, int(last)
        kind, _, value = how.partition(":")
        if not name or nth < 1 or (separator and (kind not in ("hang", "hold") or not value)):
            forms = "name, name:N, or either with @hang:SECONDS or @hold:FILE behind"
            raise ValueError(f"{VARIABLE} is {text!r}; write {forms}")
        hang_s, hold = float(value) if kind == "hang" else None, Path(value) if kind == "hold" else None
        return cls(name, nth, hang_s, hold)

    def passing(self, name: str) -> bool:
        """Count a passing; True if it is the one."""
        if name != self.name:
            return False
        with self.lock:
            self.passed += 1
            return self.passed == self.nth

    def __call__(self, name: str) -> None:
        """Do what this failpoint is for, if `name` is passed for the nth time now."""
        if not self.passing(name):
            return
        if self.hang_s is not None:
            time.sleep(self.hang_s)
            return
        if self.hold is not None:
            self.hold.touch()
            while self.hold.exists():
                time.sleep(_HOLD_LOOK_S)
            return
        os.kill(os.getpid(), signal.SIGKILL)


def failpoint(name: str) -> None:
    """Pass a named place: nothing happens unless the environment or a test in this process asked for it."""
    if _armed is not None:
        _armed(name)


@contextmanager
def watched(watch: Callable[[str], None]) -> Iterator[None]:
    """Call `watch` with each name that is passed in this process while the block runs; what it raises ends the step."""
    global _armed  # noqa: PLW0603  one look-up is all that a passing may cost
    before, _armed = _armed, watch
    try:
        yield
    finally:
        _armed = before


def _from_environment() -> Armed | None:
    text = os.environ.get(VARIABLE, "")
    return Armed.parse(text) if text else None


_armed: Callable[[str], None] | None = _from_environment()
