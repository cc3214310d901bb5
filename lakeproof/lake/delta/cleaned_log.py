"""Clearing a Delta table's log of the commits that no cut names, before a cycle builds on it.

Dealing with other writers' commits belongs to `cycle.foreign_commits`; removing files of a log to `unnamed_commits`.

    V ── ours ── ours ── restored     `restored` makes the table what it was at V; the next commit follows it
    V ── empty or missing ── any      all are removed: nobody can read them
    V ── theirs ── ours               it goes on from theirs, which are reported

A version is never made twice: whoever made one may sleep for longer than its lock lives, and wake when another process has
followed it. What the sleeper still writes for its own version (a checksum file, a checkpoint, even the cut) stays true,
since the log goes on above it. Only a table's very first commit is removed, since there is no version to restore; it has no
checksum file on a store whose holders may sleep (`committer`). The caller holds the lease.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.committer import Change, Operation
from lakeproof.lake.delta.log import NO_VERSION, DeltaCommit, check_whole, ends, log_files, note_end
from lakeproof.lake.delta.protocol import check_writable
from lakeproof.lake.delta.state import read_state
from lakeproof.lake.delta.unnamed_commits import (
    is_above,
    last_listed,
    readable_above,
    remove_above,
    remove_notes_above,
)
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


def clean_log(path: str, version: int, is_ours: Callable[[DeltaCommit], bool]) -> CleanedLog:
    """Take back, durably, our commits above `version`, and remove unreadable ones; return what others have left there.

    Raises LogGapError if the log does not reach `version`.
    """
    if ends(path, version):
        return CleanedLog(version, version)
    files = log_files(Folder.at(path), version)
    if not is_above(path, version, files):
        check_whole(path, version, files)
        note_end(path, version)
        return CleanedLog(version, version)
    listed = last_listed(files)
    if not Folder.at(path).store.writes_are_durable:
        # Nobody has synced them, and a commit is right without them.
        remove_notes_above(path, version, files)
    commits = readable_above(path, version)
    last = commits[-1].version if commits else version
    if listed > last or not commits:
        # Of a commit that has come since the listing nothing is removed: its maker is awake.
        remove_above(path, last)
    kept = list(commits)
    while kept and (is_ours(kept[-1]) or _target(kept[-1]) is not None):
        kept.pop()
    target = kept[-1].version if kept else version
    if target == NO_VERSION:
        remove_above(path, NO_VERSION)
        newest = NO_VERSION
    else:
        newest = _taken_back(path, target, commits[len(kept) :], last)
    foreign = list(kept)
    while foreign and not foreign[0].changes_data and not is_ours(foreign[0]):
        foreign.pop(0)
    base = foreign[0].version - 1 if foreign else newest
    check_whole(path, base)
    return CleanedLog(base, newest, tuple(foreign))


def _taken_back(path: str, target: int, ours: list[DeltaCommit], last: int) -> int:
    """Make the table what it was at `target`, in a commit above ours; returns the log's last version."""
    done = next((n for n in range(len(ours), 0, -1) if _target(ours[n - 1]) == target), 0)
    if not any(commit.changes_data or commit.txns for commit in ours[done:]):
        return last
    return restore(path, target, last, json.dumps({"takes_back_to": target}))


def restore(path: str, target: int, newest: int, user_metadata: str) -> int:
    """Make the table at `path` what it was at version `target`, in one commit on `newest`; return that commit's version.

    Raises LakeError if a file that is needed is gone, or if the table has features that are not written here, and
    TransientError if somebody else commits meanwhile.
    """
    before, state = read_state(path, newest), read_state(path, target)
    check_writable(before)
    table = Folder.at(path)
    for name, entry in state.files.items():
        if before.files.get(name) != entry and not table.store.exists(table.key_of(name)):
            raise LakeError(path, f"version {target} needs the file {name}, which is gone", "restore it from a backup")
    change = Change(path, before)
    change.restore(state)
    failpoint("cycle.before_taken_back")
    version = change.commit(None, Operation(_RESTORE, {"version": str(target)}, {}, user_metadata)).version
    failpoint("cycle.after_taken_back")
    return version


def _target(commit: DeltaCommit) -> int | None:
    """Return the version that a commit of ours has restored; None for every other commit."""
    if commit.operation != _RESTORE:
        return None
    try:
        metadata = json.loads(commit.user_metadata or "null")
    except ValueError:
        return None
    target = metadata.get("takes_back_to") if isinstance(metadata, dict) else None
    return target if isinstance(target, int) else None
