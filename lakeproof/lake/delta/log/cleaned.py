"""Clearing a Delta table's log of the commits that no cut names, before a cycle builds on it.

Dealing with other writers' commits belongs to `cycle.upkeep.logs`, data files without a name to `files`.

    V ── ours ── ours ── restored     `restored` makes the table what it was at V; the next commit follows it
    V ── empty or missing ── any      all are removed: nobody can read them
    V ── theirs ── ours               it goes on from theirs, which are reported

A commit is not synced when it is made, so a power cut may leave any part of the files above the version; so does an
interrupted removal. A log that can't be read begins again (`cycle.upkeep.logs`): commits that are damaged are removed, and a
checkpoint stands in their place.

A version is never made twice: whoever made one may sleep for longer than its lock lives, and wake when another process has
followed it. What the sleeper still writes for its own version (a checksum file, a checkpoint, even the cut) stays true,
since the log goes on above it. Only a table's very first commit is removed, since there is no version to restore; it has no
checksum file on a store whose holders may sleep (`committer`). The caller holds the lease.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.committer import LoggedOperation, PendingCommit
from lakeproof.lake.delta.log.checkpoint import write_checkpoint
from lakeproof.lake.delta.log.commits import (
    BEGINS,
    LOG,
    NO_VERSION,
    NUMBERED,
    POINTERS,
    Action,
    DeltaCommit,
    LogGapError,
    check_whole,
    commit_name,
    digest_of_bytes,
    ends,
    log_files,
    newest_version,
    note_end,
    now_ms,
    read_actions,
    read_commit,
)
from lakeproof.lake.delta.log.protocol import check_writable, protocol_for
from lakeproof.lake.delta.log.state import TableState, is_same_file, pointed_version, read_state
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

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
    path: str, version: int, is_ours: Callable[[DeltaCommit], bool], check: Callable[[], None] = lambda: None
) -> CleanedLog:
    """Take back, durably, our commits above `version`, and remove unreadable ones; return what others have left there.

    `check` raises if this process may not write; it is called before anything is removed or committed.
    Raises LogGapError if the log does not reach `version`.
    """
    if ends(path, version):
        return CleanedLog(version, version)
    table = Folder.at(path)
    files = log_files(table, version)
    listed = max(map(_last_version, files), default=NO_VERSION)
    if listed <= version and pointed_version(table) <= version:
        check_whole(path, version, files)
        note_end(path, version)
        return CleanedLog(version, version)
    check()
    if not table.store.writes_are_durable:
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
    if len(foreign) < len(kept) and not _has_its_files(path, version, kept[-len(foreign) - 1].version):
        foreign = kept
    base = foreign[0].version - 1 if foreign else newest
    check_whole(path, base)
    return CleanedLog(base, newest, tuple(foreign))


def _taken_back(path: str, target: int, ours: list[DeltaCommit], last: int) -> int:
    """Make the table what it was at `target`, in a commit above ours; returns the log's last version."""
    if not ours or _target(ours[-1]) == target:
        return last
    return restore(path, target, last, json.dumps({"takes_back_to": target}))


def _has_its_files(path: str, before: int, version: int) -> bool:
    """True if the files that came after `before` are whole: a power cut leaves any part of what nobody has synced.

    Their sizes are looked at: what wrote them names them in its commit when they are finished.
    """
    table = Folder.at(path)
    if table.store.writes_are_durable:
        return True
    old = read_state(path, before).files
    for name, entry in read_state(path, version).files.items():
        try:
            if name not in old and table.store.size(table.key_of(name)) != entry.get("size"):
                return False
        except NotFoundError:
            return False
    return True


def restore(path: str, target: int, newest: int, user_metadata: str) -> int:
    """Make the table at `path` what it was at version `target`, in one commit on `newest`; return that commit's version.

    Raises LakeError if a file that is needed is gone, or if the table has features that are not written here, and
    TransientError if somebody else commits meanwhile.
    """
    before, state = read_state(path, newest), read_state(path, target)
    check_writable(before)
    table = Folder.at(path)
    for name, entry in state.files.items():
        if not is_same_file(before.files.get(name), entry) and not table.store.exists(table.key_of(name)):
            raise LakeError(path, f"version {target} needs the file {name}, which is gone", "restore it from a backup")
    change = PendingCommit(path, before)
    change.restore(state)
    failpoint("cycle.before_taken_back")
    version = change.commit(None, LoggedOperation(_RESTORE, {"version": str(target)}, {}, user_metadata)).version
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
    later = [(name, _last_version(name)) for name in files]
    notes = [name for name, last in later if last > version and name != f"{last:020d}.json"]
    _remove(Folder.at(path), version, notes)


def _remove(table: Folder, version: int, names: Iterable[str]) -> None:
    """Remove files of a log above `version`; before them, what points to them."""
    for name in [*(POINTERS if pointed_version(table) > version else ()), *names]:
        table.delete(f"{LOG}/{name}")
        failpoint("cycle.after_unnamed")


def remove_above(path: str, version: int) -> None:
    """Remove everything above `version`: first what only points there, then commits from the newest down."""
    table = Folder.at(path)
    # All of them: a file with the commits of several versions bears the first one's number.
    names = log_files(table)
    to_remove = [name for name in names if _last_version(name) > version]
    # A commit is read as long as it exists; everything that refers to it is removed before it.
    to_remove.sort(key=lambda name: (name.endswith(".json"), -_last_version(name), name))
    _remove(table, version, to_remove)
    if names:
        table.store.sync_names([table.key_of(commit_name(version))])


def _last_version(name: str) -> int:
    match = NUMBERED.fullmatch(name)
    return NO_VERSION if match is None else int(match[2] or match[1])


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


def remove_unreadable(path: str, version: int) -> None:
    """Remove everything above `version`, and every commit that is damaged."""
    table = Folder.at(path)
    remove_above(path, version)
    # Delta reads an emptied file as a commit of nothing. Without the file, older cuts give an error, never other rows.
    for name in sorted(log_files(table)):
        if name[:1].isdigit() and name.endswith(".json"):
            try:
                read_actions(table, f"{LOG}/{name}")
            except LogGapError:
                table.delete(f"{LOG}/{name}")


def begin_at(path: str, version: int, metadata: Action, user_metadata: str) -> None:
    """Give `version` a state without rows, with these columns and properties; nothing below it is needed any more.

    The commit names no file that goes: nobody can read which these are. Whoever has kept the version before starts anew.
    """
    table = Folder.at(path)
    protocol = protocol_for(metadata, None)
    described = {
        "timestamp": now_ms(),
        "operation": BEGINS,
        "operationParameters": {},
        "isBlindAppend": False,
        "engineInfo": "lakeproof",
        "txnId": str(uuid.uuid4()),
        "userMetadata": user_metadata,
    }
    actions = [("commitInfo", described), ("protocol", protocol), ("metaData", metadata)]
    data = "".join(json.dumps({kind: action}, ensure_ascii=False) + "\n" for kind, action in actions).encode()
    state = TableState(path, version, protocol, metadata, digest_of_bytes(data))
    write_checkpoint(table, state)
    failpoint("cycle.after_log_begun")
    table.store.put(table.key_of(commit_name(version)), data)
    failpoint("cycle.after_log_begun_commit")
