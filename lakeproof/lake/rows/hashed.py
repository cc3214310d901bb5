"""Rows as they are hashed for a comparison, in Arrow: each row's hash, its bucket, and the sums of each bucket.

Reading rows belongs to `lake.delta.arrow_rows`, the form of a row to `lakeproof.values.exact_texts`, deciding what a
difference means to whoever compares: a proof (`lakeproof.proof`), or a copy of a table that the lake has.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.errors import UnreadableRowsError
from lakeproof.hidden_columns import TEXT
from lakeproof.lake.rows.change import Mask
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.exact_kinds import key_columns, whole_key
from lakeproof.values.exact_texts import HiddenTexts, exact_texts, key_bits, row_bits
from lakeproof.values.md5 import Bits
from lakeproof.values.types import arrow_type

# The most bytes of rows that are looked at together; and of rows that are decoded at once, if each were the largest.
TOGETHER_BYTES = 32 << 20
DECODED_BYTES = 256 << 20
# Rows that wait to be hashed, or are: their texts are once or twice as much again, of `_THREADS` batches at a time.
IN_HAND_BYTES = 64 << 20
_THREADS = min(4, len(os.sched_getaffinity(0)))
BATCH_ROWS = 65_536
# So many rows are decoded at once even if a few of them are large, since each time costs as much as a thousand small rows.
_DECODED_ROWS_MIN = 16
_HALF = 30  # bits of a hash in each of its two sums: of a batch's rows each is exact as a float


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

    def filled(self) -> Iterator[tuple[int, int, int]]:
        """Yield each bucket that has rows: its number, how many, and the sum of their hashes."""
        rows, low, high = self._sums
        for bucket in np.flatnonzero(self._sums.any(axis=0)).tolist():
            yield bucket, int(rows[bucket]), (int(high[bucket]) << _HALF) + int(low[bucket])

    def differing(self, other: BucketSums) -> Mask:
        """Return which buckets are not the same in both."""
        mask: Mask = (self._sums != other._sums).any(axis=0)
        return mask


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


def decoded_at_once(row_bytes: int) -> int:
    """Return how many rows are decoded at once if the largest has so many bytes."""
    few = min(_DECODED_ROWS_MIN, DECODED_BYTES // max(1, row_bytes))
    return max(1, few, min(BATCH_ROWS, TOGETHER_BYTES // max(1, row_bytes)))
