"""Rows matched by the columns that tell them apart: joins on a key, and differences of multisets.

Computing the digest that stands for a whole row belongs to `exact`; choosing which rows to delete and insert to
`correction` and `lakeproof.lake.fold`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import scratch
from lakeproof.lake.rows.columns import col

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
