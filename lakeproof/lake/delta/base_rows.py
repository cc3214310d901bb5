"""A table's rows before a range, found by their keys and read without Spark: in the lake, or in a snapshot's files.

`lakeproof.lake.fold` uses the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.hidden_columns import FROM
from lakeproof.lake.columns import column_names
from lakeproof.lake.delta.arrow_rows import BATCH_ROWS, DeltaRows
from lakeproof.lake.delta.committer import Unsupported
from lakeproof.lake.delta.files.data_files import data_file
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.delta.search import KeyLookup, find_places
from lakeproof.lake.rows.file_rows import FileRows, names_in_files
from lakeproof.lake.rows.keys_in_memory import FIRST, Numbers
from lakeproof.landing.segments.reader import verify
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.store import Store

# The most bytes of all fetched rows together.
FETCHED_BYTES_MAX = 64 << 20
_TOO_LARGE = f"the rows that the changes are added up with take more than {FETCHED_BYTES_MAX >> 20} MiB"


@dataclass(frozen=True, slots=True)
class LakeBase:
    """The rows of current at a version."""

    path: str
    version: int

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys; raises `Unsupported` if they are too large."""
        state = read_state(self.path, self.version)
        rows, parts = DeltaRows.of_state(state), list[pa.RecordBatch]()
        size = 0
        for path, numbers in find_places(state, keys.column_names, keys).rows.items():
            for batch, _ in rows.at_places(data_file(state.files[path]).path, numbers, columns):
                size += batch.nbytes
                if size > FETCHED_BYTES_MAX:
                    raise Unsupported(_TOO_LARGE)
                parts.append(batch)
        schema = pa.schema([rows.schema.field(name) for name in columns])
        return pa.Table.from_batches(parts, schema)

    def counts(self, keys: pa.Table) -> Numbers:
        """Return how many rows have each of the keys."""
        state = read_state(self.path, self.version)
        return np.bincount(find_places(state, keys.column_names, keys).keys, minlength=keys.num_rows)


@dataclass(frozen=True, slots=True)
class ChunkBase:
    """The rows of a snapshot's files, of which the folder `key` has them; `verified` are those that were read whole once."""

    store: Store
    key: str
    schema: SchemaVersion
    chunks: Sequence[SnapshotFile]
    verified: set[str] = field(default_factory=set)

    def url(self, chunk: SnapshotFile) -> str:
        """Return the URL of a file."""
        return self.store.url(f"{self.key}/{chunk.path}")

    def places(self, keys: pa.Table) -> Iterator[tuple[SnapshotFile, Numbers, Numbers]]:
        """Yield each file that has rows with one of the keys, their numbers in order, and the numbers of their keys."""
        key = [name for name in keys.column_names if name != FIRST]
        lookup, is_stored = KeyLookup.of(key, keys), set(key) <= set(column_names(self.schema))
        for chunk in self.chunks:
            if is_stored:
                with self._opened(chunk) as parquet:
                    numbers, which = lookup.in_file(parquet, list(names_in_files(self.schema, key).values()))
            else:
                numbers, which = self._matched(chunk, key, lookup)
            if len(numbers):
                yield chunk, numbers, which

    def fetch(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows that have one of the keys; raises `Unsupported` if they are too large."""
        size, parts = 0, list[pa.Table]()
        for chunk, numbers, _ in self.places(keys):
            for rows in self.rows(chunk, columns, numbers):
                size += rows.nbytes
                if size > FETCHED_BYTES_MAX:
                    raise Unsupported(_TOO_LARGE)
                parts.append(rows)
        if not parts:
            return pa.table({name: pa.array([], pa.string()) for name in columns})
        return pa.concat_tables(parts)

    def counts(self, keys: pa.Table) -> Numbers:
        """Return how many rows have each of the keys."""
        result = np.zeros(keys.num_rows, np.int64)
        for _, _, which in self.places(keys):
            result += np.bincount(which, minlength=keys.num_rows)
        return result

    def rows(self, chunk: SnapshotFile, columns: Sequence[str], chosen: Numbers | None = None) -> Iterator[pa.Table]:
        """Yield a file's rows, some at a time, or of these the ones with the numbers `chosen`, which are in order."""
        source, first = FileRows(self.schema, columns), 0
        at_once = max(1, min(BATCH_ROWS, ROW_GROUP_BYTES // max(1, chunk.decoded.row)))
        with self._opened(chunk) as parquet:
            for batch in parquet.iter_batches(at_once, columns=source.needed):
                rows = batch
                if chosen is not None:
                    low, high = np.searchsorted(chosen, [first, first + batch.num_rows])
                    rows = batch.take(pa.array(chosen[low:high] - first))
                first += batch.num_rows
                if rows.num_rows:
                    values = source.of(rows)
                    nothing = {FROM: pa.nulls(rows.num_rows, pa.string())} if FROM in columns else {}
                    yield pa.table({**values, **nothing}).select(list(columns))

    def _matched(self, chunk: SnapshotFile, key: Sequence[str], lookup: KeyLookup) -> tuple[Numbers, Numbers]:
        """Return the numbers of a file's rows that have one of the keys, which are computed, and the keys' numbers."""
        numbers, which, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
        for rows in self.rows(chunk, key):
            places, keys = lookup.match(rows.column(name) for name in key)
            numbers.append(places + first)
            which.append(keys)
            first += rows.num_rows
        return np.concatenate(numbers), np.concatenate(which)

    def _opened(self, chunk: SnapshotFile) -> AbstractContextManager[pq.ParquetFile]:
        """Open a file; verified before, since a flipped bit may well be a readable, other value."""
        key = f"{self.key}/{chunk.path}"
        if chunk.path not in self.verified:
            verify_chunk(self.store, key, chunk)
            self.verified.add(chunk.path)
        return parquet_file(self.store, key)


def verify_chunk(store: Store, key: str, chunk: SnapshotFile) -> None:
    """Raise LakeError if a snapshot's file is not as its writer recorded."""
    verify(store, key, f"snapshot file {store.url(key)}", chunk.bytes, chunk.sha256)
