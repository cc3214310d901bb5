"""The lake's side of a proof in this process: buckets and keys of one table at one Delta version, from Arrow.

The same by Spark is in `form`; choosing between the two belongs to `side`, the form of a row to
`lakeproof.values.exact_texts`.

Files are read some rows at a time, so memory does not follow the table; time does, so a table that turns out to be larger
than `BYTES_MAX` is given up (`TooLargeError`).
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import UnreadableRowsError
from lakeproof.hidden_columns import TEXT, scratch
from lakeproof.lake.delta.arrow_rows import BATCH_ROWS, DeltaRows
from lakeproof.proof.compare import Bucket, Buckets, ProofRow
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.exact_kinds import key_columns, whole_key
from lakeproof.values.exact_texts import HiddenTexts, exact_texts, key_bits, row_bits
from lakeproof.values.md5 import Bits
from lakeproof.values.types import arrow_type

# A table of more decoded bytes than this is read by Spark, which has all cores for one table.
BYTES_MAX = 1 << 30
# The most bytes of rows that are looked at together; and of rows that are decoded at once, if each were the largest.
TOGETHER_BYTES = 32 << 20
DECODED_BYTES = 256 << 20
# Rows that wait to be hashed, or are: their texts are once or twice as much again, of `_THREADS` batches at a time.
IN_HAND_BYTES = 64 << 20
_THREADS = min(4, len(os.sched_getaffinity(0)))
# So many rows are decoded at once even if a few of them are large, since each time costs as much as a thousand small rows.
_DECODED_ROWS_MIN = 16
_HALF = 30  # bits of a hash in each of its two sums: of a batch's rows each is exact as a float
_ROWS_AT_ONCE = 10_000
_BUCKET, _HASH = scratch("bucket"), scratch("hash")


class TooLargeError(Exception):
    """A table that is read by Spark, since it has more bytes than this process reads of one."""


class BucketSums:
    """The count of rows and the sum of their hashes in each bucket, added up over batches; rows may be taken out again."""

    def __init__(self, version: SchemaVersion, buckets: int) -> None:
        self._version, self._buckets = version, buckets
        self._sums = np.zeros((3, buckets), np.int64)

    def add(self, rows: RowsOfBatch, sign: int = 1) -> None:
        """Add a batch's rows, or with the sign -1 take them out."""
        self._sums += sign * self._of(rows)

    def add_all(self, batches: Iterable[RowsOfBatch]) -> None:
        """Add batches: `_THREADS` hash while this one reads on, at most `IN_HAND_BYTES` ahead of them."""
        waiting, in_hand = deque[tuple[Future[npt.NDArray[np.int64]], int]](), 0
        last = None
        with ThreadPoolExecutor(_THREADS, "lakeproof-hash") as pool:
            for rows in batches:
                if last is not None:
                    waiting.append((pool.submit(self._of, last), last.bytes))
                    in_hand += last.bytes
                while waiting and (waiting[0][0].done() or in_hand + rows.bytes > IN_HAND_BYTES):
                    future, size = waiting.popleft()
                    self._sums += future.result()
                    in_hand -= size
                last = rows
            # A small table is one batch, and needs no other thread.
            if last is not None:
                self.add(last)
            for future, _ in waiting:
                self._sums += future.result()

    def _of(self, rows: RowsOfBatch) -> npt.NDArray[np.int64]:
        bits, bucket = rows.hashed(self._version, self._buckets)
        weights = (None, bits & ((1 << _HALF) - 1), bits >> _HALF)
        return np.stack([np.bincount(bucket, weight, self._buckets).astype(np.int64) for weight in weights])

    def sums(self) -> Buckets:
        """Return the buckets that have rows."""
        rows, low, high = self._sums
        filled = np.flatnonzero(self._sums.any(axis=0)).tolist()
        return {b: Bucket(rows=int(rows[b]), total=(int(high[b]) << _HALF) + int(low[b])) for b in filled}


@dataclass(frozen=True, slots=True)
class RowsOfBatch:
    """A batch's columns by name under the types of the table's kinds, and its hidden texts."""

    columns: Mapping[str, pa.Array]
    hidden: HiddenTexts
    rows: int
    bytes: int

    @classmethod
    def of(cls, version: SchemaVersion, batch: pa.RecordBatch) -> RowsOfBatch:
        """Return the rows of a batch that has the columns of `version`, and `_lp_text` if its table has that."""
        columns = {c.name: of_kind(batch.column(c.name), c) for c in version.columns}
        texts = batch.column(TEXT) if TEXT in batch.schema.names else None
        return cls(columns, HiddenTexts.of(texts), batch.num_rows, batch.nbytes)

    def hashed(self, version: SchemaVersion, buckets: int) -> tuple[Bits, npt.NDArray[np.int64]]:
        """Return the hash of each row, and its bucket."""
        bits = row_bits(version, self.columns, self.hidden, self.rows)
        return bits, self.buckets(version, buckets, bits)

    def buckets(self, version: SchemaVersion, buckets: int, bits: Bits | None = None) -> npt.NDArray[np.int64]:
        """Return the bucket of each row; `bits` are the rows' hashes, if they were computed."""
        number = None if version.is_bag else whole_key(version)
        if buckets == 1:
            of: Bits = np.zeros(self.rows, np.int64)
        elif number is not None:
            of = pc.fill_null(self.columns[number.name].cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
        elif not version.is_bag:
            of = key_bits(version, self.columns, self.hidden, self.rows)
        else:
            of = row_bits(version, self.columns, self.hidden, self.rows) if bits is None else bits
        return np.mod(of, buckets)

    def key(self, version: SchemaVersion) -> list[pa.Array]:
        """Return the exact texts of each column of the key, as octets."""
        texts = (exact_texts(c, self.columns[c.name], self.hidden) for c in key_columns(version))
        return [text.cast(pa.binary()) for text in texts]


def proof_rows(version: SchemaVersion, rows: RowsOfBatch) -> list[ProofRow]:
    """Return the rows as a proof compares them."""
    bits, _ = rows.hashed(version, 1)
    return list(_rows_of([pa.array(bits), *rows.key(version)]))


def decoded_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Iterator[tuple[str | None, ...]]:
    """Yield each row's key, whose columns are octets."""
    return zip(*(_decoded(column.to_pylist()) for column in columns), strict=True)


def _rows_of(columns: Sequence[pa.Array]) -> Iterator[ProofRow]:
    """Yield rows of their hashes and their keys' columns."""
    hashes, *texts = columns
    keys: Iterable[tuple[str | None, ...]] = decoded_keys(texts) if texts else [()] * len(hashes)
    return (ProofRow(hash=bits, key=key) for bits, key in zip(hashes.to_pylist(), keys, strict=True))


def read_columns(version: SchemaVersion, delta: DeltaRows) -> list[str]:
    """Return the columns of a table that its rows' forms are made of."""
    return [*(c.name for c in version.columns), *(name for name in delta.schema.names if name == TEXT)]


def read_rows(delta: DeltaRows, names: Sequence[str], row_bytes: int, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a table whose largest row takes `row_bytes`, as many together as `TOGETHER_BYTES` have room for.

    Raises UnreadableRowsError, and TooLargeError once they are more than `bytes_max` bytes.
    """
    size = 0
    for rows in _together(delta.batches(names, decoded_at_once(row_bytes))):
        size += rows.nbytes
        if size > bytes_max:
            raise TooLargeError
        yield rows


def decoded_at_once(row_bytes: int) -> int:
    """Return how many rows are decoded at once if the largest has so many bytes."""
    few = min(_DECODED_ROWS_MIN, DECODED_BYTES // max(1, row_bytes))
    return max(1, few, min(BATCH_ROWS, TOGETHER_BYTES // max(1, row_bytes)))


def _together(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together."""
    parts, rows, size = list[pa.RecordBatch](), 0, 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if parts and (size + batch.nbytes > TOGETHER_BYTES or rows + batch.num_rows > BATCH_ROWS):
            yield _one(parts)
            parts, rows, size = [], 0, 0
        parts.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
    if parts:
        yield _one(parts)


def _one(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)


@dataclass(frozen=True, slots=True)
class ArrowSide:
    """A table's current at a version. `version` has the lake's names; `row_bytes` is the most that a row takes."""

    delta: DeltaRows
    version: SchemaVersion
    row_bytes: int

    def buckets(self, buckets: int) -> Buckets:
        """Return the buckets that have rows; raises UnreadableRowsError if a file can't be read, TooLargeError."""
        sums = BucketSums(self.version, buckets)
        sums.add_all(self._batches())
        return sums.sums()

    def rows(self, buckets: int, chosen: Sequence[int]) -> Iterator[tuple[int, ProofRow]]:
        """Yield each row of the chosen buckets, in their order: its hash, and its key's exact texts. Raises as `buckets`."""
        parts = [part for rows in self._batches() if (part := self._chosen(rows, buckets, chosen)).num_rows]
        if not parts:
            return
        table = pa.Table.from_batches(parts)
        table = table.take(pc.sort_indices(table, [(_BUCKET, "ascending")]))
        for batch in table.to_batches(_ROWS_AT_ONCE):
            bucket_of = batch.column(0).to_pylist()
            yield from zip(bucket_of, _rows_of(batch.columns[1:]), strict=True)

    def _chosen(self, rows: RowsOfBatch, buckets: int, chosen: Sequence[int]) -> pa.RecordBatch:
        bits, bucket = rows.hashed(self.version, buckets)
        columns = [pa.array(bucket), pa.array(bits), *rows.key(self.version)]
        names = [_BUCKET, _HASH, *(scratch(f"key_{i}") for i in range(len(columns) - 2))]
        return pa.record_batch(columns, names).filter(pa.array(np.isin(bucket, chosen)))

    def _batches(self) -> Iterator[RowsOfBatch]:
        # Files are smaller than their rows decoded, most often: what is certainly too large is not begun.
        if sum(file.bytes for file in self.delta.files) > BYTES_MAX:
            raise TooLargeError
        names = read_columns(self.version, self.delta)
        for batch in read_rows(self.delta, names, self.row_bytes, BYTES_MAX):
            yield RowsOfBatch.of(self.version, batch)


def of_kind(values: pa.Array, column: Column) -> pa.Array:
    """Return values under the type of their column's kind."""
    kind = arrow_type(column)
    if values.type.equals(kind) or pa.types.is_decimal(kind) or pa.types.is_integer(kind):
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        reason = f"it has the type {values.type}, and its kind is {column.kind}"
        raise UnreadableRowsError(f"column {column.name}", reason, "run `lakeproof prove --repair`") from None


def _decoded(texts: Iterable[bytes | None]) -> list[str | None]:
    return [None if text is None else text.decode(errors="replace") for text in texts]
