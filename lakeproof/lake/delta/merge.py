"""The portable make of the one commit: a MERGE that deletes and inserts, by Delta's public interface.

    source = deletes (key, true) ∪ images (row, false)
    ON s.delete AND t.key = s.key [AND t.key BETWEEN literals]   WHEN MATCHED DELETE
    WHEN NOT MATCHED AND NOT s.delete                            INSERT

When it is taken belongs to `apply`; it is also the oracle of `by_vectors`.

An update is a delete and an insert of one commit: so the target is read for its key columns alone (3.4 s where the textbook
MERGE takes 6.3 s, 10 k changes in 10 M rows). Delta prunes a MERGE's target by literals only, hence the bounds.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.commit import Change
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.preconditions import check_rows
from lakeproof.lake.spark.session import with_settings

_DELETE = "_lp_delete"
_VECTORS = "spark.databricks.delta.merge.deletionVectors.persistent"


def check_merge(session: SparkSession, path: str, change: Change, deletes: DataFrame, presupposed: int) -> None:
    """Raise DriftedError where the rows that the MERGE would delete are not those that are presupposed: a job before it."""
    rows = session.read.format("delta").load(path)
    if change.bounds is not None and len(change.key) == 1 and not change.null_safe:
        rows = rows.where(col(change.key[0]).between(*change.bounds))
    keys = F.broadcast(deletes) if change.few else deletes
    check_rows(path, rows, keys, change.key, presupposed, null_safe=change.null_safe)


def merge(session: SparkSession, path: str, change: Change, deletes: DataFrame) -> None:
    """Commit; the transaction's identity stands in the session's settings."""
    source = pick(deletes, change.key).withColumn(_DELETE, F.lit(True))
    if change.images is not None:
        coming = change.images.withColumn(_DELETE, F.lit(False))
        source = source.unionByName(coming, allowMissingColumns=True)
    equal = "<=>" if change.null_safe else "="
    condition = [f"s.{_DELETE}", *(f"t.{quoted(k)} {equal} s.{quoted(k)}" for k in change.key)]
    if change.bounds is not None and len(change.key) == 1:
        condition.append(f"t.{quoted(change.key[0])} BETWEEN {change.bounds[0]} AND {change.bounds[1]}")
    if change.few:
        # Delta materialises the source and forgets its size; the target's keys would be shuffled to meet it.
        source = F.broadcast(source)
    into = DeltaTable.forPath(session, path).alias("t").merge(source.alias("s"), " AND ".join(condition))
    into = into.whenMatchedDelete()
    if change.images is not None:
        values: dict[str, str | Column] = {quoted(c): f"s.{quoted(c)}" for c in change.images.columns}
        into = into.whenNotMatchedInsert(condition=f"NOT s.{_DELETE}", values=values)
    # Where it writes deletion vectors, Delta's MERGE ends with "Unexpected row" at a key that is NULL in all columns and
    # meets no row, beside one that meets some (4.4.0). Whole files it writes rightly.
    with with_settings(session, {_VECTORS: "false"} if change.null_safe else {}):
        into.execute()
