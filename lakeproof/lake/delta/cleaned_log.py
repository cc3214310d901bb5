"""Clearing a Delta table's log of the commits that no cut names, before a cycle builds on it.

Dealing with other writers' commits belongs to `cycle.foreign_commits`; removing files of a log to `unnamed_commits`.

    V ── ours ── ours                 the cycle goes on from what V was
    V ── empty or missing ── any      all are removed: nobody can read them
    V ── theirs ── ours               it goes on from theirs, which are reported
    V ── ours ── theirs               all stay: theirs contains our rows

In a folder our commits are removed, and the next one is V + 1 again: whoever made them lives no more. In an object store a
process may sleep for longer than its lock lives, and wake when another one has followed it. There a version is never made
twice: what the sleeper still writes for its own version (a checksum file, a checkpoint, even the cut) stays true. So the log
goes on above:

    V ── ours ── reset ── restored    `reset` gives the application ids their numbers back, since Delta skips a repeat in
                                      silence; `restored` is Delta's RESTORE to V. The next commit follows it

Only a table's very first commit is removed there, too: there is no version to restore. It has no checksum file for that
reason (`apply.one_attempt`). The caller holds the lease.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.apply import ONE_ATTEMPT, conflicts
from lakeproof.lake.delta.commit import USER_METADATA
from lakeproof.lake.delta.jvm import Transaction, forget
from lakeproof.lake.delta.log import NO_VERSION, DeltaCommit, check_whole, log_files
from lakeproof.lake.delta.unnamed_commits import is_above, last_listed, readable_above, remove_above
from lakeproof.lake.spark.session import with_settings
from lakeproof.storage.folder import Folder

_RESTORE = "RESTORE"


@dataclass(frozen=True, slots=True)
class CleanedLog:
    """A log without unnamed commits of ours: the version to commit on, and others' commits that change data.

    `foreign` begins with the first commit that must not be built on; it includes our commits below others'. `newest` is
    the log's last version.
    """

    base: int
    newest: int
    foreign: tuple[DeltaCommit, ...] = ()


def clean_log(
    session: SparkSession | None, path: str, version: int, is_ours: Callable[[DeltaCommit], bool]
) -> CleanedLog:
    """Take back, durably, our commits above `version`, and remove unreadable ones; return what others have left there.

    Raises LogGapError if the log does not reach `version`. `session` is that of the JVM which may have cached the log.
    """
    files = log_files(Folder.at(path), version)
    if not is_above(path, version, files):
        check_whole(path, version, files)
        return CleanedLog(version, version)
    listed = last_listed(files)
    commits = readable_above(path, version)
    kept = list(commits)
    while kept and (is_ours(kept[-1]) or _target(kept[-1]) is not None):
        kept.pop()
    target = kept[-1].version if kept else version
    newest = target
    if session is not None and target != NO_VERSION and Folder.at(path).store.holders_may_sleep:
        last = commits[-1].version if commits else version
        if listed > last:
            # Of a commit that has come since the listing nothing is removed: its maker is awake.
            remove_above(path, last)
        newest = _taken_back(session, path, target, commits[len(kept) :])
    else:
        remove_above(path, target)
    if session is not None:
        forget(session, path)
    foreign = list(kept)
    while foreign and not foreign[0].changes_data and not is_ours(foreign[0]):
        foreign.pop(0)
    base = foreign[0].version - 1 if foreign else newest
    check_whole(path, base)
    return CleanedLog(base, newest, tuple(foreign))


def _taken_back(session: SparkSession, path: str, target: int, ours: Sequence[DeltaCommit]) -> int:
    """Make the table what it was at `target`, in commits above ours; returns the log's last version."""
    done = next((n for n in range(len(ours), 0, -1) if _target(ours[n - 1]) == target), 0)
    rest = ours[done:]
    if not any(commit.changes_data or commit.txns for commit in rest):
        return ours[-1].version if ours else target
    numbers: dict[str, int] = {}
    for commit in rest:
        for app, number in commit.txns.items() if not _is_note(commit) else ():
            numbers[app] = min(number, numbers.get(app, number))
    forget(session, path)
    settings = {USER_METADATA: json.dumps({"takes_back_to": target}), **ONE_ATTEMPT}
    with with_settings(session, settings), conflicts(path):
        if numbers:
            Transaction(session, path).commit_numbers({app: number - 1 for app, number in numbers.items()})
        failpoint("cycle.after_reset")
        session.sql(f"RESTORE TABLE delta.{quoted(path)} TO VERSION AS OF {target}")
    failpoint("cycle.after_taken_back")
    return _end_of(path, ours[-1].version)


def _end_of(path: str, version: int) -> int:
    """Return the last version of the log, which reaches `version`."""
    commits = readable_above(path, version)
    return commits[-1].version if commits else version


def _is_note(commit: DeltaCommit) -> bool:
    try:
        metadata = json.loads(commit.user_metadata or "null")
    except ValueError:
        return False
    return isinstance(metadata, dict) and "takes_back_to" in metadata


def _target(commit: DeltaCommit) -> int | None:
    """Return the version that a commit of ours has restored; None for every other commit."""
    if commit.operation != _RESTORE or not _is_note(commit):
        return None
    target = json.loads(commit.user_metadata or "{}")["takes_back_to"]
    return target if isinstance(target, int) else None
