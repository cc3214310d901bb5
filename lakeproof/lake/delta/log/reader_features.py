"""The features of Delta's that a reader of a table must know, each with the reason, from the table's log alone.

Switching one on belongs to `schema` and `protocol`, refusing names that need one to `lakeproof.lake.cycle.task`. No
Spark runs here: `status` asks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lakeproof.hidden_columns import PUT_AWAY
from lakeproof.lake.columns import needs_mapping
from lakeproof.lake.delta.log.commits import (
    LOG,
    RESTORE_LOG,
    TYPE_CHANGES,
    LogGapError,
    commit_name,
    log_files,
    physical_names,
    read_actions,
)
from lakeproof.storage.folder import Folder
from lakeproof.storage.store import NotFoundError

VECTORS, MAPPING, WIDENING, NO_ZONE = "deletionVectors", "columnMapping", "typeWidening", "timestampNtz"
# What a portable table does without; a type of a column is not a matter of how a table is written.
NOT_PORTABLE = frozenset({VECTORS, MAPPING, WIDENING})
VECTORS_ENABLED = "delta.enableDeletionVectors"
_KINDS = ("protocol", "metaData")
# From these versions of the protocol on it lists features; version 2 for readers is column mapping, version 1 nothing.
LISTS_FEATURES_READER, LISTS_FEATURES_WRITER = 3, 7
_MAPS = 2


@dataclass(frozen=True, slots=True)
class ReaderFeatures:
    """What readers of one version of a table must know: feature → reason; `vectors`: deleted rows are marked in vectors."""

    reasons: Mapping[str, str]
    vectors: bool

    @property
    def is_portable(self) -> bool:
        """True if no reader needs any feature because of how the table is written."""
        return NOT_PORTABLE.isdisjoint(self.reasons)

    def beyond(self, before: ReaderFeatures) -> dict[str, str]:
        """Return the features that `before` did not need."""
        return {name: reason for name, reason in self.reasons.items() if name not in before.reasons}


def reader_features(path: str, version: int) -> ReaderFeatures:
    """Read the features of a version; raises LogGapError if its log can't be read."""
    state = table_state(path, version)
    protocol, metadata = state["protocol"], state["metaData"]
    names = list(protocol.get("readerFeatures") or [])
    if protocol["minReaderVersion"] < LISTS_FEATURES_READER:
        names = [MAPPING] if protocol["minReaderVersion"] == _MAPS else []
    fields = json.loads(metadata["schemaString"])["fields"]
    reasons = {name: "; ".join(_reasons(name, fields)) or "since an earlier change" for name in sorted(names)}
    settings = metadata.get("configuration") or {}
    return ReaderFeatures(reasons, dict(settings).get(VECTORS_ENABLED) == "true")


def _reasons(feature: str, fields: list[dict[str, Any]]) -> Iterator[str]:
    if feature == VECTORS:
        yield "deleted rows are marked, and stay in their files"
    elif feature == MAPPING:
        yield from _renamings(fields)
    for field in fields:
        name, more = field["name"], field.get("metadata") or {}
        if feature == WIDENING and more.get(TYPE_CHANGES):
            yield f"{name} was {more[TYPE_CHANGES][0]['fromType']}"
        elif feature == NO_ZONE and "timestamp_ntz" in json.dumps(field["type"]):
            yield f"{name} is a timestamp without a time zone"


def _renamings(fields: list[dict[str, Any]]) -> Iterator[str]:
    """Yield why columns have other names in files: where one needs it, all that came since have a name of Delta's."""
    for name, in_files in physical_names(fields).items():
        if name.startswith(PUT_AWAY):
            yield f"{in_files} was dropped"
        elif needs_mapping([name]):
            yield f"a file can't have the name {name}"
        elif name != in_files and not in_files.startswith("col-"):
            yield f"{name} was {in_files}"


def table_state(path: str, version: int) -> dict[str, dict[str, Any]]:
    """Return the newest `protocol` and `metaData` up to a version: from its checksum, else from commits and checkpoints."""
    state = _of_checksum(path, version)
    for number in range(version, -1, -1) if not state else ():
        for kind, action in _newest_first(path, number):
            if kind in _KINDS:
                state.setdefault(kind, action)
        if len(state) == len(_KINDS):
            break
    if len(state) == len(_KINDS):
        return state
    raise LogGapError(path, f"its log does not say what version {version} is", RESTORE_LOG)


def _of_checksum(path: str, version: int) -> dict[str, dict[str, Any]]:
    """Return the same from the version's checksum file; nothing unless it belongs to this very commit."""
    table, name = Folder.at(path), commit_name(version)
    try:
        checksum = json.loads(table.get(f"{name.removesuffix('.json')}.crc"))
        commit = next((action for kind, action in read_actions(table, name) if kind == "commitInfo"), {})
        same = commit.get("txnId") is not None and commit["txnId"] == checksum.get("txnId")
        return {"protocol": checksum["protocol"], "metaData": checksum["metadata"]} if same else {}
    # The log itself says what is wrong with it.
    except (NotFoundError, LogGapError, ValueError, KeyError, AttributeError):
        return {}


def _newest_first(path: str, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions of a commit, then those of the checkpoint after it, if there is one."""
    table = Folder.at(path)
    try:
        yield from read_actions(table, commit_name(number))
        missing = False
    except NotFoundError:
        missing = True
    checkpoints = _checkpoints(table, number)
    if missing and not checkpoints:
        raise LogGapError(path, f"version {number} is missing from its log", RESTORE_LOG)
    for checkpoint in checkpoints:
        import pyarrow as pa

        from lakeproof.storage.parquet import parquet_file

        try:
            with parquet_file(table.store, table.key_of(checkpoint)) as file:
                rows = file.read(columns=list(_KINDS)).to_pylist()
        except pa.ArrowInvalid:
            raise LogGapError(table.url_of(checkpoint), "it is damaged", RESTORE_LOG) from None
        for row in rows:
            yield from ((kind, action) for kind, action in row.items() if action is not None)


def _checkpoints(table: Folder, number: int) -> list[str]:
    begin = f"{number:020d}.checkpoint"
    names = sorted(name for name in log_files(table) if name.startswith(begin) and name.endswith(".parquet"))
    return [f"{LOG}/{name}" for name in names]
