"""Locks on files that end with their process: an exclusive one, a shared one, and a probe.

The lock's purpose is its user's: its users give the file and say what is taken. Only `local.py` uses this: all others ask
the store.

The lock is `flock`. The kernel frees it the moment its process ends, however it ends, so no timeout has to tell a dead
holder from a slow one. It belongs to the open file, so it is also seen by other containers on the same file system; the
kernel's list (/proc/locks) is not used, since it leaves out the locks of other containers' processes.

A probe takes the lock for a moment. Whoever takes the lock, or probes it, just then must not mistake the probe for a
holder: so each attempt is repeated for a short, limited time before the lock counts as held.
"""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeproof.errors import TransientError
from lakeproof.storage.store import reason_with_holder
from lakeproof.storage.times import now_text

# A probe holds the lock for microseconds, or for a scheduler's turn on a busy machine.
ATTEMPT_S = 0.1
_RETRY_S = 0.005
_HOLDER_BYTES_MAX = 500


@contextmanager
def exclusive(path: Path, thing: str, reason: str) -> Iterator[None]:
    """Hold the lock file `path`; raise TransientError about `thing`, for `reason` and naming it, if another process does.

    The file names its holder, for people: nothing relies on it, so a failure to write it is ignored.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers: the lock must end with this process.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not _acquire(descriptor, fcntl.LOCK_EX, ATTEMPT_S):
            # Who only shares it is not in the file.
            is_alone = not _acquire(descriptor, fcntl.LOCK_SH, 0.0)
            reason = reason_with_holder(reason, holder(path) if is_alone else None)
            raise TransientError(thing, reason, "wait until it has ended, then try again")
        with suppress(OSError):
            name = f"process {os.getpid()} on {socket.gethostname()} since {now_text()}".encode()
            os.pwrite(descriptor, name, 0)
            os.ftruncate(descriptor, len(name))
        yield
    finally:
        os.close(descriptor)


class SharedLock:
    """A shared lock, held until it is released or this process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the lock back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def hold_shared(path: Path, attempt_s: float = ATTEMPT_S) -> SharedLock | None:
    """Take a shared lock on `path`; None if another process holds it exclusively."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers, which may outlive this process.
    descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _acquire(descriptor, fcntl.LOCK_SH, attempt_s):
        os.close(descriptor)
        return None
    return SharedLock(descriptor)


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


def holder(path: Path) -> str | None:
    """Return the process that holds the lock exclusively, or was the last one to, in its own words."""
    with suppress(OSError):
        with path.open("rb") as file:
            text = file.read(_HOLDER_BYTES_MAX)
        return text.decode("utf-8", "replace") or None
    return None


def _acquire(descriptor: int, kind: int, attempt_s: float) -> bool:
    deadline = time.monotonic() + attempt_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(_RETRY_S)
