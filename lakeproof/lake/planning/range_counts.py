"""Counts the rows of each kind in a table's range of the landing, without Spark.

The counts of whole files are in the manifests; a file is read only if a range has a part of it, and Arrow is imported only
then: a plan, which sensors make at each tick, mostly needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from lakeproof.change_counts import ChangeCounts
from lakeproof.commit_times import of_number
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP, UNCHANGED
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import SegmentFile
from lakeproof.landing.reader import Slice, open_file
from lakeproof.lsn import Lsn

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_OPS = {"insert": "inserts", "update": "updates", "delete": "deletes", "truncate": "truncates", "before": "befores"}


def count_changes(slices: Sequence[Slice], start: Lsn, end: Lsn) -> ChangeCounts:
    """The counts of the rows in (start, end]."""
    total = ChangeCounts()
    for piece in slices:
        if piece.whole:
            total += piece.file.counts
        else:
            total += _count_part(piece, start, end)
    return total


def newest_row(chain: Chain, file: SegmentFile, end: Lsn) -> Lsn:
    """Return the position of a file's newest row up to `end`; zero if it has none."""
    import pyarrow.compute as pc

    newest = (pc.max(part.column(LSN)).as_py() for part in _parts(open_file(chain, file), [LSN], Lsn.ZERO, end))
    return Lsn(max((lsn for lsn in newest if lsn is not None), default=0))


def last_commit(slices: Sequence[Slice], start: Lsn, end: Lsn) -> int | None:
    """Return the greatest commit time (µs since 1970, without a limit) of the rows in (start, end], read from the files."""
    import pyarrow.compute as pc

    parts = (part for piece in slices for part in _parts(piece.open(), [LSN, COMMIT_TIME, COMMIT_NUMBER], start, end))
    times = []
    for part in parts:
        time, number = (pc.max(part.column(name)) for name in (COMMIT_TIME, COMMIT_NUMBER))
        times += [time.value] if time.is_valid else []
        times += [of_number(number.as_py())] if number.is_valid else []
    return max(times, default=None)


def in_range_mask(lsn: pa.Array, start: Lsn, end: Lsn) -> pa.Array:
    """Return which values of an Arrow column of positions are in (start, end]."""
    import pyarrow.compute as pc

    return pc.and_(pc.greater(lsn, int(start)), pc.less_equal(lsn, int(end)))


def _count_part(piece: Slice, start: Lsn, end: Lsn) -> ChangeCounts:
    import pyarrow as pa
    import pyarrow.compute as pc

    total = ChangeCounts()
    for part in _parts(piece.open(), [LSN, OP, UNCHANGED], start, end):
        counted = pc.value_counts(part.column(OP).cast(pa.string())).to_pylist()
        numbers = {_OPS[c["values"]]: int(c["counts"]) for c in counted}
        unchanged = part.num_rows - part.column(UNCHANGED).null_count
        total += ChangeCounts(**numbers, unchanged=unchanged)
    return total


def _parts(
    opening: AbstractContextManager[pq.ParquetFile], columns: list[str], start: Lsn, end: Lsn
) -> Iterator[pa.RecordBatch]:
    """Yield one batch at a time: a file may hold one transaction of any size."""
    with opening as file:
        for batch in file.iter_batches(columns=columns):
            yield batch.filter(in_range_mask(batch.column(LSN), start, end))
