"""Tables without a key: a multiset of rows, of which k of n equal ones come or go.

Keyed tables belong to `net_change`; what a row's digest is made of to `exact`.

Rows are counted by digest: +1 for an insert or a new image, -1 for a deleted or an old row. What is left over is added (each
copy under its own `_lp_dup`, the ordinal of its arrival) or taken away (the copies that arrived first). A bag that
has fewer copies than the stream takes away is refused: the lake is not what the source was.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, KEY, OP, ORD
from lakeproof.lake.columns import current_columns
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.preconditions import FIRST
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion

# Rows of a range up to here send the digests or keys that they look for to every task; of more they are shuffled.
FEW_KEYS_MAX = 1_000_000


def signed(shape: SchemaVersion, events: DataFrame) -> DataFrame:
    """The events with `_lp_digest` of the row and `_lp_sign`, +1 for a row that comes and -1 for one that goes."""
    sign = F.when(F.col(OP).isin("insert", "update"), 1).otherwise(-1)
    return events.withColumn("_lp_digest", row_key(shape)).withColumn("_lp_sign", sign)


def bag_net_change(
    shape: SchemaVersion, events: DataFrame, counts: Counts, base: DataFrame | None
) -> tuple[DataFrame | None, DataFrame]:
    """(deletes by `_lp_key` and `_lp_dup`, with `_lp_first`; images); `base` has current's columns, None if empty."""
    if counts.inserts_only:
        return None, pick(events.withColumn(DUP, F.col(ORD)), current_columns(shape))
    sign = F.when(F.col(OP).isin("insert", "update"), 1).otherwise(-1)
    totals = events.groupBy(KEY).agg(F.sum(sign).alias("_lp_net")).where(F.col("_lp_net") != 0)
    totals = totals.select(F.col(KEY).alias("_lp_digest"), "_lp_net")
    come = events.where(F.col(OP).isin("insert", "update")).withColumn(DUP, F.col(ORD))
    images = ranked(come, F.col(DUP).desc()).join(
        totals, (F.col(KEY) == F.col("_lp_digest")) & (F.col("_lp_rank") <= F.col("_lp_net")), "left_semi"
    )
    gone = totals.where(F.col("_lp_net") < 0)
    taken = _taken(gone, base, few=counts.rows <= FEW_KEYS_MAX).withColumn(FIRST, F.monotonically_increasing_id())
    return taken, pick(images, current_columns(shape))


def ranked(rows: DataFrame, order: SparkColumn) -> DataFrame:
    """`_lp_rank` from 1 among the rows of equal `_lp_key`."""
    return rows.withColumn("_lp_rank", F.row_number().over(Window.partitionBy(KEY).orderBy(order)))


def _taken(gone: DataFrame, base: DataFrame | None, *, few: bool) -> DataFrame:
    """The copies that go: as many of each digest as were taken away, those that arrived first."""
    wanted = gone.select(
        "_lp_digest", F.explode(F.sequence(F.lit(1), (-F.col("_lp_net")).cast("int"))).alias("_lp_nth")
    )
    short = refuse_table("a row that the source deleted or updated is not in the lake, or not as often", "bigint")
    if base is None:
        return wanted.select(F.col("_lp_digest").alias(KEY), short.alias(DUP))
    digests = gone.select("_lp_digest")
    digests = F.broadcast(digests) if few else digests
    there = base.select(col(KEY), col(DUP)).join(digests, F.col(KEY) == F.col("_lp_digest"), "left_semi")
    numbered = ranked(there, F.col(DUP)).select(F.col(KEY).alias("_lp_in"), DUP, "_lp_rank")
    on_copy = (F.col("_lp_digest") == F.col("_lp_in")) & (F.col("_lp_nth") == F.col("_lp_rank"))
    found = wanted.join(numbered, on_copy, "left")
    return found.select(F.col("_lp_digest").alias(KEY), F.coalesce(F.col(DUP), short).alias(DUP))
