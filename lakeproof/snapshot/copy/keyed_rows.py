"""The files of a copy of single keys: rows and keys as Parquet, in the form of a snapshot's chunk.

The copy's document and its end belong to `keyed_copy`, which processes without Arrow read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakeproof.hidden_columns import TEXT
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.store import Store
from lakeproof.values.cast import cast_column, text_overflow
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import arrow_type


def write_keyed_rows(  # noqa: PLR0917  where, what, and its form
    store: Store, folder: str, name: str, version: SchemaVersion, point: Lsn, batches: Iterable[pa.RecordBatch]
) -> SnapshotTable:
    """Write batches (`_lp_text`, `c0`, …) as a durable file, and return what a document says of it; no rows make no file."""
    # Imported here because it imports the compiler, which only a process that copies should load.
    from lakeproof.snapshot.copy.chunk_rows import ChunkFile, ChunkRows

    file = ChunkFile(store, folder, f"{name}.parquet", ChunkRows(version, 0, point))
    try:
        for batch in batches:
            file.write(batch)
        chunk = file.finish((0, None), version.table.key)
    except BaseException:
        file.abandon()
        raise
    return SnapshotTable.of(version, [] if chunk is None else [chunk])


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
