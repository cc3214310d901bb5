"""Corrections: what must go and come so that what is persisted becomes what is desired, and nothing more.

Where desired and persisted come from belongs to `snapshot_entry`, the proof's repair and the views; writing to `apply`.

Invariant self-correcting: persisted + correction = desired, as multisets; the correction is minimal. Rows are compared by
the digest of their exact forms, since Spark's own grouping makes -0.0 and 0.0 one value. Cost: one shuffle of both sides'
digests, and a second look at both sides for the differing rows only.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.hidden_columns import ORD
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.memory import keep

_NET = "_lp_net"
_SIDE = "_lp_side"
_RANK = "_lp_rank"
_PARTITION = "_lp_partition"
_INDEX = "_lp_index"
# What `monotonically_increasing_id` keeps for a row's number within its partition.
_INDEX_BITS = 33


@dataclass(frozen=True, slots=True)
class Correction:
    """`retractions` are rows of persisted, `insertions` rows of desired, each with its side's columns.

    `net` is what both are found by; `release` gives it back when the correction is written.
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
    """Desired minus persisted as multisets of `digest`, a column of both.

    Among equal persisted rows the first by `retract_first` go. Both frames are evaluated twice.
    """
    sides = desired.select(col(digest).alias(_SIDE), F.lit(1).alias("n")).unionAll(
        persisted.select(col(digest), F.lit(-1))
    )
    net = sides.groupBy(_SIDE).agg(F.sum("n").alias(_NET)).where(F.col(_NET) != 0)
    net = net.persist(StorageLevel.MEMORY_AND_DISK)
    missing = net.where(F.col(_NET) > 0)
    surplus = net.where(F.col(_NET) < 0).withColumn(_NET, -F.col(_NET))
    order = F.lit(0) if retract_first is None else retract_first
    return Correction(_some(persisted, surplus, digest, order), _some(desired, missing, digest, F.lit(0)), net)


def left_over(persisted: DataFrame, correction: Correction, digest: str) -> DataFrame:
    """The persisted rows that do not go, of some or all digests; among equal ones any."""
    gone = correction.net.where(F.col(_NET) < 0).withColumn(_NET, -F.col(_NET))
    ranked = persisted.withColumn(_RANK, F.row_number().over(Window.partitionBy(col(digest)).orderBy(F.lit(0))))
    joined = ranked.join(gone, col(digest) == F.col(_SIDE), "left")
    return joined.where(F.col(_RANK) > F.coalesce(F.col(_NET), F.lit(0))).drop(_SIDE, _NET, _RANK)


def numbered(session: SparkSession, rows: DataFrame, first: int) -> Numbered:
    """`rows` with `_lp_ord` from `first` on without holes. Persists them: they must not change between two looks.

    Cost: one job that counts each partition.
    """
    rows = keep(rows.withColumn(_INDEX, F.monotonically_increasing_id()))
    partition = F.shiftright(F.col(_INDEX), _INDEX_BITS)
    counts = rows.groupBy(partition.alias(_PARTITION)).count().collect()
    starts, total = [], 0
    for number, count in sorted((int(r[0]), int(r[1])) for r in counts):
        starts.append((number, first + total))
        total += count
    table = session.createDataFrame(starts, f"{_PARTITION} bigint, _lp_start bigint")
    within = F.col(_INDEX).bitwiseAND(F.lit((1 << _INDEX_BITS) - 1))
    joined = rows.join(F.broadcast(table), partition == F.col(_PARTITION))
    numbers = joined.withColumn(ORD, F.col("_lp_start") + within).drop(_INDEX, _PARTITION, "_lp_start")
    return Numbered(numbers, total, rows)


def _some(rows: DataFrame, wanted: DataFrame, digest: str, order: SparkColumn) -> DataFrame:
    """As many rows of each digest as `wanted` says."""
    found = rows.join(wanted, col(digest) == F.col(_SIDE), "inner")
    ranked = found.withColumn(_RANK, F.row_number().over(Window.partitionBy(_SIDE).orderBy(order)))
    return ranked.where(F.col(_RANK) <= F.col(_NET)).drop(_SIDE, _NET, _RANK)
