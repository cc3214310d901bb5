"""One table's landing rows of a range, by column name and with `_lp_ord`, and how many there are of each kind.

What the changes add up to belongs to `net_change`; which files there are to `lakeproof.landing.reader`.

The counts come from the manifests; a file of which the range takes a part is counted by reading three of its columns. So
compaction chooses its way, and a table without changes is seen, without a Spark job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.columns import COMMIT_TIME, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID, landing_schema, named
from lakeproof.lake.documents import RESNAPSHOT
from lakeproof.lake.refusal import refuse_table
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import MARK

INTEGER_KINDS = frozenset({"int2", "int4", "int8"})
_OPS = {"insert": "inserts", "update": "updates", "delete": "deletes", "truncate": "truncates", "before": "befores"}
_HIDDEN = (
    f"{LSN} bigint",
    f"{SEQ} bigint",
    "_lp_row bigint",
    f"{OP} string",
    f"{XID} bigint",
    f"{COMMIT_TIME} timestamp",
    f"{UNCHANGED} array<smallint>",
    f"{TEXT} string",
)
_NUMBER_DIGITS = 20
MARKED = f'{{"{MARK}'  # how the text of a row with a misshapen value begins
_MARKED_OCTETS = f"{MARKED}x"
_MARKED_REGEX = MARKED.replace("{", r"\{")
_CORRECT = f"correct the text in the source, then {RESNAPSHOT}"
_AS_TEXT = f"name the column under as_text of the table in the configuration, then {RESNAPSHOT}"


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


@dataclass(frozen=True, slots=True)
class Changes:
    """A table's changes in a range; the frame's columns: `_lp_ord`, the landing's hidden ones, the table's by name."""

    shape: SchemaVersion
    frame: DataFrame
    counts: Counts


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


def read_changes(
    session: SparkSession,
    shape: SchemaVersion,
    slices: Sequence[Slice],
    *,
    bases: Mapping[int, int],
    start: Lsn,
    end: Lsn,
) -> DataFrame:
    """The frame of `Changes` for (start, end]; `bases` gives each segment's `_lp_ord` of row 0."""
    frame = session.read.schema(landing_schema(shape, _HIDDEN)).parquet(*(p.url for p in slices))
    if not all(p.whole for p in slices):
        frame = frame.where(in_range(start, end))
    number = F.substring(F.col("_metadata.file_name"), 1, _NUMBER_DIGITS).cast("bigint")
    ordinal = base_of(number, {p.number: bases[p.number] for p in slices}) + F.col("_lp_row")
    hidden = [F.col(c) for c in (LSN, SEQ, OP, XID, COMMIT_TIME, UNCHANGED)]
    return frame.select(ordinal.alias(ORD), *hidden, _whole_text(shape).alias(TEXT), *named(shape))


def _whole_text(shape: SchemaVersion) -> SparkColumn:
    """`_lp_text`, refused where a text is marked as misshapen: its value is not in the column, nor known what it is."""
    text = F.col(TEXT)
    known = {"": ""} | {str(c.attnum): _for_message(c.name) for c in shape.columns if c.attnum > 0}
    names = F.create_map(*(F.lit(part) for pair in known.items() for part in pair))
    column = F.regexp_extract(text, f'^{_MARKED_REGEX}x?([^"]*)"', 1)
    thing = F.concat(F.lit("column "), F.coalesce(F.try_element_at(names, column), column))
    octets = refuse_table(F.concat(thing, F.lit(" has a text that is not UTF-8")), "string", _CORRECT)
    shapeless = refuse_table(F.concat(thing, F.lit(" has a text that is none of its type's")), "string", _AS_TEXT)
    marked = F.when(text.startswith(_MARKED_OCTETS), octets).otherwise(shapeless)
    return F.when(text.startswith(MARKED), marked).otherwise(text)


def _for_message(name: str) -> str:
    """A column's name without what would end a refusal's reason."""
    return name.replace("|", "?").replace("]", "?")


def base_of(number: SparkColumn, bases: Mapping[int, int]) -> SparkColumn:
    """A small look-up as an expression, so that it needs no join."""
    if len(bases) == 1:
        return F.lit(next(iter(bases.values()))).cast("bigint")
    pairs = ", ".join(f"{n}L, {b}L" for n, b in sorted(bases.items()))
    return F.element_at(F.expr(f"map({pairs})"), number)


def in_range(start: Lsn, end: Lsn) -> SparkColumn:
    """The rows of commits in (start, end]."""
    return (F.col(LSN) > F.lit(int(start))) & (F.col(LSN) <= F.lit(int(end)))


def in_range_mask(lsn: pa.Array, start: Lsn, end: Lsn) -> pa.Array:
    """The same for an Arrow column."""
    return pc.and_(pc.greater(lsn, int(start)), pc.less_equal(lsn, int(end)))


def key_bounds(shape: SchemaVersion, slices: Sequence[Slice]) -> tuple[int, int] | None:
    """The least and greatest key in the files, read without Spark; None where the key is not one whole number.

    Rows outside the range only make the bounds wider.
    """
    if len(shape.key) != 1:
        return None
    ordinal = next(i for i, c in enumerate(shape.columns) if c.name == shape.key[0])
    if shape.columns[ordinal].kind not in INTEGER_KINDS:
        return None
    low: int | None = None
    high: int | None = None
    for piece in slices:
        with pq.ParquetFile(piece.url) as file:
            for batch in file.iter_batches(columns=[f"c{ordinal}"]):
                found = pc.min_max(batch.column(0)).as_py()
                if found["min"] is not None:
                    low = found["min"] if low is None else min(low, found["min"])
                    high = found["max"] if high is None else max(high, found["max"])
    return None if low is None or high is None else (low, high)


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
