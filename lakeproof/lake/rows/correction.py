"""Two states of a table compared: the fewest rows to delete and insert so that what is persisted becomes what is desired.

Computing the two sides belongs to `cycle.commits_by_spark` and the views; committing the correction to `delta.apply`.

Invariant self-correcting: persisted + correction = desired, as multisets; the correction is minimal. Rows are compared by
the digest of their exact forms, since Spark's own grouping makes -0.0 and 0.0 one value. Cost: one shuffle of both sides'
digests, and a second read of both sides for the differing rows only.

That digest is by far the largest cost, and most rows of a table that is copied again are equal. So each side is first summed
up in one pass (`bucket_diff`): a row belongs to the bucket of its key (of itself, in a bag) and has a 64-bit hash of its
values; a bucket is a count and the sums of both halves of the hashes. The hash covers everything that an exact form depends
on, so the chance that different rows have equal hashes is 2**-64 for each row that differs, less than what the proof itself
leaves open. Rows in equal buckets are not read again.

Each cycle checks that exactly the rows exist that its changes presuppose (`first_changes`, `check_rows`). An update, a
delete and the old half of a key move presuppose a row with their key; an insert and the new half of a move presuppose that
there is none, and so does everything after a truncate. So of the keys that a range touches, the lake must have exactly those
whose first change presupposes a row, once each. A commit finds rows by their keys anyway: the check costs a number beside
each key. It reports rows that were lost, doubled or moved behind the stream's back at the next change of their key, before
anything is committed. Known weakness: a range of inserts alone looks for no row, so a key that existed already is reported
by its next change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.section.spark import is_local
from lakeproof.hidden_columns import OP, ORD, TEXT, scratch
from lakeproof.lake.columns import merge_key
from lakeproof.lake.rows.change import FIRST, Removed, check_counts
from lakeproof.lake.rows.columns import col, exact_form, exact_text, int_pairs, pick, relation
from lakeproof.lake.rows.memory import persist
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.types import Form, kind_of, spark_type

# The column of counts that has a digest.
SIDE = scratch("side")
_RANK = scratch("rank")
_PARTITION, _INDEX, _START = scratch("partition"), scratch("index"), scratch("start")
# The bits that `monotonically_increasing_id` gives to a row's number within its partition.
_INDEX_BITS = 33


@dataclass(frozen=True, slots=True)
class Correction:
    """`retractions` are rows of persisted, `insertions` rows of desired, each with its side's columns.

    Both are selected by `net`; `release` unpersists it once the correction is written.
    """

    retractions: DataFrame
    insertions: DataFrame
    net: DataFrame

    def counts(self) -> tuple[int, int]:
        """Return how many rows are retracted and inserted: the sums of `net`, for which no row is looked up."""
        surplus, missing = (F.sum(F.greatest(F.lit(sign) * F.col(NET), F.lit(0))) for sign in (-1, 1))
        retracted, inserted = self.net.agg(surplus, missing).collect()[0]
        return int(retracted or 0), int(inserted or 0)

    def release(self) -> None:
        """Unpersist what the correction keeps."""
        self.net.unpersist()


@dataclass(frozen=True, slots=True)
class Numbered:
    """`frame` has `count` rows with `_lp_ord`; `kept` is persisted until the caller unpersists it."""

    frame: DataFrame
    count: int
    kept: DataFrame


def correct(
    desired: DataFrame, persisted: DataFrame, digest: str, retract_first: SparkColumn | None = None
) -> Correction:
    """Return desired minus persisted as multisets of `digest`, a column of both.

    Among equal persisted rows the first by `retract_first` are retracted. Both frames are evaluated twice.
    """
    net = multiset_difference(desired, persisted, digest).withColumnRenamed(digest, SIDE)
    net = net.persist(StorageLevel.MEMORY_AND_DISK)
    missing = net.where(F.col(NET) > 0)
    surplus = net.where(F.col(NET) < 0).withColumn(NET, -F.col(NET))
    order = F.lit(0) if retract_first is None else retract_first
    return Correction(first_of(persisted, surplus, digest, order), first_of(desired, missing, digest, F.lit(0)), net)


def left_over(persisted: DataFrame, correction: Correction, digest: str) -> DataFrame:
    """Return the persisted rows that are not retracted, of some or all digests; among equal rows any."""
    retracted = correction.net.where(F.col(NET) < 0).withColumn(NET, -F.col(NET))
    ranked = persisted.withColumn(_RANK, F.row_number().over(Window.partitionBy(col(digest)).orderBy(F.lit(0))))
    joined = ranked.join(retracted, col(digest) == F.col(SIDE), "left")
    return joined.where(F.col(_RANK) > F.coalesce(F.col(NET), F.lit(0))).drop(SIDE, NET, _RANK)


def numbered(session: SparkSession, rows: DataFrame, first: int) -> Numbered:
    """Return `rows` with `_lp_ord` counting from `first` without holes.

    Persists them, since they must not change between two evaluations. Cost: one job that counts each partition.
    """
    if not is_local(session.sparkContext.master):
        rows = _in_one_order(rows)
    rows = persist(rows.withColumn(_INDEX, F.monotonically_increasing_id()))
    partition = F.shiftright(F.col(_INDEX), _INDEX_BITS)
    counts = rows.groupBy(partition.alias(_PARTITION)).count().collect()
    starts, total = dict[int, int](), 0
    for number, count in sorted((int(r[0]), int(r[1])) for r in counts):
        starts[number] = first + total
        total += count
    table = relation(session, int_pairs(_PARTITION, _START, starts))
    in_partition = F.col(_INDEX).bitwiseAND(F.lit((1 << _INDEX_BITS) - 1))
    joined = rows.join(F.broadcast(table), partition == F.col(_PARTITION))
    numbers = joined.withColumn(ORD, F.col(_START) + in_partition).drop(_INDEX, _PARTITION, _START)
    return Numbered(numbers, total, rows)


def _in_one_order(rows: DataFrame) -> DataFrame:
    """Return the rows of each partition in an order that follows from the rows alone.

    What an executor kept goes with it and is computed again, and a shuffle gives its rows in another order each time. Rows
    whose hashes are equal are the same, but for a chance of 2**-64 for each pair.
    """
    parts = [part for name in rows.columns for part in (col(name).isNull(), col(name))]
    return rows.sortWithinPartitions(F.xxhash64(*parts))


def first_of(rows: DataFrame, counts: DataFrame, digest: str, order: SparkColumn) -> DataFrame:
    """Return as many rows of each digest as `counts` says (its columns are SIDE and NET), the first by `order`."""
    matched = rows.join(counts, col(digest) == F.col(SIDE), "inner")
    ranked = matched.withColumn(_RANK, F.row_number().over(Window.partitionBy(SIDE).orderBy(order)))
    return ranked.where(F.col(_RANK) <= F.col(NET)).drop(SIDE, NET, _RANK)


# How many more (or fewer) rows one side has than the other.
NET = scratch("net")
# What is kept of the rows of one digest.
ROW = scratch("row")
_SIGN = scratch("sign")
_RIGHT = scratch("right_")


def same_key(left: Sequence[str], right: Sequence[str], *, null_safe: bool) -> SparkColumn:
    """Return the condition that columns are equal, pair by pair."""
    pairs = zip(left, right, strict=True)
    return reduce(and_, (col(a).eqNullSafe(col(b)) if null_safe else col(a) == col(b) for a, b in pairs))


def join_on_key(left: DataFrame, right: DataFrame, key: Sequence[str], how: str, *, null_safe: bool) -> DataFrame:
    """Join two frames on the columns `key`, which both have; the result has `left`'s, then `right`'s other columns.

    `null_safe`: NULL equals NULL. `how` is `inner`, `left`, `left_semi` or `left_anti`. A broadcast hint on `right` is kept.
    """
    renamed = [f"{_RIGHT}{i}" for i in range(len(key))]
    others = [col(n) for n in right.columns if n not in key] if how in ("inner", "left") else []
    right = right.select(*(col(k).alias(n) for k, n in zip(key, renamed, strict=True)), *others)
    return left.join(right, same_key(key, renamed, null_safe=null_safe), how).drop(*renamed)


def net_counts(rows: DataFrame, digest: str, sign: SparkColumn, *kept: str) -> DataFrame:
    """Return each `digest` whose signs do not add up to zero, with their sum in `NET`, and any value of `kept` columns."""
    totals = rows.groupBy(col(digest)).agg(F.sum(sign).alias(NET), *(F.first(n).alias(n) for n in kept))
    return totals.where(F.col(NET) != 0)


def multiset_difference(
    desired: DataFrame, persisted: DataFrame, digest: str, row: SparkColumn | None = None
) -> DataFrame:
    """Return each `digest` of which the sides have different numbers of rows, and in `NET` how many more `desired` has.

    `row` is computed from a row, with its digest, and is kept beside it in the column `ROW`.
    """
    kept = [] if row is None else [row.alias(ROW)]
    sides = desired.select(col(digest), F.lit(1).alias(_SIGN), *kept)
    sides = sides.unionAll(persisted.select(col(digest), F.lit(-1), *kept))
    return net_counts(sides, digest, F.col(_SIGN), *([] if row is None else [ROW]))


_MIN = scratch("min")
_NEW = scratch("new")
NULL_KEY = "a change has NULL in its key: the old row that PostgreSQL sent has other columns than the table's identity"


def first_changes(schema: SchemaVersion, events: DataFrame, *, moves: bool) -> DataFrame:
    """Return each key of `events` (no truncate rows, with `_lp_key`) and `__lp_first`.

    `moves`: there are old halves of updates. Evaluating it refuses a key with NULL in it.
    """
    key = merge_key(schema)
    is_null = reduce(or_, (exact_text(c).isNull() for c in key_columns(schema)))
    ordinal = F.when(is_null, refuse_table(NULL_KEY, "bigint")).otherwise(F.col(ORD))
    firsts = events.groupBy(*(col(k) for k in key)).agg(
        F.min(ordinal).alias(_MIN), F.min(F.when(F.col(OP) != "insert", F.col(ORD))).alias(FIRST)
    )
    presupposes = F.col(_MIN) == F.col(FIRST)
    if moves:
        # The new half of a move comes right after the old one, under another key.
        old = events.where(F.col(OP) == "before").select((F.col(ORD) + 1).alias(_NEW))
        firsts = firsts.join(old, F.col(_MIN) == F.col(_NEW), "left")
        presupposes = presupposes & F.col(_NEW).isNull()
    return firsts.select(*(col(k) for k in key), F.when(presupposes, F.col(FIRST)).alias(FIRST))


def check_rows(thing: str, rows: DataFrame, removed: Removed[DataFrame]) -> None:
    """Raise DriftedError unless the rows that have one of the keys are those that are presupposed. One job, if any are."""
    if removed.presupposed is None:
        return
    key, keys = removed.key, pick(removed.rows, [*removed.key, FIRST])
    matched = join_on_key(pick(rows, key), keys, key, "inner", null_safe=removed.null_safe)
    counts = matched.agg(F.count(F.lit(1)), F.count_distinct(FIRST)).collect()[0]
    check_counts(thing, removed.presupposed, rows=int(counts[0]), keys=int(counts[1]))


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
    """The rows of both sides in differing buckets; all rows, if many buckets differ."""

    desired: DataFrame
    persisted: DataFrame
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
        return BucketDiff(desired, persisted)
    left, right = (_within(schema, side, buckets) for side in (desired, persisted))
    return BucketDiff(left, right, (left, right))


def _within(schema: SchemaVersion, rows: DataFrame, buckets: list[int]) -> DataFrame:
    if not buckets:
        return rows.limit(0)
    chosen = relation(rows.sparkSession, pa.table({_BUCKET: pa.array(buckets, pa.int64())}))
    rows = rows.join(F.broadcast(chosen), _bucket(schema) == F.col(_BUCKET), "left_semi")
    return persist(rows)


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
        return [exact_form(column)]
    value = value.cast(spark_type(column))
    if kind.form is Form.FLOAT:
        return [value, F.when(value == 0, value.cast("string"))]
    return [value]
