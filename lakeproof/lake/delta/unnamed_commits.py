"""Removing from a Delta table's log everything above a version, and finding the newest version that is named.

The choice of commits is in `cleaned_log`; data files that nothing names any more belong to `files`.

Neither Spark nor Delta syncs a commit, so a power cut may leave any part of the files above the version. An interrupted
removal leaves such a state, too. The caller holds the lease.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.log import (
    LOG,
    NO_VERSION,
    DeltaCommit,
    LogGapError,
    commit_name,
    log_files,
    newest_version,
    read_commit,
)
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

# Commits, checksums, checkpoints and their parts, unfinished files, and the checksum of each.
NUMBERED = re.compile(r"\.?([0-9]{20})\.(?:([0-9]{20})\.compacted\.)?.*")
_LAST_CHECKPOINT = "_last_checkpoint"


def is_above(path: str, version: int, files: Iterable[str]) -> bool:
    """True if the log has anything of a later version; `files` are its names from `version` on."""
    return last_listed(files) > version or _points_above(Folder.at(path), version)


def last_listed(files: Iterable[str]) -> int:
    """Return the newest version that any of the names of a log's files has, NO_VERSION if there is none."""
    return max(map(_last_version, files), default=NO_VERSION)


def readable_above(path: str, version: int) -> list[DeltaCommit]:
    """Return the commits above `version`, up to the first that is missing or damaged."""
    commits: list[DeltaCommit] = []
    try:
        while (commit := read_commit(path, version + 1 + len(commits))) is not None:
            commits.append(commit)
    except LogGapError:
        pass
    return commits


def remove_notes_above(path: str, version: int, files: Iterable[str]) -> None:
    """Remove checksums and checkpoints above `version`: a commit is right without them, and a power cut leaves any part.

    `files` are the names of the log's files from `version` on.
    """
    table = Folder.at(path)
    notes = [name for name in files if _last_version(name) > version and not _is_commit(name)]
    if _points_above(table, version):
        notes = [_LAST_CHECKPOINT, f".{_LAST_CHECKPOINT}.crc", *notes]
    for name in notes:
        table.delete(f"{LOG}/{name}")
        failpoint("cycle.after_unnamed")


def _is_commit(name: str) -> bool:
    return name == f"{_last_version(name):020d}.json"


def remove_above(path: str, version: int) -> None:
    """Remove everything above `version`: first what only points there, then commits from the newest down."""
    table = Folder.at(path)
    # All of them: a file with the commits of several versions bears the first one's number.
    names = log_files(table)
    to_remove = [name for name in names if _last_version(name) > version]
    # A commit is read as long as it exists; everything that refers to it is removed before it.
    to_remove.sort(key=lambda name: (name.endswith(".json"), -_last_version(name), name))
    if _points_above(table, version):
        to_remove = [_LAST_CHECKPOINT, f".{_LAST_CHECKPOINT}.crc", *to_remove]
    for name in to_remove:
        table.delete(f"{LOG}/{name}")
        failpoint("cycle.after_unnamed")
    if names:
        table.store.sync_names([table.key_of(commit_name(version))])


def _last_version(name: str) -> int:
    match = NUMBERED.fullmatch(name)
    return NO_VERSION if match is None else int(match[2] or match[1])


def _points_above(table: Folder, version: int) -> bool:
    """True if `_last_checkpoint` names a version above this one, or none at all."""
    try:
        pointer = json.loads(table.get(f"{LOG}/{_LAST_CHECKPOINT}"))
    except NotFoundError:
        return False
    except ValueError:
        return True
    return not isinstance(pointer, dict) or not isinstance(pointer.get("version"), int) or pointer["version"] > version


def named_through(path: str, is_named: Callable[[DeltaCommit], bool]) -> int:
    """Return the newest version for which `is_named` is true, NO_VERSION if there is none; damaged ones don't count."""
    for version in range(newest_version(path), NO_VERSION, -1):
        try:
            commit = read_commit(path, version)
        except LogGapError:
            continue
        if commit is not None and is_named(commit):
            return version
    return NO_VERSION
