"""A proof reads as many rows at once as its largest row allows, and puts them into as many buckets as there are rows for."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from lakeproof.lake.rows.hashed import (
    BATCH_ROWS,
    DECODED_BYTES,
    IN_HAND_BYTES,
    TOGETHER_BYTES,
    BucketSums,
    RowsOfBatch,
    decoded_at_once,
)
from lakeproof.names import Oid, TableName
from lakeproof.proof.compare import number_of_buckets
from lakeproof.proof.lake.in_arrow import TooLargeError, _together, buckets_of
from lakeproof.schema import Column, Identity, SchemaVersion


@pytest.mark.parametrize(
    ("rows", "most", "expected"),
    [(0, 1024, 1), (1, 1024, 1), (1000, 1024, 1), (1001, 1024, 2), (10**7, 1024, 1024), (5000, 4, 4), (None, 16, 16)],
)
def test_buckets_follow_the_rows(rows: int | None, most: int, expected: int) -> None:
    """One for each thousand, as many as are configured at most, or if nobody knows how many rows there are."""
    assert number_of_buckets(rows, most) == expected


@pytest.mark.parametrize("row_bytes", [0, 1, 500, 8_192, 1 << 20, 27 << 20, 1 << 30, 1 << 33])
def test_few_large_rows_are_decoded_at_once(row_bytes: int) -> None:
    """One at least, and never more bytes than the bound if there are several."""
    rows = decoded_at_once(row_bytes)
    assert 1 <= rows <= BATCH_ROWS
    assert rows == 1 or rows * row_bytes <= DECODED_BYTES
    assert rows >= min(16, DECODED_BYTES // max(1, row_bytes))


def test_small_batches_are_put_together() -> None:
    """Up to the bounds on rows and bytes; none is lost, and an empty one is nothing."""
    sizes = [0, 1, 2, 40_000, 30_000, 0, 65_536, 5]
    batches = [pa.record_batch([pa.array(range(size), pa.int64())], ["a"]) for size in sizes]
    together = list(_together(batches))
    assert [batch.num_rows for batch in together] == [40_003, 30_000, 65_536, 5]
    assert [v for b in together for v in b.column(0).to_pylist()] == [
        v for b in batches for v in b.column(0).to_pylist()
    ]
    large = [pa.record_batch([pa.array(["x" * (TOGETHER_BYTES // 3)])], ["a"]) for _ in range(5)]
    assert [batch.num_rows for batch in _together(large)] == [2, 2, 1]


def _version() -> SchemaVersion:
    columns = tuple(Column(n, Oid(0), -1, n, kind, i + 1, False) for i, (n, kind) in enumerate(_COLUMNS.items()))
    return SchemaVersion(TableName("public", "t"), Oid(1), Identity.DEFAULT, columns, ("id",))


_COLUMNS = {"id": "int8", "note": "text"}


@pytest.mark.parametrize("rows", [1, 3_000])
def test_several_threads_sum_up_what_one_does(rows: int) -> None:
    """However many batches are in hand, and if one alone is larger than what may be."""
    version, batches = _version(), []
    for first in range(0, 40 * rows, rows):
        ids = range(first, first + rows)
        note = "x" * (IN_HAND_BYTES + 1) if rows == 1 and first % 20 == 0 else "y"
        batch = pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"{note}{i}" for i in ids])], list(_COLUMNS))
        batches.append(RowsOfBatch.of(version, batch))
    one, all_ = BucketSums(version, 64), BucketSums(version, 64)
    for batch_rows in batches:
        one.add(batch_rows)
    all_.add_all(iter(batches))
    assert buckets_of(all_) == buckets_of(one)
    assert sum(bucket.rows for bucket in buckets_of(one).values()) == 40 * rows


def test_an_error_of_the_reader_or_of_a_thread_is_raised() -> None:
    """Nothing is left running: whoever asks gets the error, as of a single thread."""
    version = _version()
    good = RowsOfBatch.of(version, pa.record_batch([pa.array([1]), pa.array(["a"])], list(_COLUMNS)))

    def refused() -> Iterator[RowsOfBatch]:
        yield from [good, good]
        raise TooLargeError

    with pytest.raises(TooLargeError):
        BucketSums(version, 4).add_all(refused())
    bad = RowsOfBatch({"id": pa.array(["a"]), "note": pa.array(["b"])}, good.hidden, 1, 8)
    with pytest.raises(pa.ArrowInvalid):
        BucketSums(version, 4).add_all([bad, good])
