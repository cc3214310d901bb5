"""Removing from a Delta table's log the commits that no cut names, so that it ends at the newest cut's version.

Dealing with other writers' commits belongs to `cycle.foreign_commits`; with data files that nothing names any more to
`files`.

    V ── ours ── ours                 ours are removed: the next commit is V + 1 again
    V ── empty or missing ── any      all are removed: nobody can read them
    V ── theirs ── ours               ours are removed, theirs stay
    V ── ours ── theirs               all stay: theirs contains our rows

Neither Spark nor Delta syncs a commit, so a power cut may leave any part of the files above V, and the commits are made
again. An interrupted removal leaves such a state, too. The caller holds the lease.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.jvm import forget
from lakeproof.lake.delta.log import (
    LOG,
    NO_VERSION,
    DeltaCommit,
    LogGapError,
    check_whole,
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


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """A log without unnamed commits of ours: the version to commit on, and others' commits that change data.

    `foreign` begins with the first commit that must not be built on; it includes our commits below others'.
    """

    base: int
    foreign: tuple[DeltaCommit, ...] = ()


def clean_log(
    session: SparkSession | None, path: str, version: int, is_ours: Callable[[DeltaCommit], bool]
) -> CleanedLog:
    """Remove, durably, our commits and unreadable ones above `version`; return what others have left there.

    Raises LogGapError if the log does not reach `version`. `session` is that of the JVM which may have cached the log.
    """
    if not _is_above(path, version):
        check_whole(path, version)
        return CleanedLog(version)
    readable = _readable(path, version)
    while readable and is_ours(readable[-1]):
        readable.pop()
    remove_above(path, readable[-1].version if readable else version)
    if session is not None:
        forget(session, path)
    foreign = list(readable)
    while foreign and not foreign[0].changes_data and not is_ours(foreign[0]):
        foreign.pop(0)
    base = foreign[0].version - 1 if foreign else version + len(readable)
    check_whole(path, base)
    return CleanedLog(base, tuple(foreign))


def _is_above(path: str, version: int) -> bool:
    """True if the log has anything of a later version."""
    table = Folder.at(path)
    numbers = [_last_version(name) for name in log_files(table)]
    return max(numbers, default=NO_VERSION) > version or _points_above(table, version)


def _readable(path: str, version: int) -> list[DeltaCommit]:
    """Return the commits above `version`, up to the first that is missing or damaged."""
    commits: list[DeltaCommit] = []
    try:
        while (commit := read_commit(path, version + 1 + len(commits))) is not None:
            commits.append(commit)
    except LogGapError:
        pass
    return commits


def remove_above(path: str, version: int) -> None:
    """Remove everything above `version`: first what only points there, then commits from the newest down."""
    table = Folder.at(path)
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
