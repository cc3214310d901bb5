"""The end of a driver's process, by what is known of it: its exit status, its last lines, the kernel's count of kills."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A shell's and the JVM's own way of naming the signal that ended a process.
_BY_SIGNAL = 128
_FROM_OUTSIDE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_CRASHED = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
# Processes that the kernel ended for want of memory: of this machine, and of this container.
_OOM_KILLS = (Path("/proc/vmstat"), Path("/sys/fs/cgroup/memory.events"))
_NO_MEMORY = "OutOfMemoryError"
# A connection may be seen to break before the process is seen to have ended.
LAST_BREATH_S = 5.0
# Spark's own end, with files to remove, may take a driver so long; one that was asked to end ends then.
GOING_S = 10.0


@dataclass(frozen=True, slots=True)
class DriverEnd:
    """The reason why a driver's process has ended.

    `asked`: somebody, or the system, asked it to end, so nothing that it was doing is at fault. `silent`: it was killed, and
    nothing says why.
    """

    reason: str
    asked: bool = False
    silent: bool = False


@dataclass(slots=True)
class _Started:
    """What is kept of the driver that this process has started: the last lines of its output, and the count by then.

    `ended_here`: this process has ended it.
    """

    lines: Sequence[str] = ()
    oom_kills: tuple[int, ...] = ()
    ended_here: bool = False


_started = _Started()


def driver_started(lines: Sequence[str]) -> None:
    """Keep what says later how the driver ended; `lines` goes on getting its last lines."""
    _started.lines, _started.oom_kills, _started.ended_here = lines, _oom_kills(), False


def end_now(session: SparkSession) -> None:
    """Kill the session's driver: whoever waits for it gets an error at once, and nothing counts against what it did."""
    process = _process(session)
    if process is not None:
        _started.ended_here = True
        process.kill()


def how_ended(session: SparkSession | None = None, wait_s: float = 0.0) -> DriverEnd | None:
    """Return how the process of the session's driver ended, None if it lives or is none of ours.

    Without a session, of the one that this process has.
    """
    process = _process(session)
    if process is None:
        return None
    try:
        status = process.wait(wait_s)
    except TimeoutExpired:
        return None
    return _end(status)


def _process(session: SparkSession | None) -> Popen[bytes] | None:
    context: object = None if session is None else session.sparkContext
    if context is None:
        context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process: Popen[bytes] | None = getattr(getattr(context, "_gateway", None), "proc", None)
    return process


def _end(status: int) -> DriverEnd:
    if _started.ended_here:
        return DriverEnd("its process was ended as asked", asked=True)
    if any(_NO_MEMORY in line for line in _started.lines):
        return DriverEnd(f"its process has ended: it had no memory left ({_NO_MEMORY} in its log)")
    number = -status if status < 0 else status - _BY_SIGNAL
    if number not in {s.value for s in signal.Signals}:
        return DriverEnd(f"its process has ended with status {status}")
    name = f"signal {number} ({signal.Signals(number).name})"
    if number in _FROM_OUTSIDE:
        return DriverEnd(f"its process was ended from outside, by {name}", asked=True)
    if number in _CRASHED:
        return DriverEnd(f"its process has crashed, by {name}; a file hs_err_pid….log may say more")
    if number != signal.SIGKILL:
        return DriverEnd(f"its process was ended by {name}")
    if any(now > then for then, now in zip(_started.oom_kills, _oom_kills(), strict=False)):
        return DriverEnd(
            f"its process was killed, by {name}, and the kernel has killed for want of memory since it began"
        )
    reason = f"its process was killed, by {name}: by somebody, or for want of memory"
    return DriverEnd(reason, silent=True)


def _oom_kills() -> tuple[int, ...]:
    """Return how many processes the kernel has ended for want of memory, by each count that can be read here."""
    return tuple(_count(file) for file in _OOM_KILLS)


def _count(file: Path) -> int:
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
