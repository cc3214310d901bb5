"""The buckets of rows in which two states of one table differ, found cheaply by sums of hashes.

Choosing the rows to delete and insert within those buckets belongs to `correction`, which compares exact forms.

A correction reads both sides several times and computes a digest of the exact forms of each row, by far its largest cost.
Most rows of a table that is copied again are equal, so each side is first summed up in one pass: a row belongs to the bucket
of its key (of itself, in a bag) and has a 64-bit hash of its values; a bucket is a count and the sums of both halves of the
hashes. The hash covers everything that an exact form depends on, so the chance that different rows have equal hashes is
2**-64 for each row that differs, less than what the proof itself leaves open. Rows in equal buckets are not read again.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import TEXT, scratch
from lakeproof.lake.columns import merge_key
from lakeproof.lake.rows.columns import col, relation
from lakeproof.lake.rows.exact import exact_form
from lakeproof.lake.rows.memory import keep
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.types import Form, kind_of, spark_type

# One partial sum per bucket and task is shuffled: few enough to be cheap, and if a thousand rows differ in a table of ten
# million, 1.5 % of it remains to be compared.
BUCKETS = 1 << 16
# If more than this share of the buckets differs, the whole table is compared: persisting the rows would cost more than it
# saves.
_SHARE_KEPT = 0.25
_BUCKET = scratch("bucket")
_LOW, _HIGH, _ROWS = scratch("low"), scratch("high"), scratch("rows")
_HALF = 32
_FLAGS = 62  # in a long


@dataclass(frozen=True, slots=True)
class BucketDiff:
    """The rows of both sides in differing buckets (all rows, if many buckets differ); `buckets` is their number."""

    desired: DataFrame
    persisted: DataFrame
    buckets: int
    kept: tuple[DataFrame, ...] = ()

    def release(self) -> None:
        """Give back what was kept of both sides."""
        for frame in self.kept:
            frame.unpersist()


def bucket_diff(schema: SchemaVersion, desired: DataFrame, persisted: DataFrame) -> BucketDiff:
    """Both frames (current's columns) without the buckets that are equal on both sides; all rows of a key stay together.

    Cost: one look at both sides here, one more when the narrowed frames are read first.
    """
    sums = _sums(schema, desired, 1).unionAll(_sums(schema, persisted, -1)).groupBy(_BUCKET)
    added = sums.agg(*(F.sum(name).alias(name) for name in (_ROWS, _LOW, _HIGH)))
    differing = added.where((F.col(_ROWS) != 0) | (F.col(_LOW) != 0) | (F.col(_HIGH) != 0))
    buckets = [int(row[0]) for row in differing.select(_BUCKET).collect()]
    if len(buckets) > BUCKETS * _SHARE_KEPT:
        return BucketDiff(desired, persisted, len(buckets))
    left, right = (_within(schema, side, buckets) for side in (desired, persisted))
    return BucketDiff(left, right, len(buckets), (left, right))


def _within(schema: SchemaVersion, rows: DataFrame, buckets: list[int]) -> DataFrame:
    if not buckets:
        return rows.limit(0)
    chosen = relation(rows.sparkSession, pa.table({_BUCKET: pa.array(buckets, pa.int64())}))
    rows = rows.join(F.broadcast(chosen), _bucket(schema) == F.col(_BUCKET), "left_semi")
    return keep(rows)


def _sums(schema: SchemaVersion, rows: DataFrame, sign: int) -> DataFrame:
    hashed = rows.select(_bucket(schema).alias(_BUCKET), row_hash(schema).alias(_HIGH))
    low = F.col(_HIGH).bitwiseAND(F.lit((1 << _HALF) - 1))
    return hashed.select(
        F.col(_BUCKET),
        F.lit(sign).cast("bigint").alias(_ROWS),
        (low * sign).alias(_LOW),
        (F.shiftrightunsigned(F.col(_HIGH), _HALF) * sign).alias(_HIGH),
    )


def _bucket(schema: SchemaVersion) -> SparkColumn:
    of = row_hash(schema) if schema.is_bag else F.xxhash64(*(col(name) for name in merge_key(schema)))
    return F.pmod(of, F.lit(BUCKETS).cast("bigint"))


def row_hash(schema: SchemaVersion) -> SparkColumn:
    """Return a hash of all that the row's exact form depends on; Spark's own leaves out NULLs and takes -0.0 for 0.0."""
    nulls = []
    for first in range(0, len(schema.columns), _FLAGS):
        flags = [
            F.when(col(c.name).isNull(), F.lit(1 << i).cast("bigint")).otherwise(F.lit(0).cast("bigint"))
            for i, c in enumerate(schema.columns[first : first + _FLAGS])
        ]
        nulls.append(sum(flags[1:], flags[0]))
    values = [value for column in schema.columns for value in _values(column)]
    return F.xxhash64(*nulls, *values, col(TEXT))


def _values(column: Column) -> list[SparkColumn]:
    value = col(column.name)
    kind = kind_of(column)
    if kind.element is not None:
        # Spark's hash of an array leaves out the number of its elements and its NULLs.
        return [exact_form(column, column.name)]
    value = value.cast(spark_type(column))
    if kind.form is Form.FLOAT:
        return [value, F.when(value == 0, value.cast("string"))]
    return [value]
