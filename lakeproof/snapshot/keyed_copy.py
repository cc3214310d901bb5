"""A copy of single keys' rows at one consistent point, for a repair: its files, its document, and its end.

Reading rows from PostgreSQL does not belong here (`lakeproof.postgres.copy_keys`), nor entering them in the lake
(`lakeproof.lake.cycle.keyed_entry`). `lake/FORMAT.md` has the fields.

    <folder>/<n>-rows.parquet   the rows that the source has under the keys of the n-th table: of some keys there are none
    <folder>/<n>-keys.parquet   the keys: a row for each, with nothing but the key's columns
    <folder>/copy.json          put last: the copy exists from here on

Both files have the form of a snapshot's chunk. Whoever makes a copy holds the source's lease, and the cycle that enters it
follows under the same lease: so an intent names it, or it is nobody's. It is removed when its cycle has ended; what a
killed process has left is removed by the next repair, and by maintenance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.errors import LakeError
from lakeproof.field_types import IncarnationField, LsnField, TableField
from lakeproof.hidden_columns import TEXT
from lakeproof.landing.decoded_size import DecodedCount
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile, SnapshotTable
from lakeproof.storage.document import Document, Part
from lakeproof.storage.parquet import abandon
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NewFile, Store
from lakeproof.values.cast import cast_column, text_overflow
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import arrow_type

_DOCUMENT = "copy.json"


@dataclass(frozen=True, slots=True)
class KeyedTable(Part):
    """The rows of some keys of a table, and these keys, whose other columns are NULL."""

    rows: SnapshotTable
    keys: SnapshotTable


@dataclass(frozen=True, slots=True)
class KeyedCopy(Document):
    """The rows of single keys of tables, as the source has them at `consistent_point`."""

    FORMAT = "lakeproof.keyedcopy/1"

    incarnation: IncarnationField
    consistent_point: LsnField
    made_at: str
    tables: Mapping[TableField, KeyedTable]


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    """A copy in the store; `key` is its folder."""

    key: str
    copy: KeyedCopy


def place_copy(lake: SourceLake, folder: str, copy: KeyedCopy) -> PlacedCopy:
    """Put the document of a copy whose files are durable."""
    tables = [table for keyed in copy.tables.values() for table in (keyed.rows, keyed.keys)]
    lake.store.sync_names(f"{folder}/{chunk.path}" for table in tables for chunk in table.chunks)
    lake.store.put_if_absent(f"{folder}/{_DOCUMENT}", copy.to_bytes())
    return PlacedCopy(folder, copy)


def read_copy(lake: SourceLake, folder: str) -> KeyedCopy:
    """Return the document of a copy; raises LakeError if there is none, or if it is damaged."""
    copy = KeyedCopy.read(lake.store, f"{folder}/{_DOCUMENT}")
    if copy is None:
        raise LakeError(lake.url(folder), "it has no copy of keys", "restore it from a backup")
    return copy


def copies_to_remove(lake: SourceLake) -> list[str]:
    """Return the keys of all copies' files, the documents first.

    The caller holds the lease, and no intent waits for its cut: so nobody needs them any more.
    """
    return sorted(lake.store.list(lake.paths.keyed_copies), key=lambda key: not key.endswith(_DOCUMENT))


def remove_copies(lake: SourceLake, folders: Iterable[str] = ()) -> None:
    """Remove the copies in `folders`, which have entered; without any all copies, called as `copies_to_remove`."""
    within = tuple(f"{folder}/" for folder in folders)
    for key in copies_to_remove(lake):
        if not within or key.startswith(within):
            lake.store.delete(key)


def write_rows(  # noqa: PLR0917  where, what, and its form
    store: Store, folder: str, name: str, version: SchemaVersion, point: Lsn, batches: Iterable[pa.RecordBatch]
) -> SnapshotTable:
    """Write batches (`_lp_text`, `c0`, …) as a durable file, and return what a document says of it; no rows make no file."""
    # Imported here because it imports the compiler, which only a process that copies should load.
    from lakeproof.snapshot.chunk_rows import ChunkRows

    path = f"{name}.parquet"
    rows, decoded = ChunkRows(version, 0, point), DecodedCount()
    file: NewFile | None = None
    writer: pq.ParquetWriter | None = None
    try:
        for batch in batches:
            decoded.add(batch)
            formed = rows.in_lake_form(batch)
            if writer is None:
                file = store.create(f"{folder}/{path}")
                writer = rows.open(file, formed.schema)
            writer.write_batch(formed)
        if writer is None or file is None:
            return SnapshotTable(version, 0, ())
        writer.close()
        file.finish()
    except BaseException:
        abandon(writer, file)
        raise
    total, size = rows.sum, decoded.so_far
    chunk = SnapshotFile(
        path, total.rows, file.bytes_written, file.sha256, total.total, size, (0, None), version.table.key
    )
    return SnapshotTable(version, total.rows, (chunk,))


def keys_batch(version: SchemaVersion, keys: Sequence[tuple[str, ...]]) -> pa.RecordBatch:
    """Return keys, each the exact texts of its columns, as rows whose other columns are NULL.

    Raises CastError for a text that no value of its column has.
    """
    columns = key_columns(version)
    texts = {c.name: pa.array([key[i] for key in keys], pa.string()) for i, c in enumerate(columns)}
    values, overflowing = [], []
    for column in version.columns:
        if column.name not in texts:
            values.append(pa.nulls(len(keys), arrow_type(column)))
            continue
        cast = cast_column(texts[column.name], column).refuse_malformed(column)
        values.append(cast.values)
        overflowing.append((column, texts[column.name], cast))
    names = [TEXT, *(f"c{i}" for i in range(len(values)))]
    return pa.RecordBatch.from_arrays([text_overflow(overflowing, len(keys)), *values], names)
