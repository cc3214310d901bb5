"""Auditing days: the rows of one day and history's changes since then add up to the rows of the next.

The rows of a day do not belong here (`lakeproof.lake.read.spark.as_of`). They are read from cuts where there are some; the
audit reads none, and folds history in the plainest way: the last row of each key wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.hidden_columns import LSN, OP, ORD, scratch
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.day_table import read_day
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.unchanged_values import completing
from lakeproof.lake.records.days import read_days
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.columns import col, digest_of_columns, pick
from lakeproof.lake.rows.correction import NET, join_on_key, multiset_difference
from lakeproof.lake.rows.history_ops import GAP, RESET
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.values.exact_kinds import needs_key_text

# `first`: no earlier day is kept, so there is nothing to compare it with.
DayStatus: TypeAlias = Literal["equal", "differs", "first", "not compared"]
_GONE = ("before", "delete", "correct_delete")
_DIGEST, _RANK = scratch("digest"), scratch("rank")


@dataclass(frozen=True, slots=True)
class DayAudit:
    """The result for one day: if it differs, in how many rows; if nothing was compared, why not."""

    status: DayStatus
    rows: int = 0
    reason: str | None = None


def audit_day(spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, day: date) -> DayAudit:
    """Compare a table's day with the day before and the changes in between; `cut_table` is that of the newest cut."""
    days, path = read_days(lake, table), lake.url(lake.paths.daily(table))
    earlier = day - timedelta(days=1)
    before, after = days.get(earlier.isoformat()), days.get(day.isoformat())
    if before is None and min(days, default=None) == day.isoformat():
        return DayAudit("first", reason="no earlier day is kept: nothing is to be compared yet")
    if before is None or after is None:
        return DayAudit("not compared", reason=f"day {earlier} is not there")
    if not before.is_over:
        return DayAudit("not compared", reason=f"day {earlier} was made before it was over: make it again")
    if before.columns_sha256 != after.columns_sha256:
        return DayAudit("not compared", reason="its columns changed on this day")
    low, schema = cut_table.history_low, in_lake(cut_table.version)
    if cut_table.incarnation > 1 or (low is not None and low.at_lsn > before.position):
        return DayAudit("not compared", reason="history does not have that day's changes any more")
    names = column_names(schema)
    then, now = (read_day(spark, path, each) for each in (earlier, day))
    if needs_key_text(schema) or not set(names) <= set(now.columns):
        return DayAudit("not compared", reason="its keys are not compared by value, or its columns have changed since")
    whole = read_layer(spark, lake, table, cut_table, "history")
    in_between = (F.col(LSN) > F.lit(int(before.position))) & (F.col(LSN) <= F.lit(int(after.position)))
    events = completing(cut_table, whole)(whole.where(in_between & (F.col(OP) != GAP)))
    sides = _sides(pick(then, names), pick(now, names), events, schema.key)
    desired, actual = (rows.withColumn(_DIGEST, digest_of_columns(rows, names)) for rows in sides)
    difference = multiset_difference(desired, actual, _DIGEST)
    rows = int(difference.agg(F.sum(F.abs(F.col(NET)))).collect()[0][0] or 0)
    return DayAudit("differs" if rows else "equal", rows, f"{rows:,} rows differ" if rows else None)


def _sides(then: DataFrame, now: DataFrame, events: DataFrame, key: tuple[str, ...]) -> tuple[DataFrame, DataFrame]:
    """Return the day before with the changes in between, and the day: the same rows, if nothing is wrong.

    Of a table without a key the rows that went are added to the day, since Spark can't take rows away by their exact forms:
    its EXCEPT ALL gives 0.0 for -0.0.
    """
    last = events.where(F.col(OP).isin("truncate", RESET)).agg(F.max(ORD)).collect()[0][0]
    if last is not None:
        then, events = then.limit(0), events.where(F.col(ORD) > F.lit(last))
    is_gone = F.col(OP).isin(*_GONE)
    if not key:
        came, gone = (pick(events.where(condition), now.columns) for condition in (~is_gone, is_gone))
        return then.unionAll(came), now.unionAll(gone)
    newest = F.row_number().over(Window.partitionBy(*map(col, key)).orderBy(F.col(ORD).desc()))
    final = events.withColumn(_RANK, newest).where(F.col(_RANK) == 1)
    kept = join_on_key(then, pick(final, list(key)), key, "left_anti", null_safe=True)
    return kept.unionAll(pick(final.where(~is_gone), now.columns)), now
