"""How many rows of each kind a table's range in the landing has, without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.hidden_columns import COMMIT_TIME, LSN, OP, UNCHANGED
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn

_OPS = {"insert": "inserts", "update": "updates", "delete": "deletes", "truncate": "truncates", "before": "befores"}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many rows of each op a range has; `unchanged`: rows with at least one unchanged TOAST value."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    befores: int = 0
    unchanged: int = 0

    @property
    def changes(self) -> int:
        """Inserts, updates, deletes and truncates."""
        return self.inserts + self.updates + self.deletes + self.truncates

    @property
    def rows(self) -> int:
        """All rows."""
        return self.changes + self.befores

    @property
    def inserts_only(self) -> bool:
        """Whether nothing that was there before is touched."""
        return self.rows == self.inserts

    def plus(self, other: Counts) -> Counts:
        """The sum."""
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def count_changes(slices: Sequence[Slice], start: Lsn, end: Lsn) -> Counts:
    """The counts of the rows in (start, end]."""
    total = Counts()
    for piece in slices:
        if piece.whole:
            total = total.plus(Counts(*(getattr(piece.file, f.name) for f in fields(Counts))))
        else:
            total = total.plus(_count_part(piece.url, start, end))
    return total


def newest_row(url: str, end: Lsn) -> Lsn:
    """The position of a file's newest row up to `end`; zero where it has none."""
    newest = (pc.max(part.column(LSN)).as_py() for part in _parts(url, [LSN], Lsn.ZERO, end))
    return Lsn(max((lsn for lsn in newest if lsn is not None), default=0))


def last_commit(slices: Sequence[Slice], start: Lsn, end: Lsn) -> datetime | None:
    """The greatest commit time of the rows in (start, end], read from the files."""
    parts = (part for piece in slices for part in _parts(piece.url, [LSN, COMMIT_TIME], start, end))
    times = (pc.max(part.column(COMMIT_TIME)).as_py() for part in parts)
    return max((t for t in times if t is not None), default=None)


def in_range_mask(lsn: pa.Array, start: Lsn, end: Lsn) -> pa.Array:
    """The same for an Arrow column."""
    return pc.and_(pc.greater(lsn, int(start)), pc.less_equal(lsn, int(end)))


def _count_part(url: str, start: Lsn, end: Lsn) -> Counts:
    total = Counts()
    for part in _parts(url, [LSN, OP, UNCHANGED], start, end):
        counted = pc.value_counts(part.column(OP).cast(pa.string())).to_pylist()
        numbers = {_OPS[c["values"]]: int(c["counts"]) for c in counted}
        unchanged = part.num_rows - part.column(UNCHANGED).null_count
        total = total.plus(Counts(**numbers, unchanged=unchanged))
    return total


def _parts(url: str, columns: list[str], start: Lsn, end: Lsn) -> Iterator[pa.RecordBatch]:
    """One batch at a time: a file may hold one transaction of any size."""
    with pq.ParquetFile(url) as file:
        for batch in file.iter_batches(columns=columns):
            yield batch.filter(in_range_mask(batch.column(LSN), start, end))
