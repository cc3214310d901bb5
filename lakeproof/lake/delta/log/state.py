"""One version of a Delta table as its log has it, whole: what the next commit is built on, kept from one to the next.

Reading rows does not belong here (`arrow_rows`), nor making a commit (`committer`).

    checkpoint ── commits since ── TableState ── the next commit ── TableState ── …

A process that goes on commits without reading more than one file: a state is kept with the digest of its own commit, and is
good for as long as the commit of that version still has it. So neither another writer nor a log that was taken back can make
it wrong. What is kept is bounded by the number of files that the states list (`KEPT_FILES_MAX`).
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock
from typing import Any, TypeAlias

from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.checkpoint import TOMBSTONES_MAX, ListedLog, listed_log, read_checkpoint
from lakeproof.lake.delta.log.commits import (
    RESTORE_LOG,
    LogGapError,
    actions_of,
    commit_name,
    digest_of,
    physical_names,
)
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

# One file takes about 1 KB, most of it statistics.
KEPT_FILES_MAX = 200_000
Action: TypeAlias = Mapping[str, Any]
Actions: TypeAlias = Iterable[tuple[str, Action]]


def tombstone_key(action: Action) -> tuple[str, str]:
    """Return what removed files differ by: the path, and the deletion vector that the file had."""
    vector = action.get("deletionVector") or {}
    return action["path"], f"{vector.get('storageType', '')}{vector.get('pathOrInlineDv', '')}@{vector.get('offset')}"


@dataclass(frozen=True, slots=True)
class TableState:
    """A version: `files` are its `add` actions by path as the log spells it, `txns` the newest `txn` of each application.

    `removed` are the `remove` actions that readers of the log may still ask for; `domains` the domain metadata by name.
    `digest` is the SHA-256 of the version's commit.
    """

    path: str
    version: int
    digest: str
    protocol: Action
    metadata: Action
    files: Mapping[str, Action] = field(default_factory=dict)
    txns: Mapping[str, Action] = field(default_factory=dict)
    removed: Mapping[tuple[str, str], Action] = field(default_factory=dict)
    domains: Mapping[str, Action] = field(default_factory=dict)

    @property
    def fields(self) -> list[dict[str, Any]]:
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

    def has_property(self, name: str, value: str) -> bool:
        """True if a property of the table has this value."""
        return str((self.metadata.get("configuration") or {}).get(name)).lower() == value

    def physical(self) -> dict[str, str]:
        """Return the name of each column in the data files."""
        return physical_names(self.fields)

    def after(self, version: int, actions: Actions, digest: str) -> TableState:
        """Return the state after one more commit."""
        rest = Replay(dict(self.files), dict(self.txns), dict(self.removed), dict(self.domains))
        rest.protocol, rest.metadata = self.protocol, self.metadata
        rest.take(actions)
        return rest.state(self.path, version, digest)


class Replay:
    """A state while commits are added to it."""

    def __init__(
        self,
        files: dict[str, Action] | None = None,
        txns: dict[str, Action] | None = None,
        removed: dict[tuple[str, str], Action] | None = None,
        domains: dict[str, Action] | None = None,
    ) -> None:
        self.files = {} if files is None else files
        self.txns = {} if txns is None else txns
        self.removed = {} if removed is None else removed
        self.domains = {} if domains is None else domains
        self.protocol: Action | None = None
        self.metadata: Action | None = None

    def take(self, actions: Actions) -> None:
        """Add one commit: what it removes goes before what it adds comes, since a file may do both for a new vector."""
        added: list[Action] = []
        for kind, action in actions:
            match kind:
                case "add":
                    added.append(action)
                case "remove":
                    self.files.pop(action["path"], None)
                    self.removed[tombstone_key(action)] = action
                case "txn":
                    self.txns[str(action["appId"])] = action
                case "metaData":
                    self.metadata = action
                case "protocol":
                    self.protocol = action
                case "domainMetadata":
                    self.domains[str(action["domain"])] = action
                case _:
                    # Notes about the commit, and change data, which are no part of the state.
                    pass
        for action in added:
            self.files[action["path"]] = action
            self.removed.pop(tombstone_key(action), None)

    def state(self, path: str, version: int, digest: str) -> TableState:
        """Return the state; raises LogGapError if the log says nothing of the table's columns or protocol."""
        if self.protocol is None or self.metadata is None:
            raise LogGapError(path, f"its log does not say what version {version} is", RESTORE_LOG)
        # A table that gets a cycle a second has a tombstone for each.
        removed = dict(islice(self.removed.items(), max(0, len(self.removed) - TOMBSTONES_MAX), None))
        return TableState(
            path, version, digest, self.protocol, self.metadata, self.files, self.txns, removed, self.domains
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
            self._files += len(state.files) - (0 if before is None else len(before.files))
            self._states[state.path] = state
            while self._files > KEPT_FILES_MAX and len(self._states) > 1:
                self._files -= len(self._states.popitem(last=False)[1].files)


_kept = _Kept()


def keep(state: TableState) -> None:
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
        state = _forward(table, kept, version)
    else:
        state = _from_log(table, path, version)
    _kept.put(state)
    return state


def _is_current(table: Folder, state: TableState) -> bool:
    try:
        return digest_of(table.get(commit_name(state.version))) == state.digest
    except NotFoundError:
        return False


def _forward(table: Folder, state: TableState, version: int) -> TableState:
    for number in range(state.version + 1, version + 1):
        data, actions = _commit(table, state.path, number, state.files)
        state = state.after(number, actions, digest_of(data))
    return state


def _from_log(table: Folder, path: str, version: int) -> TableState:
    try:
        log = listed_log(table, version)
    except LakeError as error:
        raise LogGapError(path, error.reason, RESTORE_LOG) from None
    replay, digest = replay_log(path, version, log)
    return replay.state(path, version, digest)


def replay_log(path: str, version: int, log: ListedLog) -> tuple[Replay, str]:
    """Return what a log says of a version from the checkpoint on, with the digest of its commit; nothing is kept.

    Raises as `read_state`.
    """
    replay, digest, table = Replay(), "", Folder.at(path)
    for part in log.parts:
        replay.take(read_checkpoint(table, part))
    if log.checkpoint == version:
        # The commit itself may be gone, as in a log that was trimmed; then nothing is kept for long.
        try:
            digest = digest_of(table.get(commit_name(version)))
        except NotFoundError:
            digest = "none"
    for number in range(log.checkpoint + 1, version + 1):
        data, actions = _commit(table, path, number, replay.files)
        replay.take(actions)
        digest = digest_of(data)
    return replay, digest


def _commit(
    table: Folder, path: str, number: int, files: Mapping[str, Action]
) -> tuple[bytes, Sequence[tuple[str, Action]]]:
    """Return a commit's bytes and actions; `files` are those of the version before it.

    Whatever removes a file has read that it is there: a commit that removes another one stands in the wrong place, or has
    another path than was written, and rows would come twice.
    """
    try:
        data = table.get(commit_name(number))
    except NotFoundError:
        raise LogGapError(path, f"version {number} is missing from its log", RESTORE_LOG) from None
    actions = actions_of(data, table.url_of(commit_name(number)))
    for action in (action for kind, action in actions if kind == "remove"):
        live = files.get(action["path"])
        if live is None or tombstone_key(live) != tombstone_key(action):
            reason = f"version {number} of its log removes a file that version {number - 1} does not have"
            raise LogGapError(path, reason, RESTORE_LOG)
    return data, actions
