"""One table's landing rows of a range, by column name and with `_lp_ord`, and how many there are of each kind.

What the changes add up to belongs to `net_change`; which files there are to `lakeproof.landing.reader`.

The counts come from the manifests; a file of which the range takes a part is counted by reading three of its columns. So
compaction chooses its way, and a table without changes is seen, without a Spark job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import COMMIT_TIME, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID
from lakeproof.lake.columns import landing_schema
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.records.documents import RESNAPSHOT
from lakeproof.lake.rows.columns import named
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import MARK

INTEGER_KINDS = frozenset({"int2", "int4", "int8"})
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
class Changes:
    """A table's changes in a range; the frame's columns: `_lp_ord`, the landing's hidden ones, the table's by name."""

    shape: SchemaVersion
    frame: DataFrame
    counts: Counts


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
