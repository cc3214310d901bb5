"""A chunk's rows in the form in which history and current can have its file as it is: names, hidden columns, their sum.

    the table's columns   by the names of `lakeproof.landing.segments.file_columns`
    `_lp_text`            as it is
    `_lp_ord`             below every change, by chunk and row
    `_lp_lsn`, `_lp_op`   the consistent point and `snapshot`, in every row: a dictionary of one value

History's other columns are NULL in a snapshot's rows, so the file lacks them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.hidden_columns import LSN, OP, ORD, TEXT
from lakeproof.landing.segments.decoded_size import DecodedCount
from lakeproof.landing.segments.file_columns import columns_with_statistics, file_names
from lakeproof.landing.segments.row_order import chunk_ordinal
from lakeproof.landing.segments.row_sums import RowSum
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile
from lakeproof.storage.parquet import abandon, open_parquet
from lakeproof.storage.store import NewFile, Store

_SNAPSHOT = "snapshot"
_CONSTANT = (LSN, OP)


class ChunkRows:
    """Gives the batches of one chunk their names and hidden columns, in order, and sums them."""

    def __init__(self, version: SchemaVersion, number: int, consistent_point: Lsn) -> None:
        self._version = version
        self._names = file_names(version)
        self._next = chunk_ordinal(number)
        self._point = pa.scalar(int(consistent_point), pa.int64())
        numbers = {name: c.attnum for name, c in zip(self._names, version.columns, strict=True)}
        self.sum = RowSum(numbers, {LSN: self._point, OP: pa.scalar(_SNAPSHOT)})

    def in_lake_form(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of `_lp_text`, `c0`, … with the names and columns that tables have."""
        rows = batch.num_rows
        ordinals = pa.array(np.arange(self._next, self._next + rows, dtype=np.int64))
        self._next += rows
        own = [batch.column(f"c{i}") for i in range(len(self._names))]
        summed = pa.RecordBatch.from_arrays([*own, batch.column(TEXT), ordinals], [*self._names, TEXT, ORD])
        self.sum.add(summed)
        op = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([_SNAPSHOT]))
        columns = [*summed.columns, pa.repeat(self._point, rows), op]
        return pa.RecordBatch.from_arrays(columns, [*summed.schema.names, *_CONSTANT])

    def open(self, file: NewFile, schema: pa.Schema) -> pq.ParquetWriter:
        """Return a writer of such batches into `file`."""
        return open_parquet(
            file, schema, dictionaries=_CONSTANT, statistics=columns_with_statistics(self._version, schema)
        )


class ChunkFile:
    """The file of a chunk, created with its first rows: 10,000 empty tables create none."""

    def __init__(self, store: Store, folder: str, path: str, rows: ChunkRows) -> None:
        self.file: NewFile | None = None
        self._store, self._folder, self._path = store, folder, path
        self._rows = rows
        self._decoded = DecodedCount()
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Append a batch of `_lp_text`, `c0`, … as a row group."""
        self._decoded.add(batch)
        formed = self._rows.in_lake_form(batch)
        if self._writer is None:
            self.file = self._store.create(f"{self._folder}/{self._path}")
            self._writer = self._rows.open(self.file, formed.schema)
        self._writer.write_batch(formed)

    def finish(self, pages: tuple[int, int | None], leaf: str) -> SnapshotFile | None:
        """Make the file's contents durable, and return its entry; None if there is no file."""
        if self._writer is None or self.file is None:
            return None
        self._writer.close()
        self.file.finish()
        rows, size, digest = self._rows.sum, self.file.bytes_written, self.file.sha256
        return SnapshotFile(self._path, rows.rows, size, digest, rows.total, self._decoded.so_far, pages, leaf)

    def abandon(self) -> None:
        """Remove the file."""
        abandon(self._writer, self.file)
