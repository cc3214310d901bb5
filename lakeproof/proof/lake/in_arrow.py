"""The lake's side of a proof in this process: buckets and keys of one table at one Delta version, from Arrow.

The same by Spark is in `form`; choosing between the two belongs to `side`, the form of a row to
`lakeproof.values.exact_texts`.

Files are read some rows at a time, so memory does not follow the table; time does, so a table that turns out to be larger
than `BYTES_MAX` is given up (`TooLargeError`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import TEXT, scratch
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.rows.hashed import (
    BATCH_ROWS,
    TOGETHER_BYTES,
    BucketSums,
    RowsOfBatch,
    decoded_at_once,
)
from lakeproof.proof.compare import Bucket, Buckets, ProofRow
from lakeproof.schema import SchemaVersion

# A table of more decoded bytes than this is read by Spark, which has all cores for one table.
BYTES_MAX = 1 << 30
_ROWS_AT_ONCE = 10_000
_BUCKET, _HASH = scratch("bucket"), scratch("hash")


class TooLargeError(Exception):
    """A table that is read by Spark, since it has more bytes than this process reads of one."""


def buckets_of(sums: BucketSums) -> Buckets:
    """Return the buckets that have rows, as a proof compares them."""
    return {bucket: Bucket(rows=rows, total=total) for bucket, rows, total in sums.filled()}


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
        return buckets_of(sums)

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


def _decoded(texts: Iterable[bytes | None]) -> list[str | None]:
    return [None if text is None else text.decode(errors="replace") for text in texts]
