"""Tables without a key: a multiset of rows, of which k of n equal rows are inserted or deleted.

Keyed tables belong to `net_change`; the digest that stands for a row to `rows.exact`; the same in Arrow to `counted_fold`.

Rows are counted by digest: +1 for an insert or a new image, -1 for a deleted or an old row. Surplus rows are inserted (each
copy under its own `_lp_dup`, the ordinal of its arrival), missing ones deleted (the copies that arrived first). A bag that
has fewer copies than the stream deletes is refused: then the lake is not what the source was.
"""

from __future__ import annotations

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.hidden_columns import DUP, KEY, OP, ORD, scratch
from lakeproof.lake.columns import current_columns
from lakeproof.lake.fold.counted_fold import ROW_NOT_THERE
from lakeproof.lake.rows.columns import col, pick, row_key
from lakeproof.lake.rows.file_rows import DIGEST
from lakeproof.lake.rows.keys_in_memory import FIRST
from lakeproof.lake.rows.matching import NET, net_counts
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion

# Up to this many rows in a range, the digests or keys to look for are sent to every task; more are shuffled.
FEW_KEYS_MAX = 1_000_000
SIGN, RANK = scratch("sign"), scratch("rank")
_COPY, _STORED = scratch("copy"), scratch("stored")


def signed(schema: SchemaVersion, events: DataFrame) -> DataFrame:
    """Return the events with `__lp_digest` of the row and `__lp_sign`: +1 for an inserted row, -1 for a deleted one."""
    return events.withColumn(DIGEST, row_key(schema)).withColumn(SIGN, _sign())


def bag_net_change(
    schema: SchemaVersion, events: DataFrame, counts: ChangeCounts, base: DataFrame | None
) -> tuple[DataFrame | None, DataFrame]:
    """Return (deletes by `_lp_key` and `_lp_dup`, with `__lp_first`; images).

    `base` has current's columns, None if empty.
    """
    if counts.inserts_only:
        return None, pick(events.withColumn(DUP, F.col(ORD)), current_columns(schema))
    totals = net_counts(events, KEY, _sign()).withColumnRenamed(KEY, DIGEST)
    inserted = events.where(F.col(OP).isin("insert", "update")).withColumn(DUP, F.col(ORD))
    images = _ranked(inserted, F.col(DUP).desc()).join(
        totals, (F.col(KEY) == F.col(DIGEST)) & (F.col(RANK) <= F.col(NET)), "left_semi"
    )
    missing = totals.where(F.col(NET) < 0)
    deletes = _oldest_copies(missing, base, broadcast=counts.rows <= FEW_KEYS_MAX)
    return deletes.withColumn(FIRST, F.monotonically_increasing_id()), pick(images, current_columns(schema))


def _sign() -> SparkColumn:
    return F.when(F.col(OP).isin("insert", "update"), 1).otherwise(-1)


def _ranked(rows: DataFrame, order: SparkColumn) -> DataFrame:
    """Add `__lp_rank`, from 1 among the rows of equal `_lp_key`."""
    return rows.withColumn(RANK, F.row_number().over(Window.partitionBy(KEY).orderBy(order)))


def _oldest_copies(missing: DataFrame, base: DataFrame | None, *, broadcast: bool) -> DataFrame:
    """Return the copies to delete: as many of each digest as are missing, those that arrived first."""
    copies = missing.select(DIGEST, F.explode(F.sequence(F.lit(1), (-F.col(NET)).cast("int"))).alias(_COPY))
    short = refuse_table(ROW_NOT_THERE, "bigint")
    if base is None:
        return copies.select(F.col(DIGEST).alias(KEY), short.alias(DUP))
    digests = missing.select(DIGEST)
    digests = F.broadcast(digests) if broadcast else digests
    stored = base.select(col(KEY), col(DUP)).join(digests, F.col(KEY) == F.col(DIGEST), "left_semi")
    stored = _ranked(stored, F.col(DUP)).select(F.col(KEY).alias(_STORED), DUP, RANK)
    on_copy = (F.col(DIGEST) == F.col(_STORED)) & (F.col(_COPY) == F.col(RANK))
    matched = copies.join(stored, on_copy, "left")
    return matched.select(F.col(DIGEST).alias(KEY), F.coalesce(F.col(DUP), short).alias(DUP))
