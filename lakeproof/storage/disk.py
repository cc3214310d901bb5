"""What an operating system's error about a disk means: room that is to be made, or something that is to be mended.

Writing itself belongs to `local.py` and to whoever writes temporary files; what is done about it to the callers.
"""

from __future__ import annotations

import errno

from lakeproof.errors import LakeError, NoRoomError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_WRONG_PLACE = frozenset({errno.ENOTDIR, errno.EACCES, errno.EPERM})


def disk_error(thing: str, doing: str, error: OSError) -> LakeError:
    """The error that says that `doing` (e.g. "writing to it") failed: NoRoomError where the disk or the quota is full."""
    reason = f"{doing} failed: {error.strerror or type(error).__name__}"
    if error.errno in _FULL:
        return NoRoomError(thing, reason, "make room, then start again (a drain without an end goes on by itself)")
    if error.errno in _WRONG_PLACE:
        return LakeError(
            thing, reason, "name another folder in `lake`, or let this user write there; `lakeproof check` looks"
        )
    return LakeError(thing, reason, "nothing was acknowledged; make room or mend the disk, then start again")
