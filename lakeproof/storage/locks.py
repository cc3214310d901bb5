"""Locks that die with their process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakeproof.errors import TransientError


@contextmanager
def exclusive(path: Path, thing: str, reason: str) -> Iterator[None]:
    """Hold the lock file `path`; raises TransientError about `thing`, for `reason`, where another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not inherited by the JVM or workers: the lock must die with this process.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TransientError(thing, reason, "wait until it has ended, then try again") from None
        yield
    finally:
        os.close(descriptor)
