"""A table's rows before a range, found by their keys and read without Spark: in the lake, or in a snapshot's files.

What the rows are needed for does not belong here (`lakeproof.lake.fold.holders`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeproof.hidden_columns import FROM
from lakeproof.lake.columns import column_names, merge_key
from lakeproof.lake.delta.arrow_rows import BATCH_ROWS, DeltaRows
from lakeproof.lake.delta.files import data_file
from lakeproof.lake.delta.search import KeyLookup, Rows, find_places
from lakeproof.lake.delta.state import read_state
from lakeproof.lake.fold.holders import NotFolded
from lakeproof.landing.file_columns import file_names
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.store import Store

# The most bytes of all fetched rows together.
FETCHED_BYTES_MAX = 64 << 20
_TOO_LARGE = f"the rows whose values updates left out take more than {FETCHED_BYTES_MAX >> 20} MiB"


@dataclass(frozen=True, slots=True)
class LakeBase:
    """The rows of current at a version."""

    path: str
    version: int
    schema: SchemaVersion

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys; raises NotFolded if they are too large."""
        state = read_state(self.path, self.version)
        rows, parts = DeltaRows.of_state(state), list[pa.RecordBatch]()
        size = 0
        for path, numbers in find_places(state, merge_key(self.schema), keys).rows.items():
            for batch, _ in rows.at_places(data_file(state.files[path]).path, numbers, columns):
                size += batch.nbytes
                if size > FETCHED_BYTES_MAX:
                    raise NotFolded(_TOO_LARGE)
                parts.append(batch)
        schema = pa.schema([rows.schema.field(name) for name in columns])
        return pa.Table.from_batches(parts, schema)


@dataclass(frozen=True, slots=True)
class ChunkBase:
    """The rows of a snapshot's files, of which the folder `key` has them."""

    store: Store
    key: str
    schema: SchemaVersion
    chunks: Sequence[SnapshotFile]

    def places(self, keys: pa.Table) -> Iterator[tuple[SnapshotFile, Rows, Rows]]:
        """Yield each file that has rows with one of the keys, their numbers, and the numbers of their keys."""
        key = merge_key(self.schema)
        in_file = dict(zip(column_names(self.schema), file_names(self.schema), strict=True))
        lookup, names = KeyLookup.of(key, keys), [in_file[name] for name in key]
        for chunk in self.chunks:
            with parquet_file(self.store, f"{self.key}/{chunk.path}") as parquet:
                numbers, which = lookup.in_file(parquet, names)
            if len(numbers):
                yield chunk, numbers, which

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys; raises NotFolded if they are too large."""
        in_file = dict(zip(column_names(self.schema), file_names(self.schema), strict=True))
        own = [in_file.get(name, name) for name in columns if name != FROM]
        size, parts = 0, list[pa.Table]()
        for chunk, numbers, _ in self.places(keys):
            first = 0
            with parquet_file(self.store, f"{self.key}/{chunk.path}") as parquet:
                for batch in parquet.iter_batches(BATCH_ROWS, columns=own):
                    low, high = np.searchsorted(numbers, [first, first + batch.num_rows])
                    rows = batch.take(pa.array(numbers[low:high] - first))
                    first += batch.num_rows
                    size += rows.nbytes
                    if size > FETCHED_BYTES_MAX:
                        raise NotFolded(_TOO_LARGE)
                    nothing = pa.nulls(rows.num_rows, pa.string())
                    values = {n: nothing if n == FROM else rows.column(in_file.get(n, n)) for n in columns}
                    parts.append(pa.table(values))
        if not parts:
            raise NotFolded("the holder of an unchanged value is not in the snapshot")
        return pa.concat_tables(parts)
