"""Checkpoints of a Delta table's log: the whole state of a version in one Parquet file, so that nobody needs older commits.

`committer` decides when a checkpoint is due; `state` has the meaning of actions.

The classic form of the protocol: one file, one row for each action, in the column of its kind. Removed files are listed for
`TOMBSTONES_S`, the newest `state.TOMBSTONES_MAX` at most: a VACUUM of somebody else's spares them for that long, and what a
kept cut needs is named by its own version.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.lake.delta.log.commits import LOG, POINTERS, RESTORE_LOG, Action, LogGapError, checkpoint_name, now_ms
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import parquet_file

if TYPE_CHECKING:
    from lakeproof.lake.delta.log.state import TableState

TOMBSTONES_S = 7 * 24 * 3600
_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "tags": _TEXTS,
                "deletionVector": _VECTOR,
                "stats": pa.string(),
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "deletionVector": _VECTOR,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
        "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    }
)
_ROWS_AT_ONCE = 8192


def write_checkpoint(table: Folder, state: TableState) -> None:
    """Write the checkpoint of a state, and point to it; whoever wrote one of this version before wrote the same.

    It is complete or not there, whenever this process ends: every reader believes the checkpoint that it finds.
    """
    name, rows = checkpoint_name(state.version), 0
    data = io.BytesIO()
    with pq.ParquetWriter(data, _SCHEMA, compression="zstd") as writer:
        for part in _batches(_actions(state)):
            rows += part.num_rows
            writer.write_batch(part)
    key = table.key_of(name)
    # Of one that Spark has written.
    checksum_key = table.store.checksum_key(key)
    if checksum_key is not None:
        table.store.delete(checksum_key)
    table.store.put(key, data.getvalue())
    name, checksum = POINTERS
    table.delete(f"{LOG}/{checksum}")
    pointer = {"version": state.version, "size": rows, "numOfAddFiles": len(state.files)}
    table.store.put(table.key_of(f"{LOG}/{name}"), json.dumps(pointer).encode())


def _actions(state: TableState) -> Iterator[tuple[str, Action]]:
    yield "protocol", state.protocol
    yield "metaData", state.metadata
    yield from (("txn", action) for action in state.txns.values())
    yield from (("domainMetadata", action) for action in state.domains.values() if not action.get("removed"))
    yield from (("add", {**action, "dataChange": False}) for action in state.files.values())
    oldest = now_ms() - TOMBSTONES_S * 1000
    for action in state.removed.values():
        if (action.get("deletionTimestamp") or 0) >= oldest:
            yield "remove", {**action, "dataChange": False}


def _batches(actions: Iterable[tuple[str, Action]]) -> Iterator[pa.RecordBatch]:
    rows = list[Action]()
    for kind, action in actions:
        rows.append({kind: action})
        if len(rows) == _ROWS_AT_ONCE:
            yield pa.RecordBatch.from_pylist(rows, _SCHEMA)
            rows = []
    if rows:
        yield pa.RecordBatch.from_pylist(rows, _SCHEMA)


def read_checkpoint(table: Folder, name: str) -> Iterator[tuple[str, Action]]:
    """Yield the actions of a checkpoint, or of a part of one; raises LogGapError if it is damaged."""
    try:
        with parquet_file(table.store, table.key_of(f"{LOG}/{name}")) as file:
            maps = {f.name: frozenset(_maps(f.type)) for f in file.schema_arrow if f.name in _SCHEMA.names}
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=list(maps)):
                for row in batch.to_pylist():
                    yield from ((k, _in_json(action, maps[k])) for k, action in row.items() if _is_action(action))
    except (OSError, pa.ArrowInvalid) as error:
        # A passing error of the system is no damage; Arrow's own reading errors have no errno.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise LogGapError(table.url, f"{LOG}/{name} is damaged", RESTORE_LOG) from None


def _maps(kind: pa.StructType) -> Iterator[str]:
    for field in kind:
        if pa.types.is_struct(field.type):
            yield from _maps(field.type)
        elif pa.types.is_map(field.type):
            yield field.name


def _in_json(value: Action, maps: frozenset[str]) -> Action:
    """Return a struct as a commit's JSON has it: without what is NULL, and with its `maps` as objects."""
    return {
        name: dict(part) if name in maps else _in_json(part, maps) if isinstance(part, dict) else part
        for name, part in value.items()
        if part is not None and not name.endswith("_parsed")
    }


def _is_action(action: Action | None) -> bool:
    """True if a row is of this kind: a writer may fill the columns of other kinds with structs of NULL."""
    return action is not None and any(value is not None for value in action.values())
