"""Locks on files that end with their process: an exclusive one, a shared one, and a probe.

What a lock protects does not belong here: its users give the file and say what is taken.

The lock is `flock`. The kernel frees it the moment its process ends, however it ends, so no timeout has to tell a dead
holder from a slow one. It belongs to the open file, so it is also seen by other containers on the same file system; the
kernel's list (/proc/locks) is not used, since it leaves out the locks of other containers' processes.

A probe takes the lock for a moment. Whoever takes the lock, or probes it, just then must not mistake the probe for a
holder: so each attempt is repeated for a short, limited time before the lock counts as held.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeproof.errors import TransientError

# A probe holds the lock for microseconds, or for a scheduler's turn on a busy machine.
ATTEMPT_S = 0.1
_RETRY_S = 0.005


@contextmanager
def exclusive(path: Path, thing: str, reason: str) -> Iterator[None]:
    """Hold the lock file `path`; raise TransientError about `thing`, for `reason`, if another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers: the lock must end with this process.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _acquire(descriptor, fcntl.LOCK_EX, ATTEMPT_S):
            raise TransientError(thing, reason, "wait until it has ended, then try again")
        yield
    finally:
        os.close(descriptor)


def hold_shared(path: Path, attempt_s: float = ATTEMPT_S) -> int | None:
    """Take a shared lock on `path` and return its descriptor, or None if another process holds it exclusively.

    The lock is held until the descriptor is closed or this process ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers, which may outlive this process.
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _acquire(descriptor, fcntl.LOCK_SH, attempt_s):
        os.close(descriptor)
        return None
    return descriptor


def is_locked(path: Path) -> bool:
    """True if a process holds the lock file, shared or exclusively; False if the file does not exist.

    Raises OSError if the file can't be opened or its file system has no locks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        return not _acquire(descriptor, fcntl.LOCK_EX, ATTEMPT_S)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, kind: int, attempt_s: float) -> bool:
    deadline = time.monotonic() + attempt_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_S)
