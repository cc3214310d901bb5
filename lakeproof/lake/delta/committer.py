"""The committer: what changes in a Delta table becomes exactly one version of it.

What changes is not computed here: an executor makes files and finds the places of rows, and hands both over. It never
commits. No JVM is needed, and no name inside Delta.

    files to add, rows to mark, columns to set ─► <version>.json, put if absent ─► checksum, sometimes a checkpoint

The version's JSON is put by the store, if absent: that is the fence, on every store alike. Whoever loses the race for a
version has committed nothing. A commit is made on the state that was read or not at all, and it carries the number of its
cycle (`txn`). `docs/delta-protocol.md` says for each demand of Delta's protocol on writers how it is met.

A version is never made twice. What an attempt has left, and no cut names, stays in the log; `restore` makes the table what
it was before, in a version above.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lakeproof.errors import InvariantError, TransientError
from lakeproof.failpoints import failpoint
from lakeproof.lake.delta.files.data_files import data_file, deleted_rows, write_vectors
from lakeproof.lake.delta.log.checkpoint import write_checkpoint
from lakeproof.lake.delta.log.commits import (
    ENGINE,
    NO_VERSION,
    Action,
    DeltaCommit,
    checksum_name,
    commit_name,
    digest_of_bytes,
    find_commit,
    note_end,
    now_ms,
)
from lakeproof.lake.delta.log.protocol import CHECKPOINT_INTERVAL, protocol_for
from lakeproof.lake.delta.log.state import Replay, TableState, is_same_file, keep_state
from lakeproof.lake.rows.change import Numbers
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import AlreadyExistsError


class LostRaceError(TransientError):
    """Somebody else has made the version that was to be made."""


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file in the table's folder that becomes the table's: its `entry` in the log.

    `left_out` are the numbers of rows in it that are not the table's, in order; None if all are.
    """

    entry: Action
    left_out: Numbers | None = None

    @property
    def rows(self) -> int:
        """The number of rows that the table gets."""
        return int(json.loads(self.entry["stats"])["numRecords"]) - (0 if self.left_out is None else len(self.left_out))


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """What a commit shows in the table's history: its name there, its parameters, and its counts."""

    name: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, int]
    user_metadata: str | None = None


class PendingCommit:
    """What changes in one commit on top of a state; `before` is None for a table that has no version yet.

    Every method adds actions, and nothing is written but vectors. `commit` makes the version.
    """

    def __init__(self, path: str, before: TableState | None) -> None:
        self.path = path
        self.before = before
        self.table = Folder.at(path)
        self._actions: list[tuple[str, Action]] = []
        self._now = now_ms()

    @property
    def is_empty(self) -> bool:
        """True if nothing changes."""
        return not self._actions

    def add(self, files: Iterable[AddedFile], *, data_change: bool = True) -> int:
        """Add files; returns the number of rows that come with them. A vector is written for rows that are left out."""
        chosen = list(files)
        left_out = [file.left_out for file in chosen if file.left_out is not None and len(file.left_out)]
        vectors = iter(write_vectors(self.table, left_out))
        for file in chosen:
            entry = {**file.entry, "dataChange": data_change}
            if file.left_out is not None and len(file.left_out):
                entry |= {"deletionVector": next(vectors), "stats": _loose(entry["stats"])}
            self._actions.append(("add", entry))
        return sum(file.rows for file in chosen)

    def mark(self, places: Mapping[str, Numbers]) -> int:
        """Delete the rows at these places (a file's path in the log → row numbers); returns their number.

        Files of which no row is left are removed. Raises InvariantError about a row that is deleted already.
        """
        touched: list[tuple[Action, Numbers]] = []
        for path, rows in places.items():
            entry = self._entry(path)
            deleted = _with_old(self.table, entry, rows)
            if len(deleted) == data_file(entry).rows:
                self.remove(entry)
            else:
                touched.append((entry, deleted))
        vectors = write_vectors(self.table, [rows for _, rows in touched])
        for (entry, _), vector in zip(touched, vectors, strict=True):
            self.remove(entry)
            changed = {**entry, "deletionVector": vector, "dataChange": True, "modificationTime": self._now}
            self._actions.append(("add", {**changed, "stats": _loose(entry.get("stats"))}))
        return sum(map(len, places.values()))

    def remove(self, entry: Action, *, data_change: bool = True) -> None:
        """Remove a file."""
        removed = {
            "path": entry["path"],
            "deletionTimestamp": self._now,
            "dataChange": data_change,
            "extendedFileMetadata": True,
            "partitionValues": entry.get("partitionValues") or {},
            "size": entry.get("size") or 0,
        }
        if entry.get("deletionVector"):
            removed["deletionVector"] = entry["deletionVector"]
        rows = data_file(entry).rows
        if rows is not None:
            # For those who read what went.
            removed["stats"] = json.dumps({"numRecords": rows})
        self._actions.append(("remove", removed))

    def remove_all(self) -> int:
        """Remove every file; returns the number of rows that go with them, as far as the log says."""
        files = [] if self.before is None else list(self.before.files.values())
        for entry in files:
            self.remove(entry)
        return sum(data_file(entry).live_rows or 0 for entry in files)

    def set_metadata(self, metadata: Action) -> None:
        """Give the table other columns or properties; what its protocol lacks for them comes with it."""
        self._actions.append(("metaData", metadata))
        now = protocol_for(metadata, None if self.before is None else self.before.protocol)
        if self.before is None or now != self.before.protocol:
            self._actions.append(("protocol", now))

    def restore(self, state: TableState) -> None:
        """Make the table what it was at another state of it: files, vectors, columns and properties.

        Application ids get their numbers back: Delta skips a write of Spark's in silence if the table has its number.
        """
        before = self._state()
        for app, txn in before.txns.items():
            last = int(txn["version"])
            number = int(state.txns[app]["version"]) if app in state.txns else last - 1
            if number != last:
                self._actions.append(("txn", {"appId": app, "version": number, "lastUpdated": self._now}))
        if before.metadata != state.metadata:
            self.set_metadata(state.metadata)
        for path, entry in before.files.items():
            if not is_same_file(state.files.get(path), entry):
                self.remove(entry)
        for path, entry in state.files.items():
            if not is_same_file(before.files.get(path), entry):
                self._actions.append(("add", {**entry, "dataChange": True}))

    def commit(self, info: CommitInfo | None, operation: LoggedOperation, *, durable: bool = False) -> TableState:
        """Make the version and return the table's state in it; `info` None: no application stands behind it.

        `durable`: a power cut leaves the version whole or not there. Its files have to be durable then; otherwise it is
        durable with them (`sync_commits`), since before them it would be worth nothing.
        Raises LostRaceError if somebody else has made it meanwhile: then nothing is committed.
        """
        version = NO_VERSION + 1 if self.before is None else self.before.version + 1
        described = self._commit_info(info, operation)
        actions: list[tuple[str, Action]] = [("commitInfo", described)]
        if info is not None:
            txn = {"appId": info.app_id, "version": info.number, "lastUpdated": self._now}
            actions.append(("txn", txn))
        actions += self._actions
        data = "".join(f"{_json({kind: action})}\n" for kind, action in actions).encode()
        failpoint("apply.before_commit")
        try:
            self.table.store.put_if_absent(self.table.key_of(commit_name(version)), data, durable=durable)
        except AlreadyExistsError:
            raise lost(self.path) from None
        failpoint("apply.after_commit")
        replay = Replay(self.before)
        replay.take(actions)
        state = replay.state(self.path, version, digest_of_bytes(data))
        keep_state(state)
        self._write_notes(state, described["txnId"])
        note_end(self.path, version)
        return state

    def _commit_info(self, info: CommitInfo | None, operation: LoggedOperation) -> Action:
        kinds = {kind for kind, _ in self._actions}
        metadata = info.user_metadata if info is not None else operation.user_metadata
        described = {
            "timestamp": self._now,
            "operation": operation.name,
            "operationParameters": dict(operation.parameters),
            "isolationLevel": "Serializable",
            "isBlindAppend": kinds <= {"add", "metaData", "protocol"},
            "operationMetrics": {name: str(count) for name, count in operation.metrics.items()},
            "engineInfo": ENGINE,
            "txnId": str(uuid.uuid4()),
        }
        if self.before is not None:
            described["readVersion"] = self.before.version
        return described if metadata is None else described | {"userMetadata": metadata}

    def _write_notes(self, state: TableState, txn_id: str) -> None:
        """Write what spares readers work, and what the version is right without."""
        if state.version == 0 and self.table.store.holders_may_sleep:
            # A first commit may be taken back and made again, while its maker sleeps right here.
            return
        name = checksum_name(state.version)
        checksum = _json(_checksum(state, txn_id)).encode()
        try:
            self.table.store.put_if_absent(self.table.key_of(name), checksum, durable=False)
        except AlreadyExistsError:
            # It belongs to another commit, that was taken back; without a checksum the version is right, too.
            self.table.delete(name)
        settings = state.metadata.get("configuration") or {}
        if state.version and state.version % int(settings.get("delta.checkpointInterval", CHECKPOINT_INTERVAL)) == 0:
            write_checkpoint(self.table, state)

    def _entry(self, path: str) -> Action:
        entry = self._state().files.get(path)
        if entry is None:
            raise InvariantError(self.path, f"its version has no file {path}, of which rows are to go", "report this")
        return entry

    def _state(self) -> TableState:
        if self.before is None:
            raise InvariantError(self.path, "it has no version yet", "report this")
        return self.before


def version_to_follow(path: str, expected: int, commit: CommitInfo) -> int:
    """Return the version to commit on: `expected`, or a later one if what follows changes no data.

    Raises ForeignCommitError at anybody else's commit that does, LogGapError if the log is not whole, TransientError if
    another process has made the commit meanwhile: who slept and wakes up may be the first of two.
    """
    before, done = find_commit(path, expected, commit.is_in)
    if done is not None:
        raise lost(path)
    return before


def lost(path: str) -> LostRaceError:
    """Return the error of who has lost the race for a table's next version."""
    return LostRaceError(path, "someone else committed to the table meanwhile", "the next run finishes the cycle")


def _with_old(table: Folder, entry: Action, rows: Numbers) -> Numbers:
    old = data_file(entry).deleted
    if old is None:
        return rows
    deleted = np.union1d(deleted_rows(table, old), rows)
    if len(deleted) != old.rows + len(rows):
        raise InvariantError(table.url_of(entry["path"]), "a row would be deleted twice", "report this")
    return deleted


def _loose(stats: str | None) -> str | None:
    """Return statistics that say of a file with a vector that its bounds may be those of deleted rows.

    As text: a bound may have more digits than a number of Python's.
    """
    if stats is None or '"tightBounds":false' in stats:
        return stats
    if '"tightBounds":true' in stats:
        return stats.replace('"tightBounds":true', '"tightBounds":false')
    body = stats.rstrip()[:-1]
    return f'{body}{"" if body.endswith("{") else ","}"tightBounds":false}}'


def _checksum(state: TableState, txn_id: str) -> Action:
    """Return the version's checksum file."""
    return {
        "txnId": txn_id,
        "tableSizeBytes": sum(int(entry.get("size") or 0) for entry in state.files.values()),
        "numFiles": len(state.files),
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [dict(txn) for txn in state.txns.values()],
        "domainMetadata": [dict(domain) for domain in state.domains.values() if not domain.get("removed")],
        "metadata": dict(state.metadata),
        "protocol": dict(state.protocol),
    }


def _json(value: Action) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class CommitInfo:
    """The identity that a commit carries."""

    app_id: str
    number: int
    user_metadata: str

    def is_in(self, commit: DeltaCommit) -> bool:
        """True if a commit of the table's log is this one."""
        return commit.txns.get(self.app_id) == self.number

    def is_followed_by(self, commit: DeltaCommit) -> bool:
        """True if a commit has a later number: then the lake's cycles are older than its table."""
        return commit.txns.get(self.app_id, self.number) > self.number


def commit_number(commit: DeltaCommit, app_prefix: str, number: str = "cycle") -> int | None:
    """Return the number that one of our commits carries, None if the commit is somebody else's.

    It stands beside an application id with this prefix, or in the metadata under the name `number` (OPTIMIZE and RESTORE
    have no application id).
    """
    numbers = [value for app, value in commit.txns.items() if app.startswith(app_prefix)]
    if numbers:
        return max(numbers)
    try:
        metadata = json.loads(commit.user_metadata or "null")
    except ValueError:
        return None
    is_ours = isinstance(metadata, dict) and ("view" in metadata or "incarnation" in metadata)
    value = metadata.get(number) if is_ours else None
    return value if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class Applied:
    """The table's version now, and the rows that this commit inserted and deleted.

    If nothing was deleted or inserted there is no commit, and the version is the old one.
    """

    version: int
    inserted: int
    deleted: int
