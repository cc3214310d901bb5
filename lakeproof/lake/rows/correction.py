"""Corrections: the fewest rows to delete and insert so that what is persisted becomes what is desired.

Computing the two sides belongs to `cycle.snapshot_entry` and the views; committing the correction to `delta.apply`.

Invariant self-correcting: persisted + correction = desired, as multisets; the correction is minimal. Rows are compared by
the digest of their exact forms, since Spark's own grouping makes -0.0 and 0.0 one value. Cost: one shuffle of both sides'
digests, and a second read of both sides for the differing rows only.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.config.spark import is_local
from lakeproof.hidden_columns import ORD, scratch
from lakeproof.lake.rows.columns import col, int_pairs, relation
from lakeproof.lake.rows.matching import NET, multiset_difference
from lakeproof.lake.rows.memory import keep

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
    rows = keep(rows.withColumn(_INDEX, F.monotonically_increasing_id()))
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
