"""The lock that a run of a job holds for as long as its process lives: what tells a killed run from one that works.

What is decided from it belongs to `orchestration.guard`; that no two writers meet in the lake, to the engine's own locks.

Dagster says STARTED of a run whose process was killed, for ever. The kernel lets go of the lock at that moment. It is a
shared one: several runs of a job may work at once, and the engine says which of them waits.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from wal2delta.lake.lease import is_locked
from wal2delta.landing.lake_paths import run_lock


@contextmanager
def working(lake: str, job: str) -> Iterator[None]:
    """Hold the lock of `job`'s runs for the block; raises OSError where the lake can't be written to."""
    place = run_lock(lake, job)
    place.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers, which may outlive the run.
    descriptor = os.open(place, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def is_working(lake: str, job: str) -> bool | None:
    """Whether a run of `job` has a process; None where that is not known, as before its first run."""
    place = run_lock(lake, job)
    return is_locked(place) if place.exists() else None
