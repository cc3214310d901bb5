"""Reading a Delta table's commits directly from its log: the newest version, and the properties of a commit.

Nothing is written here, and no Spark job runs: reading one commit costs one file. Listing the data files of a version
belongs to `files`, removing commits from a log to `cleaned`.

A commit is JSON, one action per line; only a newline ends a line (Delta's statistics contain raw U+2028), and the JSON may
contain blanks. An unknown action counts as one that changes data.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError

# What an action of the log says, and what its schema text says of a column.
Action: TypeAlias = Mapping[str, Any]
LogField: TypeAlias = Mapping[str, Any]
# A field while it is made.
NewLogField: TypeAlias = dict[str, Any]
# The type of a field: its name, or an object for a struct, an array or a map.
LogType: TypeAlias = str | Mapping[str, Any]
NO_VERSION = -1
LOG = "_delta_log"
# Commits, checksums, checkpoints and their parts, unfinished files, and the checksum of each.
NUMBERED = re.compile(r"\.?([0-9]{20})\.(?:([0-9]{20})\.compacted\.)?.*")
# What points to the newest checkpoint, and Hadoop's checksum of it.
POINTERS = ("_last_checkpoint", "._last_checkpoint.crc")
_NAME_DIGITS = 20
_OURS = "lakeproof/"
# The engine that a commit of this process names.
ENGINE = "lakeproof"
RESTORE_LOG = "restore the log from a backup, or bootstrap the table again"
# The operation of a commit with which a log begins again (`cleaned.begin_at`): nothing below it counts.
BEGINS = "CREATE TABLE"
# Actions that describe the commit and not the table.
_NOTES = frozenset({"commitInfo", "txn"})
_FILES = frozenset({"add", "remove", "cdc"})


class LogError(LakeError):
    """Something is wrong with the log of the Delta table at `path`, which is never a file of it: `layer` goes by it."""

    def __init__(self, path: str, reason: str, remedy: str) -> None:
        super().__init__(path, reason, remedy)
        self.path = path

    @property
    def layer(self) -> str:
        """Return which of a table's two Delta tables it is: `history` or `current`."""
        return LakePaths.layer_of(self.path)


class ForeignCommitError(LogError):
    """A commit that changes data and that no cycle of ours stands behind."""


class LogGapError(LogError):
    """A version is missing from the log, or can't be read: nobody knows its changes."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One commit: its writer (`txns`: application id → version), and its operation.

    `changes_data`: it changes rows, columns, properties or the protocol; OPTIMIZE and VACUUM do not.
    """

    version: int
    txns: dict[str, int]
    user_metadata: str | None
    changes_data: bool
    operation: str

    @property
    def is_by_us(self) -> bool:
        """True if a cycle or a refresh made it, whether or not a cut names it."""
        return any(app.startswith(_OURS) for app in self.txns)

    @property
    def description(self) -> str:
        """The writer of a commit that nobody expected, for messages."""
        number = next((n for app, n in self.txns.items() if app.startswith(_OURS)), None)
        if number is None:
            return f"version {self.version} was committed by someone else"
        return f"version {self.version} is a commit of cycle {number} that no cut names"


def commit_name(version: int) -> str:
    """Return the name of a commit's file in its table's folder."""
    return f"{LOG}/{version:0{_NAME_DIGITS}d}.json"


def checksum_name(version: int) -> str:
    """Return the name of the checksum file of a version in its table's folder."""
    return f"{LOG}/{version:0{_NAME_DIGITS}d}.crc"


def checkpoint_name(version: int) -> str:
    """Return the name of a version's checkpoint in its table's folder."""
    return f"{LOG}/{version:0{_NAME_DIGITS}d}.checkpoint.parquet"


def now_ms() -> int:
    """Return the present time as Delta has it."""
    return int(time.time() * 1000)


def digest_of_bytes(data: bytes) -> str:
    """Return the digest of a commit's bytes."""
    return hashlib.sha256(data).hexdigest()


def is_within(path: str, file: str) -> bool:
    """True if `file` is one of the table at `path`."""
    return file.startswith(f"{path.rstrip('/')}/")


def log_files(table: Folder, since: int = NO_VERSION) -> dict[str, int]:
    """Return the names of the files of a table's log, each with its bytes; empty if there is no log.

    With `since`, without the files of earlier versions, so that a long log costs no more than a short one. Hadoop's own
    files in a local folder come always.
    """
    # This sorts before every file of that version.
    after = f"{LOG}/{since:0{_NAME_DIGITS}d}" if since > NO_VERSION else ""
    files = ((file.key[len(LOG) + 1 :], file.bytes) for file in table.files(LOG, after))
    return {name: size for name, size in files if "/" not in name}


# The version at which this process has seen a table's log end, by its place: from there on a look costs no listing, which of
# a log of many commits takes as long as a cycle.
_ends: dict[str, int] = {}


def note_end(path: str, version: int) -> None:
    """Note that the log of the table at `path` is whole and ends at a version, with nothing of a later one."""
    _ends[path] = version


def ends(path: str, version: int) -> bool:
    """True if this process has seen the log end at a version, and nobody has committed since; False: a listing shows it."""
    table = Folder.at(path)
    if (
        version == NO_VERSION
        or _ends.get(path) != version
        or table.store.exists(table.key_of(commit_name(version + 1)))
    ):
        return False
    try:
        return table.store.size(table.key_of(commit_name(version))) > 0
    except NotFoundError:
        return False


def last_following(path: str, version: int) -> int:
    """Return the last version of those that follow one without a gap; that one itself if none does."""
    table = Folder.at(path)
    while table.store.exists(table.key_of(commit_name(version + 1))):
        version += 1
    return version


def newest_version(path: str, since: int = NO_VERSION) -> int:
    """Return the newest version of the table at `path`, NO_VERSION if there is no table, or none from `since` on."""
    return last_commit(log_files(Folder.at(path), since))


def last_commit(names: Iterable[str]) -> int:
    """Return the newest version that has a commit among a log's files; NO_VERSION if none has."""
    versions = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return max((int(v) for v in versions if v.isdecimal() and len(v) == _NAME_DIGITS), default=NO_VERSION)


def read_actions(table: Folder, name: str) -> list[tuple[str, Action]]:
    """Return the actions of a commit's file by kind; raises LogGapError if it is damaged, NotFoundError if it is missing."""
    return actions_of(table.get(name), table.url, name)


def actions_of(data: bytes, path: str, name: str) -> list[tuple[str, Action]]:
    """Return a commit's actions by kind; raises LogGapError about the table at `path` if its file `name` is damaged."""
    actions: list[tuple[str, Action]] = []
    try:
        for line in data.split(b"\n"):
            if line.strip():
                # Delta never writes two actions in a line, and nothing is lost by reading them.
                actions += json.loads(line).items()
    except (ValueError, AttributeError, RecursionError):
        actions = []
    if not actions or not all(isinstance(action, dict) for _, action in actions):
        raise LogGapError(path, f"{name} is empty or damaged", "restore it from a backup")
    return actions


# What Delta's protocol requires of an action, as far as this code asks for it.
_REQUIRED: Mapping[str, Mapping[str, type]] = {
    "add": {"path": str},
    "remove": {"path": str},
    "txn": {"appId": str, "version": int},
    "domainMetadata": {"domain": str},
    "metaData": {"id": str, "schemaString": str},
    "protocol": {"minReaderVersion": int},
}
_OF_VECTORS = {"storageType": str, "pathOrInlineDv": str, "sizeInBytes": int, "cardinality": int}
_LISTS = ("readerFeatures", "writerFeatures", "partitionColumns")


def are_whole(actions: Iterable[tuple[str, Action]]) -> bool:
    """True if actions have what whoever reads a table's state asks for: a letter that is another leaves JSON as it is."""
    try:
        return all(_is_whole(kind, action) for kind, action in actions)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        return False


def _is_whole(kind: str, action: Action) -> bool:
    vector = action.get("deletionVector")
    whole = _has(action, _REQUIRED.get(kind, {})) and (vector is None or _has(vector, _OF_VECTORS))
    if kind == "metaData":
        whole = whole and all(_has(field, {"name": str}) for field in json.loads(action["schemaString"])["fields"])
    names = (name for key in _LISTS for name in action.get(key) or ())
    return whole and type(action.get("size") or 0) is int and all(isinstance(name, str) for name in names)


def _has(entry: Action, required: Mapping[str, type]) -> bool:
    return all(type(entry.get(name)) is kind for name, kind in required.items())


def read_commit(path: str, version: int) -> DeltaCommit | None:
    """Return one commit, None if it has not been made. Raises LogGapError about the table if it is damaged."""
    try:
        actions = read_actions(Folder.at(path), commit_name(version))
        return _commit(version, actions)
    except NotFoundError:
        return None
    except (LogGapError, TypeError, KeyError, ValueError, AttributeError):
        raise LogGapError(path, f"version {version} of its log is empty or damaged", RESTORE_LOG) from None


def _commit(version: int, actions: list[tuple[str, Action]]) -> DeltaCommit:
    txns = {str(txn["appId"]): int(txn["version"]) for kind, txn in actions if kind == "txn"}
    info = next((action for kind, action in actions if kind == "commitInfo"), {})
    changes = any(
        action.get("dataChange") is not False if kind in _FILES else kind not in _NOTES for kind, action in actions
    )
    return DeltaCommit(version, txns, info.get("userMetadata"), changes, str(info.get("operation", "")))


def find_commit(path: str, version: int, is_ours: Callable[[DeltaCommit], bool]) -> tuple[int, DeltaCommit | None]:
    """Return our commit after `version` and the version before it; None and the newest version if it was not made.

    The version comes first. Commits that change no data are passed over. Raises ForeignCommitError at anybody else's
    commit that does, LogGapError when the log has a gap, or ends before `version`: if this process has seen it end there,
    whoever reads the version's own commit raises that.
    """
    before = version
    while (commit := read_commit(path, before + 1)) is not None:
        if is_ours(commit):
            return before, commit
        if commit.changes_data:
            raise ForeignCommitError(
                path, commit.description, "let nothing but lakeproof write this table, and snapshot it again"
            )
        before = commit.version
    # That nothing follows was seen right now; who commits on the version reads its commit, too.
    if before == NO_VERSION or _ends.get(path) != before:
        check_whole(path, before)
    return before, None


def check_not_emptied(path: str, version: int) -> None:
    """Raise LogGapError if the file of a commit that a cut names is empty: Delta reads it as a commit of nothing."""
    table = Folder.at(path)
    with suppress(NotFoundError):
        if table.store.size(table.key_of(commit_name(version))) == 0:
            raise LogGapError(path, f"version {version} of its log is empty, and a cut names it", RESTORE_LOG)


def check_whole(path: str, seen: int, files: Mapping[str, int] | None = None) -> None:
    """Raise LogGapError unless the log ends at version `seen`, which can be read, or at a later version that follows it.

    `files` are those of the log from that version on, if the caller has just listed them.
    """
    if files is None and ends(path, seen):
        return
    listed = log_files(Folder.at(path), seen) if files is None else files
    newest = last_commit(listed)
    fault = None
    if newest < seen:
        fault = f"its log ends at version {newest_version(path)}, before version {seen} that the newest cut names"
    elif listed.get(commit_name(seen).removeprefix(f"{LOG}/")) == 0:
        fault = f"version {seen} of its log is empty"
    # A commit may have been made between the two reads.
    elif newest > seen and read_commit(path, seen + 1) is None:
        fault = f"its log has version {newest} and not version {seen + 1}"
    if fault is not None:
        raise LogGapError(path, fault, RESTORE_LOG)


def newest_external(config: Config, path: str, since: int = NO_VERSION) -> int:
    """Return the newest version of the table at `path`, from `since` on; NO_VERSION if there is none.

    The store is reached as the lake's (`storage`). Raises OSError if nobody may read it.
    """
    open_store(config.location_of(path))
    return newest_version(path, since)


PHYSICAL_NAME, TYPE_CHANGES = "delta.columnMapping.physicalName", "delta.typeChanges"


def physical_name(field: LogField) -> str:
    """Return a column's name in data files; `field` is of the log's schema text."""
    return str((field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]))


def physical_names(fields: Iterable[LogField]) -> dict[str, str]:
    """Return the name of each column in data files."""
    return {field["name"]: physical_name(field) for field in fields}
