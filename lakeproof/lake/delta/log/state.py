"""One version of a Delta table as its log has it, whole: what the next commit is built on, kept from one to the next.

Reading rows does not belong here (`arrow_rows`), nor making a commit (`committer`). Nothing of Arrow is loaded for a short
log: `status` reads logs, too.

    checkpoint ── commits since ── TableState ── the next commit ── TableState ── …

A process that goes on commits without reading more than one file: a state is kept with the digest of its own commit, and is
good for as long as the commit of that version still has it. So neither another writer nor a log that was taken back can make
it wrong. What is kept is bounded by the number of files that the states list (`KEPT_FILES_MAX`).
"""

from __future__ import annotations

import json
import re
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import TypeAlias

from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.commits import (
    BEGINS,
    LOG,
    POINTERS,
    RESTORE_LOG,
    Action,
    LogField,
    LogGapError,
    actions_of,
    are_whole,
    checksum_name,
    commit_name,
    digest_of_bytes,
    last_commit,
    log_files,
    physical_names,
    read_actions,
)
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

_CHECKPOINT = re.compile(r"([0-9]{20})\.checkpoint(\.[0-9]{10}\.[0-9]{10})?\.parquet")


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
    pointed = pointed_version(table)
    listed = _listed(table, version, pointed if pointed <= version else -1)
    # It is gone, or its writer was killed.
    return _listed(table, version, -1) if listed.checkpoint < pointed <= version else listed


def pointed_version(table: Folder) -> int:
    """Return the version of the checkpoint to which the log points, which may be wrong: -1 if to none.

    It is above every version if nobody can read it.
    """
    version = None
    try:
        version = json.loads(table.get(f"{LOG}/{POINTERS[0]}"))["version"]
    except NotFoundError:
        return -1
    except (ValueError, LookupError, TypeError):
        pass
    return version if isinstance(version, int) else sys.maxsize


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
    return ListedLog(last_commit(names), checkpoint, checkpoints.get(checkpoint, []))


def _is_whole(parts: list[str]) -> bool:
    """True if a checkpoint has all its parts: its writer may have been killed."""
    counts = [None if (match := _CHECKPOINT.fullmatch(name)) is None else match[2] for name in parts]
    return None in counts or any(len(parts) == int(count[-10:]) for count in counts if count is not None)


# The most files, there and removed, of all kept states: 200 MB. One takes about 1 KB, most of it statistics.
KEPT_FILES_MAX = 200_000
# The most removed files that a state has, and its checkpoint names: of a thousand tables most stay kept with so many.
TOMBSTONES_MAX = 100
# In place of the digest of a commit that is not there.
_GONE = "none"
Actions: TypeAlias = Iterable[tuple[str, Action]]
# A file's path, and its deletion vector.
FileKey: TypeAlias = tuple[str, str]


def file_key(action: Action) -> FileKey:
    """Return what a table's files differ by: the path, and the deletion vector that the file has."""
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset')}"


def is_same_file(one: Action | None, other: Action) -> bool:
    """True if two entries are about one file with one deletion vector: a commit must not both remove and add it.

    The rest may differ: a checkpoint says of no file that it changes data.
    """
    return one is not None and file_key(one) == file_key(other)


@dataclass(frozen=True, slots=True)
class TableShape:
    """The columns, properties and protocol of a version of the table at `path`."""

    path: str
    version: int
    protocol: Action
    metadata: Action

    @property
    def fields(self) -> list[LogField]:
        """The columns, as the log's schema text has them."""
        return list(json.loads(self.metadata["schemaString"])["fields"])

    @property
    def is_partitioned(self) -> bool:
        """True if the table has partition columns."""
        return bool(self.metadata.get("partitionColumns"))

    @property
    def features(self) -> frozenset[str]:
        """The table features that its protocol names for writers."""
        return frozenset(self.protocol.get("writerFeatures") or ())

    @property
    def settings(self) -> Mapping[str, str]:
        """The table's properties."""
        return dict(self.metadata.get("configuration") or {})

    def has_property(self, name: str, value: str) -> bool:
        """True if a property of the table has this value."""
        return str(self.settings.get(name)).lower() == value

    def physical(self) -> dict[str, str]:
        """Return the name of each column in the data files."""
        return physical_names(self.fields)


@dataclass(frozen=True, slots=True)
class TableState(TableShape):
    """A version: `files` are its `add` actions by path as the log spells it, `txns` the newest `txn` of each application.

    `removed` are the `remove` actions that readers of the log may still ask for; `domains` the domain metadata by name.
    `digest` is the SHA-256 of the version's commit.
    """

    digest: str
    files: Mapping[str, Action] = field(default_factory=dict)
    txns: Mapping[str, Action] = field(default_factory=dict)
    removed: Mapping[FileKey, Action] = field(default_factory=dict)
    domains: Mapping[str, Action] = field(default_factory=dict)

    @property
    def entries(self) -> int:
        """The number of files that it has, and has of before."""
        return len(self.files) + len(self.removed)


class Replay:
    """A state while commits are added to it: nothing at first, or a copy of one."""

    def __init__(self, state: TableState | None = None) -> None:
        self.files = dict[str, Action](() if state is None else state.files)
        self.txns = dict[str, Action](() if state is None else state.txns)
        self.removed = dict[FileKey, Action](() if state is None else state.removed)
        self.domains = dict[str, Action](() if state is None else state.domains)
        self.protocol = None if state is None else state.protocol
        self.metadata = None if state is None else state.metadata

    def take(self, actions: Actions) -> None:
        """Add one commit: what it removes goes before what it adds comes, since a file may do both for a new vector."""
        added: list[Action] = []
        for kind, action in actions:
            match kind:
                case "add":
                    added.append(action)
                case "remove":
                    self.files.pop(action["path"], None)
                    self.removed[file_key(action)] = action
                case "txn":
                    self.txns[str(action["appId"])] = action
                case "metaData":
                    self.metadata = action
                case "protocol":
                    self.protocol = action
                case "domainMetadata":
                    self.domains[str(action["domain"])] = action
                case "commitInfo" if action.get("operation") == BEGINS:
                    # The log begins again; a state that was kept from below has files that are the table's no more.
                    for part in (self.files, self.txns, self.removed, self.domains):
                        part.clear()
                case _:
                    # Notes about the commit, and change data, which are no part of the state.
                    pass
        for action in added:
            self.files[action["path"]] = action
            self.removed.pop(file_key(action), None)

    def state(self, path: str, version: int, digest: str) -> TableState:
        """Return the state; raises LogGapError if the log says nothing of the table's columns or protocol."""
        if self.protocol is None or self.metadata is None:
            raise LogGapError(path, f"its log does not say what version {version} is", RESTORE_LOG)
        # A table that gets a cycle a second has a tombstone for each.
        removed = dict(islice(self.removed.items(), max(0, len(self.removed) - TOMBSTONES_MAX), None))
        return TableState(
            path, version, self.protocol, self.metadata, digest, self.files, self.txns, removed, self.domains
        )


class _Kept:
    """The newest state of each table that this process has read or written, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._states: OrderedDict[str, TableState] = OrderedDict()
        self._files = 0
        self._lock = Lock()

    def get(self, path: str) -> TableState | None:
        with self._lock:
            state = self._states.get(path)
            if state is not None:
                self._states.move_to_end(path)
            return state

    def put(self, state: TableState) -> None:
        with self._lock:
            before = self._states.pop(state.path, None)
            self._files += state.entries - (0 if before is None else before.entries)
            self._states[state.path] = state
            while self._files > KEPT_FILES_MAX and len(self._states) > 1:
                self._files -= self._states.popitem(last=False)[1].entries


_kept = _Kept()


def keep_state(state: TableState) -> None:
    """Keep a state for the next commit of its table."""
    _kept.put(state)


def kept_state(path: str, version: int) -> TableState | None:
    """Return the state that this process has made or read of a version, None if it keeps another one or none."""
    state = _kept.get(path)
    return state if state is not None and state.version == version else None


def read_state(path: str, version: int) -> TableState:
    """Return a version of the table at `path`: the kept one if its commit is still the same, else from the log.

    Raises LogGapError if the log is not whole up to there.
    """
    table = Folder.at(path)
    kept = _kept.get(path)
    if kept is not None and kept.version <= version and _is_current(table, kept):
        if kept.version == version:
            return kept
        replay, digest, first = Replay(kept), kept.digest, kept.version
    else:
        try:
            log = listed_log(table, version)
        except LakeError as error:
            raise LogGapError(path, error.reason, RESTORE_LOG) from None
        replay, first = at_checkpoint(table, log), log.checkpoint
        digest = _digest(table, version) if first == version else _GONE
    for data, _ in commits_after(replay, path, first, version):
        digest = digest_of_bytes(data)
    state = replay.state(path, version, digest)
    if kept is None or kept.version <= version:
        _kept.put(state)
    return state


def table_shape(path: str, version: int) -> TableShape:
    """Return what a version is: as it is kept, by its checksum file, or from the log; raises as `read_state`."""
    kept, table = kept_state(path, version), Folder.at(path)
    if kept is not None and _is_current(table, kept):
        return kept
    return _of_checksum(table, path, version) or read_state(path, version)


def _of_checksum(table: Folder, path: str, version: int) -> TableShape | None:
    """Return the same from the version's checksum file; None unless it belongs to this very commit."""
    try:
        checksum = json.loads(table.get(checksum_name(version)))
        actions = read_actions(table, commit_name(version))
        txn_id = next((action for kind, action in actions if kind == "commitInfo"), {}).get("txnId")
        if txn_id is None or txn_id != checksum.get("txnId"):
            return None
        return TableShape(path, version, checksum["protocol"], checksum["metadata"])
    # The log itself says what is wrong with it.
    except (NotFoundError, LogGapError, ValueError, KeyError, AttributeError):
        return None


def _is_current(table: Folder, state: TableState) -> bool:
    return state.digest != _GONE and _digest(table, state.version) == state.digest


def _digest(table: Folder, version: int) -> str:
    """Return the digest of a commit, which may be gone, as in a log that was trimmed; then nothing is kept for long."""
    try:
        return digest_of_bytes(table.get(commit_name(version)))
    except NotFoundError:
        return _GONE


def at_checkpoint(table: Folder, log: ListedLog) -> Replay:
    """Return what the checkpoint of a log says, nothing if it has none; raises LogGapError if it is damaged."""
    # Imported here: a short log is read without Arrow.
    from lakeproof.lake.delta.log.checkpoint import read_checkpoint

    replay = Replay()
    for part in log.parts:
        replay.take(read_checkpoint(table, part))
    return replay


def commits_after(
    replay: Replay, path: str, first: int, last: int
) -> Iterator[tuple[bytes, Sequence[tuple[str, Action]]]]:
    """Add the commits after version `first`, which `replay` is, up to `last`; yield the bytes and the actions of each.

    Raises LogGapError at one that is missing, damaged, or in the wrong place: whatever removes a file has read that it is
    there, so a commit that removes another one is not the next, or has another path than was written, and rows would come
    twice.
    """
    table = Folder.at(path)
    for number in range(first + 1, last + 1):
        try:
            data = table.get(commit_name(number))
        except NotFoundError:
            raise LogGapError(path, f"version {number} is missing from its log", RESTORE_LOG) from None
        actions = actions_of(data, path, commit_name(number))
        if not are_whole(actions):
            raise LogGapError(path, f"version {number} of its log is damaged", RESTORE_LOG)
        for action in (action for kind, action in actions if kind == "remove"):
            if not is_same_file(replay.files.get(action["path"]), action):
                reason = f"version {number} of its log removes a file that version {number - 1} does not have"
                raise LogGapError(path, reason, RESTORE_LOG)
        replay.take(actions)
        yield data, actions
