"""The lock that the runs of a job hold for as long as their processes live: what tells a killed run from one that works.

What is decided from it belongs to `orchestration.policies.run`; that no two writers meet in the lake, to the engine's
own locks.

Dagster says STARTED of a run whose process was killed, for ever. The kernel lets go of the lock at that moment, and not
before: a run that lets go of it while it ends would be taken for a dead one. It is a shared lock; several runs of a job may
live at once, and the engine says which of them waits.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from pathlib import Path

from lakeproof.storage.paths import run_lock
from lakeproof.storage.store import make_root

_log = logging.getLogger("lakeproof.dagster")
# A look takes microseconds; whoever has the lock for longer keeps it, and must keep no run.
_ASKED_S_MAX = 5.0
_TRY_S = 0.05

# By place: a process that makes several runs, as tests do, needs one descriptor for all of a job.
_held: dict[Path, int] = {}


def hold_run_lock(lake: str, job: str) -> None:
    """Hold the lock of `job`'s runs until this process ends; raises OSError where the lake can't be written to."""
    place = run_lock(lake, job)
    if place in _held:
        return
    make_root(lake)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers, which may outlive the run.
    descriptor = os.open(place, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _share(descriptor):
        os.close(descriptor)
        _log.warning("%s: another process holds it, so nobody will know whether this run works; see who it is", place)
        return
    _held[place] = descriptor


def _share(descriptor: int) -> bool:
    """Take the lock; False if somebody keeps it. Whoever only asks, in `is_working`, has it for a moment."""
    deadline = time.monotonic() + _ASKED_S_MAX
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_TRY_S)
        else:
            return True


def is_working(lake: str, job: str) -> bool | None:
    """Whether a run of `job` has a process; None where that is not known, as before its first run."""
    # The kernel's list (/proc/locks) would not do: it leaves out what processes of other containers hold.
    try:
        descriptor = os.open(run_lock(lake, job), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False
