"""Turns an operating system's error about a disk into ours: a full disk, or something that a person must mend."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from lakeproof.errors import LakeError, NoRoomError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRONG_PLACE = frozenset({errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS})


def is_full(error: OSError) -> bool:
    """True if the disk or the quota is full."""
    return error.errno in _FULL


def disk_error(thing: str, action: str, error: OSError) -> LakeError:
    """Return the error that `action` (e.g. "writing to it") failed: NoRoomError if the disk or the quota is full."""
    reason = f"{action} failed: {error.strerror or type(error).__name__}"
    if is_full(error):
        return NoRoomError(thing, reason, "make room, then start again (a drain without an end goes on by itself)")
    if error.errno in _WRONG_PLACE:
        return LakeError(
            thing, reason, "name another folder in `lake`, or let this user write there; `lakeproof check` looks"
        )
    if error.errno == errno.ENOENT:
        return LakeError(
            thing, reason, "mount its folder again, or name one in `lake` that can be made; `lakeproof check` looks"
        )
    return LakeError(thing, reason, "nothing was acknowledged; make room or mend the disk, then start again")


@contextmanager
def disk_errors(lake: str) -> Iterator[None]:
    """Turn an error of the disk in the block into ours about the lake."""
    try:
        yield
    except OSError as error:
        raise disk_error(f"lake {lake}", "reading or writing it", error) from error
