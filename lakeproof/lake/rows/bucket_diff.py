"""Where two states of one table differ, roughly and cheaply: the buckets of rows whose sums of hashes are not equal.

What must go and come within those buckets is `correction`'s, which compares exact forms.

A correction reads both sides several times and makes a digest of exact forms of each row, by far the dearest part. Most
rows of a table that is copied again are equal, so each side is first added up in one look: a row belongs to the bucket of
its key (of itself, in a bag) and has a 64-bit hash of its values; a bucket is a count and the sums of both halves of the
hashes. The hash is of everything that an exact form depends on, so rows with equal hashes differ with a chance of 2**-64
for each row that differs, less than what the proof itself leaves open. Rows in other buckets are then read by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import TEXT
from lakeproof.lake.columns import merge_key
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.exact import exact_form
from lakeproof.lake.rows.memory import keep
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.types import element_kind, spark_type

# One partial sum per bucket and task is shuffled: few enough to be cheap, and a thousand rows that differ in a table of ten
# million leave 1.5 % of it to be compared.
BUCKETS = 1 << 16
# Beyond this share of the buckets the whole table is compared: keeping the rows aside would cost more than it spares.
_SHARE_KEPT = 0.25
_BUCKET = "_lp_bucket"
_LOW, _HIGH, _ROWS = "_lp_low", "_lp_high", "_lp_rows"
_HALF = 32
_FLAGS = 62  # in a long


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The rows of both sides that lie in a bucket that differs (all rows, if those are many); `buckets` of them differ."""

    desired: DataFrame
    persisted: DataFrame
    buckets: int
    kept: tuple[DataFrame, ...] = ()

    def release(self) -> None:
        """Give back what was kept of both sides."""
        for frame in self.kept:
            frame.unpersist()


def narrow(shape: SchemaVersion, desired: DataFrame, persisted: DataFrame) -> Narrowed:
    """Both frames (current's columns) without the buckets that are equal on both sides; all rows of a key stay together.

    Cost: one look at both sides here, one more when the narrowed frames are read first.
    """
    sums = _sums(shape, desired, 1).unionAll(_sums(shape, persisted, -1)).groupBy(_BUCKET)
    added = sums.agg(*(F.sum(name).alias(name) for name in (_ROWS, _LOW, _HIGH)))
    differing = added.where((F.col(_ROWS) != 0) | (F.col(_LOW) != 0) | (F.col(_HIGH) != 0))
    buckets = [int(row[0]) for row in differing.select(_BUCKET).collect()]
    if len(buckets) > BUCKETS * _SHARE_KEPT:
        return Narrowed(desired, persisted, len(buckets))
    here, there = (_within(shape, side, buckets) for side in (desired, persisted))
    return Narrowed(here, there, len(buckets), (here, there))


def _within(shape: SchemaVersion, rows: DataFrame, buckets: list[int]) -> DataFrame:
    if not buckets:
        return rows.limit(0)
    wanted = rows.sparkSession.createDataFrame([(bucket,) for bucket in buckets], f"{_BUCKET} bigint")
    found = rows.join(F.broadcast(wanted), _bucket(shape) == F.col(_BUCKET), "left_semi")
    return keep(found)


def _sums(shape: SchemaVersion, rows: DataFrame, sign: int) -> DataFrame:
    hashed = rows.select(_bucket(shape).alias(_BUCKET), row_hash(shape).alias(_HIGH))
    low = F.col(_HIGH).bitwiseAND(F.lit((1 << _HALF) - 1))
    return hashed.select(
        F.col(_BUCKET),
        F.lit(sign).cast("bigint").alias(_ROWS),
        (low * sign).alias(_LOW),
        (F.shiftrightunsigned(F.col(_HIGH), _HALF) * sign).alias(_HIGH),
    )


def _bucket(shape: SchemaVersion) -> SparkColumn:
    of = row_hash(shape) if shape.is_bag else F.xxhash64(*(col(name) for name in merge_key(shape)))
    return F.pmod(of, F.lit(BUCKETS).cast("bigint"))


def row_hash(shape: SchemaVersion) -> SparkColumn:
    """A hash of all that the row's exact form depends on; Spark's own leaves out NULLs and takes -0.0 for 0.0."""
    nulls = []
    for first in range(0, len(shape.columns), _FLAGS):
        flags = [
            F.when(col(c.name).isNull(), F.lit(1 << i).cast("bigint")).otherwise(F.lit(0).cast("bigint"))
            for i, c in enumerate(shape.columns[first : first + _FLAGS])
        ]
        nulls.append(sum(flags[1:], flags[0]))
    values = [value for column in shape.columns for value in _values(column)]
    return F.xxhash64(*nulls, *values, col(TEXT))


def _values(column: Column) -> list[SparkColumn]:
    value = col(column.name)
    if element_kind(column.kind) is not None:
        # Spark hashes an array's elements without their number and without its NULLs.
        return [exact_form(column, column.name)]
    value = value.cast(spark_type(column))
    if column.kind in ("float4", "float8"):
        return [value, F.when(value == 0, value.cast("string"))]
    return [value]
