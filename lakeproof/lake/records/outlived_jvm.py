"""Ends a JVM that outlives its process: it might still commit while the next process holds the lease.

The lease is in `lease`. A process is identified by its number and the time of its start,
since the system gives a number again. If the system has no `/proc`, nothing is done.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lakeproof.errors import TransientError
from lakeproof.field_types import Count
from lakeproof.storage.document import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_S = 30.0
_POLL_S = 0.05
# Of what follows the command's name in /proc/<pid>/stat.
_STATE, _STARTED = 0, 19


@dataclass(frozen=True, slots=True)
class Process(Part):
    """A process of this machine: its number, and its start in the kernel's ticks since boot."""

    pid: Count
    started: Count

    @property
    def lives(self) -> bool:
        """True if the process still runs."""
        return process(self.pid) == self

    def end(self, thing: str) -> None:
        """Kill it, and wait until it is gone; raises TransientError about `thing` if it does not go."""
        with suppress(ProcessLookupError, PermissionError):
            os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + _TIMEOUT_S
        while self.lives:
            if time.monotonic() > until:
                raise TransientError(thing, f"the JVM of its last holder still runs (process {self.pid})", "end it")
            time.sleep(_POLL_S)


def process(pid: int) -> Process | None:
    """Return the process of this number, None if there is none, or if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return None if fields[_STATE] in ("Z", "X") else Process(pid, int(fields[_STARTED]))
    except (OSError, IndexError, ValueError):
        return None


def jvm_of(session: SparkSession | None) -> Process | None:
    """Return the session's JVM if this process started it on this machine, else None."""
    gateway: object = None if session is None else session.sparkContext._gateway  # noqa: SLF001  PySpark has no public name for its JVM
    child = getattr(gateway, "proc", None)
    return None if child is None else process(child.pid)
