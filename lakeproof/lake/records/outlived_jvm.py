"""A JVM that outlives its process: it may still commit beside the next holder of the lease, so it is ended first.

Whose lease it was belongs to `lease`. A process is known by its number and the time of its start: a number is given again.
Where the system does not tell of processes (no `/proc`) nothing is done.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakeproof.errors import TransientError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE_S = 30.0
_LOOK_S = 0.05
# Of what follows the command's name in /proc/<pid>/stat.
_STATE, _STARTED = 0, 19


@dataclass(frozen=True, slots=True)
class Process:
    """A process of this machine: its number, and its start in the kernel's ticks since boot."""

    pid: int
    started: int

    @property
    def lives(self) -> bool:
        """Whether it is still there."""
        return process(self.pid) == self

    def end(self, thing: str) -> None:
        """Kill it, and wait until it is gone; raises TransientError about `thing` when it does not go."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + _PATIENCE_S
        while self.lives:
            if time.monotonic() > until:
                raise TransientError(thing, f"the JVM of its last holder still runs (process {self.pid})", "end it")
            time.sleep(_LOOK_S)


def process(pid: int) -> Process | None:
    """The process of this number, None when there is none, or nobody knows."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if told[_STATE] in ("Z", "X") else Process(pid, int(told[_STARTED]))
    except (OSError, IndexError, ValueError):
        return None


def jvm_of(session: SparkSession | None) -> Process | None:
    """The session's JVM, when it runs on this machine as a process of this one."""
    gateway: Any = None if session is None else session.sparkContext._gateway  # noqa: SLF001  PySpark has no public name for its JVM
    child = getattr(gateway, "proc", None)
    return None if child is None else process(child.pid)
