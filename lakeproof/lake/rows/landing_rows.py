"""One table's landing rows of a range, by column name and with `_lp_ord`.

Adding the changes up belongs to `lakeproof.lake.fold`, finding the files, and counting rows without Spark, to
`lakeproof.landing.segments.reader`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, OP, ORD, SEQ, TEXT, UNCHANGED, XID, scratch
from lakeproof.lake.columns import in_lake, landing_schema
from lakeproof.lake.planning.schema_change import SchemaDifference, compare_schemas
from lakeproof.lake.planning.schema_changes import first_record, proven_defaults
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.rows.columns import col, named, relation
from lakeproof.lake.rows.file_rows import LandedRange, TableRange
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import Column, SchemaVersion, lake_names
from lakeproof.values.cast import MARKED, cast_column
from lakeproof.values.types import arrow_type, spark_type

_HIDDEN = (LSN, SEQ, ORD, OP, XID, COMMIT_TIME, COMMIT_NUMBER, UNCHANGED, TEXT)
_NUMBER_DIGITS = 20
_MARKED_OCTETS = f"{MARKED}x"
_MARKED_REGEX = MARKED.replace("{", r"\{")


@dataclass(frozen=True, slots=True)
class LandedChanges:
    """A table's changes in a range; the frame's columns: `_lp_ord`, the landing's hidden ones, the table's by name."""

    schema: SchemaVersion
    frame: DataFrame
    counts: ChangeCounts


def read_range(session: SparkSession, changes: TableRange) -> LandedChanges:
    """Return the rows of a range, those of older schemas as rows of the newest."""
    frames = [read_landed_changes(session, changes.landed)] if changes.landed.slices else []
    for old, slices in changes.older.items():
        rows = read_landed_changes(session, replace(changes.landed, schema=in_lake(old), slices=slices))
        change, before = compare_schemas(old, changes.version), changes.before
        # A table that was made in the stream enters with all that it ever had.
        own = before is not None and before.version.oid == changes.version.oid
        first = first_record(changes.chain, before) if own and before is not None else changes.landed.start
        missing = proven_defaults(changes.chain, first, change, changes.landed.end)
        frames.append(convert_rows(session, rows, change, missing))
    return LandedChanges(changes.schema, reduce(lambda one, other: one.unionByName(other), frames), changes.counts)


def read_landed_changes(session: SparkSession, landed: LandedRange) -> DataFrame:
    """Return the range's rows as `LandedChanges` has them."""
    schema, slices = landed.schema, landed.slices
    frame = session.read.schema(landing_schema(schema, _HIDDEN)).parquet(*(p.url for p in slices))
    if not all(p.whole for p in slices):
        frame = frame.where((F.col(LSN) > F.lit(int(landed.start))) & (F.col(LSN) <= F.lit(int(landed.end))))
    number = F.substring(F.col("_metadata.file_name"), 1, _NUMBER_DIGITS).cast("bigint")
    # What a file's ordinals are moved by: the cycle's first one for the segment takes the place of the segment's own.
    moved = {p.number: landed.first_ordinals[p.number] - p.first_ordinal for p in slices}
    ordinal = first_ordinal(number, moved) + F.col(ORD)
    hidden = [F.col(c) for c in (LSN, SEQ, OP, XID, COMMIT_TIME, COMMIT_NUMBER, UNCHANGED)]
    return frame.select(ordinal.alias(ORD), *hidden, _whole_text(schema).alias(TEXT), *named(schema))


def _whole_text(schema: SchemaVersion) -> SparkColumn:
    """Return `_lp_text`; a text marked as malformed is refused: its value is not in the column, and nobody knows it."""
    text = F.col(TEXT)
    names_by_attnum = {"": ""} | {str(c.attnum): _for_message(c.name) for c in schema.columns if c.attnum > 0}
    names = F.create_map(*(F.lit(part) for pair in names_by_attnum.items() for part in pair))
    column = F.regexp_extract(text, f'^{_MARKED_REGEX}x?([^"]*)"', 1)
    thing = F.concat(F.lit("column "), F.coalesce(F.try_element_at(names, column), column))
    not_utf8 = F.concat(thing, F.lit(" has a text that is not UTF-8"))
    octets = refuse_table(not_utf8, "string", WayOut.CORRECT_TEXT_THEN_SNAPSHOT)
    not_of_type = F.concat(thing, F.lit(" has a text that is none of its type's"))
    not_representable = refuse_table(not_of_type, "string", WayOut.READ_AS_TEXT_THEN_SNAPSHOT)
    marked = F.when(text.startswith(_MARKED_OCTETS), octets).otherwise(not_representable)
    return F.when(text.startswith(MARKED), marked).otherwise(text)


def _for_message(name: str) -> str:
    """Return a column's name without the characters that would end a refusal's reason."""
    return name.replace("|", "?").replace("]", "?")


def first_ordinal(number: SparkColumn, by_number: Mapping[int, int]) -> SparkColumn:
    """Return a small look-up as an expression, so that it needs no join."""
    if len(by_number) == 1:
        return F.lit(next(iter(by_number.values()))).cast("bigint")
    pairs = ", ".join(f"{n}L, {b}L" for n, b in sorted(by_number.items()))
    return F.element_at(F.expr(f"map({pairs})"), number)


_DEFAULT = scratch("default_")


def convert_rows(
    session: SparkSession, rows: DataFrame, change: SchemaDifference, missing: Mapping[int, str]
) -> DataFrame:
    """Convert rows with the old schema's columns (under the lake's names); the new schema's columns come first.

    Added columns have the value that older rows read in them (`missing`), else null; dropped columns are left out.
    """
    old, new = lake_names(change.old.columns), lake_names(change.new.columns)
    kept = {b.name: old[a.name] for a, b in change.carried}
    given = [c for c in change.added if c.attnum in missing]
    rest = [n for n in rows.columns if n not in set(old.values())]
    if given:
        rows = rows.crossJoin(F.broadcast(_defaults(session, given, missing)))
    values: list[SparkColumn] = []
    for column in change.new.columns:
        value = F.lit(None)
        if column.name in kept:
            value = col(kept[column.name])
        elif column in given:
            value = F.col(f"{_DEFAULT}{column.attnum}")
        values.append(value.cast(spark_type(column)).alias(new[column.name]))
    return rows.select(*values, *(_unchanged(change) if n == UNCHANGED else col(n) for n in rest))


def _unchanged(change: SchemaDifference) -> SparkColumn:
    """Return `_lp_unchanged`, which lists columns by position, for the positions in the new schema."""
    before = [c.name for c in change.old.columns]
    after = [c.name for c in change.new.columns]
    pairs: Iterable[tuple[int, int]] = ((before.index(a.name), after.index(b.name)) for a, b in change.carried)
    places = F.create_map(*(F.lit(i) for pair in pairs for i in pair))
    moved = F.transform(F.col(UNCHANGED), lambda i: F.try_element_at(places, i.cast("int")).cast("smallint"))
    return F.filter(moved, lambda i: i.isNotNull()).alias(UNCHANGED)


def _defaults(session: SparkSession, columns: list[Column], missing: Mapping[int, str]) -> DataFrame:
    """Return one row: the value that older rows read in each of `columns`, cast as all values are."""
    values = [cast_column(pa.array([missing[c.attnum]], pa.string()), c).values for c in columns]
    schema = pa.schema([pa.field(f"{_DEFAULT}{c.attnum}", arrow_type(c)) for c in columns])
    return relation(session, pa.Table.from_arrays(values, schema=schema))
