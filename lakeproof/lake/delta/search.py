"""Rows by their keys in a version of a table, or in a snapshot's files: their places, and the rows, without Spark.

`committer` and `lakeproof.lake.fold` use the places; Spark finds very many of them (`apply`).

    file    left out if the statistics of its entry in the log say that a whole-number key can't be in it
    group   a row group is left out likewise, by the file's footer
    rows    the key columns of the rest are read; of several columns, each is read by the rows that the ones before left

Cost: key columns of the files that may have a key, one row group at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.hidden_columns import FROM
from lakeproof.lake.columns import column_names
from lakeproof.lake.delta.arrow_rows import DeltaRows, widened
from lakeproof.lake.delta.files.data_files import data_file, deleted_rows, opened_data_file
from lakeproof.lake.delta.files.statistics import Bounds, group_bounds
from lakeproof.lake.delta.log.commits import Action
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.lake.rows.change import FIRST, Numbers, in_memory
from lakeproof.lake.rows.file_rows import FileRows, names_in_files
from lakeproof.lake.rows.hashed import BATCH_ROWS
from lakeproof.landing.segments.reader import verify
from lakeproof.landing.segments.segment import ROW_GROUP_BYTES
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile
from lakeproof.storage.folder import Folder
from lakeproof.storage.parquet import parquet_file
from lakeproof.storage.store import Store

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Rows of a table: the numbers of each file's rows, sorted, by the file's path in the log; and each row's key.

    `keys` are the numbers of the keys among those that were looked for, in the order of the files and rows.
    """

    rows: Mapping[str, Numbers]
    keys: Numbers

    def with_rows(self, others: Mapping[str, Numbers]) -> RowPlaces:
        """Return these rows and others, of which nobody asks for their keys."""
        both = {path: np.union1d(numbers, self.rows.get(path, _NOTHING)) for path, numbers in others.items()}
        return replace(self, rows={**self.rows, **both})


def find_places(state: TableState, key: Sequence[str], keys: pa.Table, *, by_statistics: bool = True) -> RowPlaces:
    """Find the live rows of a version that have one of `keys`, which has each key once; NULL is a value like any other.

    `by_statistics`: believe what the log and the footers say of a file's values. Raises LakeError about a data file that is
    missing or damaged.
    """
    lookup, physical, table = KeyLookup.of(key, keys), state.physical(), Folder.at(state.path)
    if not by_statistics:
        lookup = replace(lookup, whole=None)
    names = [physical[name] for name in key]
    rows: dict[str, Numbers] = {}
    matched: list[Numbers] = []
    for path, entry in state.files.items():
        if keys.num_rows and lookup.may_be_within(bounds_in_log(entry, names[0])):
            numbers, which = _of_file(table, entry, names, lookup)
            if len(numbers):
                rows[path] = numbers
                matched.append(which)
    return RowPlaces(rows, np.concatenate(matched) if matched else _NOTHING)


def places_below(state: TableState, column: str, bound: int) -> Mapping[str, Numbers]:
    """Find the live rows of a version in which a column of whole numbers is less than `bound`; raises as `find_places`."""
    physical, table = state.physical()[column], Folder.at(state.path)
    result: dict[str, Numbers] = {}
    for path, entry in state.files.items():
        bounds, file = bounds_in_log(entry, physical), data_file(entry)
        if bounds is not None and bounds[0] >= bound:
            continue
        with opened_data_file(table, file.path) as parquet:
            values = parquet.read([physical]).column(0)
        numbers = np.flatnonzero(pc.fill_null(pc.less(values, bound), fill_value=False).to_numpy())
        if file.deleted is not None:
            numbers = np.setdiff1d(numbers, deleted_rows(table, file.deleted), assume_unique=True)
        if len(numbers):
            result[path] = numbers
    return result


def bounds_in_log(entry: Action, physical: str) -> Bounds | None:
    """Return the least and greatest value of a column in a file, by its entry; None if that does not say."""
    try:
        stats = json.loads(entry["stats"])
        return stats["minValues"][physical], stats["maxValues"][physical]
    except (KeyError, ValueError, TypeError):
        return None


def _of_file(table: Folder, entry: Action, names: Sequence[str], lookup: KeyLookup) -> tuple[Numbers, Numbers]:
    """Return the numbers of a file's live rows that have one of the keys, and their keys' numbers."""
    file = data_file(entry)
    with opened_data_file(table, file.path) as parquet:
        matched, keys = lookup.in_file(parquet, names)
    if file.deleted is not None and len(matched):
        live = ~np.isin(matched, deleted_rows(table, file.deleted))
        matched, keys = matched[live], keys[live]
    return matched, keys


def _columns(file: pq.ParquetFile, group: int, names: Sequence[str]) -> Iterator[pa.ChunkedArray]:
    """Give each column of a row group when it is asked for; NULLs for a column that the file lacks."""
    existing = set(file.schema_arrow.names)
    for name in names:
        if name in existing:
            yield file.read_row_group(group, columns=[name]).column(0)
        else:
            yield pa.chunked_array([pa.nulls(file.metadata.row_group(group).num_rows)])


@dataclass(frozen=True, slots=True)
class _Level:
    """One key column: its distinct values, and which of them follow which of the keys' beginnings.

    `pairs` are sorted: number of the beginning × number of values + number of the value. Its place there is the number of
    the longer beginning.
    """

    values: pa.Array
    pairs: Numbers


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Keys in the form in which many rows are compared with them; `order`: number of a whole key → its place in the keys.

    `whole` are the first column's values in order, if they are whole numbers without NULL; else None.
    """

    levels: Sequence[_Level]
    order: Numbers
    whole: Numbers | None

    @classmethod
    def of(cls, key: Sequence[str], keys: pa.Table) -> KeyLookup:
        levels: list[_Level] = []
        beginnings = np.zeros(keys.num_rows, np.int64)
        for name in key:
            encoded = keys.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
            values, codes = encoded.dictionary, encoded.indices.to_numpy().astype(np.int64)
            pairs, beginnings = np.unique(beginnings * max(1, len(values)) + codes, return_inverse=True)
            levels.append(_Level(values, pairs))
        order = np.empty(keys.num_rows, np.int64)
        order[beginnings] = np.arange(keys.num_rows)
        first = keys.column(key[0])
        whole = None
        if pa.types.is_integer(first.type) and not first.null_count:
            whole = np.sort(first.to_numpy()).astype(np.int64)
        return cls(levels, order, whole)

    def may_be_within(self, bounds: Bounds | None) -> bool:
        """True unless the bounds of the first column exclude every key."""
        if self.whole is None or bounds is None:
            return True
        low, high = bounds
        place = int(np.searchsorted(self.whole, low))
        return place < len(self.whole) and bool(self.whole[place] <= high)

    def in_file(self, parquet: pq.ParquetFile, names: Sequence[str]) -> tuple[Numbers, Numbers]:
        """Return the numbers of a file's rows that have one of the keys, and the keys' places; `names`: the key's, there."""
        numbers, which, first = [_NOTHING], [_NOTHING], 0
        for group in range(parquet.num_row_groups):
            if self.may_be_within(group_bounds(parquet.metadata, group, names[0])):
                places, keys = self.match(_columns(parquet, group, names))
                numbers.append(places + first)
                which.append(keys)
            first += parquet.metadata.row_group(group).num_rows
        return np.concatenate(numbers), np.concatenate(which)

    def match(self, columns: Iterator[pa.ChunkedArray]) -> tuple[Numbers, Numbers]:
        """Return the places of the rows that have one of the keys, and the keys' places."""
        places: Numbers | None = None
        beginnings = _NOTHING
        for level in self.levels:
            column = next(columns)
            column = column if places is None else column.take(pa.array(places))
            codes = pc.index_in(_as(column, level.values.type), value_set=level.values).combine_chunks()
            hit = np.flatnonzero(codes.is_valid().to_numpy(zero_copy_only=False))
            matched_codes = codes.take(pa.array(hit)).to_numpy().astype(np.int64)
            before = np.zeros(len(hit), np.int64) if places is None else beginnings[hit]
            pairs = before * max(1, len(level.values)) + matched_codes
            numbers = np.searchsorted(level.pairs, pairs)
            numbers = np.minimum(numbers, len(level.pairs) - 1)
            right = level.pairs[numbers] == pairs
            places = hit[right] if places is None else places[hit[right]]
            beginnings = numbers[right]
            if not len(places):
                return _NOTHING, _NOTHING
        return (_NOTHING if places is None else places), self.order[beginnings]


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    return pa.chunked_array([widened(chunk, kind) for chunk in column.chunks], kind)


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
        rows = DeltaRows.of_state(state)
        batches = (
            batch
            for path, numbers in find_places(state, keys.column_names, keys).rows.items()
            for batch, _ in rows.at_places(data_file(state.files[path]).path, numbers, columns)
        )
        return pa.Table.from_batches(in_memory(batches, FETCHED_BYTES_MAX, _TOO_LARGE), rows.schema_of(columns))

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
        rows = (part for chunk, numbers, _ in self.places(keys) for part in self.rows(chunk, columns, numbers))
        parts = in_memory(rows, FETCHED_BYTES_MAX, _TOO_LARGE)
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
