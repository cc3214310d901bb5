"""The files of a Delta table's log, listed: the last commit, and the newest whole checkpoint up to a version.

Their contents are read by `state` and `checkpoint`. Nothing of Arrow is loaded: `status` lists logs as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.commits import LOG, log_files
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(\.[0-9]{10}\.[0-9]{10})?\.parquet")
_COMMIT = re.compile(r"([0-9]{20})\.json")


@dataclass(frozen=True, slots=True)
class ListedLog:
    """The files of a log: its last commit, and the newest whole checkpoint up to a version (-1: none) with its parts."""

    last: int
    checkpoint: int
    parts: Sequence[str]


def listed_log(table: Folder, version: int) -> ListedLog:
    """List what is needed of a log for a version: of a long one what comes after the checkpoint to which it points.

    Raises LakeError if there is no log.
    """
    pointed = _pointed(table)
    listed = _listed(table, version, pointed if pointed <= version else -1)
    # It is gone, or its writer was killed.
    return _listed(table, version, -1) if listed.checkpoint < pointed <= version else listed


def _pointed(table: Folder) -> int:
    """Return the version of the checkpoint to which the log points, -1 if to none: a hint that may be wrong."""
    try:
        return int(json.loads(table.get(f"{LOG}/_last_checkpoint"))["version"])
    except (NotFoundError, ValueError, LookupError, TypeError):
        return -1


def _listed(table: Folder, version: int, since: int) -> ListedLog:
    names = sorted(log_files(table, since))
    if not names:
        raise LakeError(table.url, "there is no Delta table", "restore it, or bootstrap the table again")
    checkpoints: dict[int, list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match is not None and int(match[1]) <= version:
            checkpoints.setdefault(int(match[1]), []).append(name)
    checkpoint = max((number for number, parts in checkpoints.items() if _is_whole(parts)), default=-1)
    last = max((int(m[1]) for name in names if (m := _COMMIT.fullmatch(name))), default=-1)
    return ListedLog(last, checkpoint, checkpoints.get(checkpoint, []))


def _is_whole(parts: list[str]) -> bool:
    """True if a checkpoint has all its parts: its writer may have been killed."""
    counts = [None if (match := _CHECKPOINT.fullmatch(name)) is None else match[2] for name in parts]
    return None in counts or any(len(parts) == int(count[-10:]) for count in counts if count is not None)
