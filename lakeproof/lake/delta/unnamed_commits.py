"""Taking out of a Delta table's log what no cut names: before a table is written its log ends where the newest cut says.

What becomes of commits of others that stay belongs to `strays`; the data files that nothing names any more to `delta_files`.

    V ── ours ── ours                 ours go: the next commit is V + 1 again
    V ── empty or missing ── any      all go: nobody can read them
    V ── theirs ── ours               ours go, theirs stay
    V ── ours ── theirs               all stay: theirs has our rows in it

Neither Spark nor Delta syncs a commit, so after a power cut any part of what is above V may be there; and whatever is there
is made again. Any part of a removal is such a state too. The caller holds the lease.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.jvm import forget
from lakeproof.lake.delta.log import LOG, NO_VERSION, Commit, LogGapError, check_whole, newest_version, read_commit

# Commits, checksums, checkpoints and their parts, files in the making, each with its own checksum beside it.
NUMBERED = re.compile(r"\.?([0-9]{20})\.(?:([0-9]{20})\.compacted\.)?.*")
_LAST_CHECKPOINT = "_last_checkpoint"


@dataclass(frozen=True, slots=True)
class Settled:
    """A log without what no cut names: the version to commit on, and what others have committed that changes data.

    `strays` begins with the first commit that is not to be built on; any commits of ours below others' are among them.
    """

    base: int
    strays: tuple[Commit, ...] = ()


def settle(session: SparkSession | None, path: str, version: int, is_ours: Callable[[Commit], bool]) -> Settled:
    """Remove, durably, what is above `version` and ours or unreadable; say what others have left there.

    Raises LogGapError when the log does not reach `version`. `session` is that of the JVM which may know the log.
    """
    if not _is_above(path, version):
        check_whole(path, version)
        return Settled(version)
    readable = _readable(path, version)
    while readable and is_ours(readable[-1]):
        readable.pop()
    remove_above(path, readable[-1].version if readable else version)
    if session is not None:
        forget(session, path)
    strays = list(readable)
    while strays and not strays[0].changes_data and not is_ours(strays[0]):
        strays.pop(0)
    base = strays[0].version - 1 if strays else version + len(readable)
    check_whole(path, base)
    return Settled(base, tuple(strays))


def _is_above(path: str, version: int) -> bool:
    """Whether the log has anything of a later version."""
    log = Path(path) / LOG
    numbers = [_last_version(name) for name in _names(log)]
    return max(numbers, default=NO_VERSION) > version or _points_above(log, version)


def _readable(path: str, version: int) -> list[Commit]:
    """The commits above `version`, up to the first that is missing or damaged."""
    found: list[Commit] = []
    try:
        while (commit := read_commit(path, version + 1 + len(found))) is not None:
            found.append(commit)
    except LogGapError:
        pass
    return found


def remove_above(path: str, version: int) -> None:
    """Take out everything above `version`: what only points there first, then commits from the newest down."""
    log = Path(path) / LOG
    going = [log / name for name in _names(log) if _last_version(name) > version]
    # A commit is read as long as it is there; whatever speaks for it goes before.
    going.sort(key=lambda file: (file.suffix == ".json", -_last_version(file.name), file.name))
    if _points_above(log, version):
        going = [log / _LAST_CHECKPOINT, log / f".{_LAST_CHECKPOINT}.crc", *going]
    for file in going:
        file.unlink(missing_ok=True)
        failpoint("cycle.after_unnamed")
    if log.is_dir():
        sync(log)


def _names(log: Path) -> list[str]:
    try:
        with os.scandir(log) as entries:
            return [e.name for e in entries if not e.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []


def _last_version(name: str) -> int:
    match = NUMBERED.fullmatch(name)
    return NO_VERSION if match is None else int(match[2] or match[1])


def _points_above(log: Path, version: int) -> bool:
    """Whether `_last_checkpoint` names a version above this one, or none at all."""
    try:
        told = json.loads((log / _LAST_CHECKPOINT).read_bytes())
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return not isinstance(told, dict) or not isinstance(told.get("version"), int) or told["version"] > version


def named_through(path: str, is_named: Callable[[Commit], bool]) -> int:
    """The newest version that `is_named` knows, NO_VERSION when there is none; damaged ones are none."""
    for version in range(newest_version(path), NO_VERSION, -1):
        try:
            commit = read_commit(path, version)
        except LogGapError:
            continue
        if commit is not None and is_named(commit):
            return version
    return NO_VERSION


def sync(place: str | Path) -> None:
    """Make a file's contents, or a folder's names, durable."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
