"""Whose row a change is: runs of one row under one key, linked by key moves into lineages.

Only unchanged TOAST values need this (`toast`); what a batch adds up to (`net_change`) does not.

    key 1:  update ── move out          a run begins with an insert or a move in and ends with a delete or a move out;
                          │             a key's first run may have begun before the range: its base is in the lake
    key 9:             move in ── move out
                                      │ a lineage is a chain of runs; its root is found by pointer doubling
    key 2:                         move in ── update

Invariant: keys are unique at every change (the replica identity's index can't be deferrable), so a key's runs follow each
other. Cost: two windows over the batch; `ROUNDS_MAX` joins of the moves with themselves, or one pass on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import OP, ORD
from lakeproof.lake.rows.columns import col

BASE_KEY = "_lp_base_key_"
LINEAGE = "_lp_lineage"
HAS_BASE = "_lp_has_base"
_EPOCH = "_lp_epoch"
_BIRTH = "_lp_birth"
_DEATH = "_lp_death"
_RUN = "_lp_run"
_RUN_NUMBER = "_lp_run_number"
# Moves up to here are chained on the driver in one pass (16 bytes each); above, by joins in Spark.
DRIVER_MOVES_MAX = 200_000
# 2**40 moves in one chain are more than a cycle can have.
ROUNDS_MAX = 40
# Truncates up to here stand in the query, which looks at each for each row; more are looked at in blocks of as many.
LITERAL_TRUNCATES_MAX = 1_000


def with_lineage(
    session: SparkSession, events: DataFrame, key: Sequence[str], truncates: Sequence[int], *, moves: bool
) -> DataFrame:
    """`events` (no truncate rows) with `_lp_lineage`, `_lp_has_base` and the root's key in `_lp_base_key_<i>`.

    `truncates` are the `_lp_ord` of the truncates in the range: no lineage crosses one. `moves` says that there may be key
    moves. Rows of one lineage share its number; the base is there where the lineage began before the range.
    """
    events = _with_epoch(session, events, truncates)
    events = _with_moves(events, key) if moves else _without_moves(events)
    runs = _with_runs(events, key)
    if moves:
        roots = root_runs(session, _links(runs))
        runs = runs.join(roots, F.col(_RUN) == F.col("_lp_child"), "left")
        runs = runs.withColumn(LINEAGE, F.coalesce(F.col("_lp_root"), F.col(_RUN))).drop("_lp_child", "_lp_root")
    else:
        runs = runs.withColumn(LINEAGE, F.col(_RUN))
    first = Window.partitionBy(LINEAGE).orderBy(ORD).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    has_base = (F.col(_RUN_NUMBER) == 0) & (F.col(_EPOCH) == 0)
    roots_of = {f"{BASE_KEY}{i}": F.first(col(name)).over(first) for i, name in enumerate(key)}
    # All at once: Spark analyses the whole plan anew for every step.
    runs = runs.withColumns({HAS_BASE: F.first(has_base).over(first), **roots_of})
    return runs.drop(_EPOCH, _BIRTH, _DEATH, _RUN, _RUN_NUMBER)


def root_runs(session: SparkSession, links: DataFrame, driver_max: int = DRIVER_MOVES_MAX) -> DataFrame:
    """`links` (`_lp_child`, `_lp_parent`: run numbers, a parent's less than its child's) → each child's `_lp_root`.

    Where they are few they are sent to every task; many would fill the driver, and are shuffled.
    """
    found = links.limit(driver_max + 1).collect()
    if len(found) <= driver_max:
        roots: dict[int, int] = {}
        for child, parent in sorted((int(r[0]), int(r[1])) for r in found):
            roots[child] = roots.get(parent, parent)
        return F.broadcast(session.createDataFrame(list(roots.items()), "_lp_child bigint, _lp_root bigint"))
    return _doubled(links)


def _doubled(links: DataFrame) -> DataFrame:
    """Each round replaces a run's ancestor by that one's ancestor, so distances double."""
    now = links.select("_lp_child", F.col("_lp_parent").alias("_lp_root")).localCheckpoint()
    for _ in range(ROUNDS_MAX):
        above = now.select(F.col("_lp_child").alias("_lp_at"), F.col("_lp_root").alias("_lp_above"))
        joined = now.join(above, F.col("_lp_root") == F.col("_lp_at"), "left").localCheckpoint()
        if joined.where(F.col("_lp_above").isNotNull()).isEmpty():
            return now
        now = joined.select("_lp_child", F.coalesce(F.col("_lp_above"), F.col("_lp_root")).alias("_lp_root"))
    raise InvariantError("key moves", f"no end of their chains after {ROUNDS_MAX} doublings", "report this")


def _with_epoch(
    session: SparkSession, events: DataFrame, truncates: Sequence[int], block: int = LITERAL_TRUNCATES_MAX
) -> DataFrame:
    """How many truncates came before a row; `truncates` are in order."""
    if len(truncates) <= block:
        return events.withColumn(_EPOCH, _before(truncates))
    blocks = [(i // block + 1, i, truncates[i : i + block]) for i in range(0, len(truncates), block)]
    table = session.createDataFrame(blocks, "_lp_block int, _lp_first int, _lp_in array<bigint>")
    # The block of the newest truncate before the row; 0 before the first.
    events = events.withColumn("_lp_in_block", _before(truncates[::block]))
    events = events.join(F.broadcast(table), F.col("_lp_in_block") == F.col("_lp_block"), "left")
    within = F.expr(f"_lp_first + size(filter(_lp_in, t -> t < {ORD}))")
    events = events.withColumn(_EPOCH, F.when(F.col("_lp_in_block") == 0, F.lit(0)).otherwise(within))
    return events.drop("_lp_in_block", "_lp_block", "_lp_first", "_lp_in")


def _before(truncates: Sequence[int]) -> SparkColumn:
    if not truncates:
        return F.lit(0)
    ordinals = ", ".join(f"{t}L" for t in truncates)
    return F.expr(f"size(filter(array({ordinals}), t -> t < {ORD}))")


def _without_moves(events: DataFrame) -> DataFrame:
    return events.withColumns({_BIRTH: F.col(OP) == "insert", _DEATH: F.col(OP) == "delete"})


def _with_moves(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Mark the old and the new half of each key move; an update's old half has the ordinal right before it."""
    names = [f"_lp_to_{i}" for i in range(len(key))]
    before = events.where(F.col(OP) == "before").select(F.col(ORD).alias("_lp_from"), *(col(k) for k in key))
    update = events.where(F.col(OP) == "update").select(
        (F.col(ORD) - 1).alias("_lp_prior"), *(col(k).alias(n) for k, n in zip(key, names, strict=True))
    )
    same = F.lit(True)
    for k, n in zip(key, names, strict=True):
        same = same & col(k).eqNullSafe(F.col(n))
    moved = before.join(update, F.col("_lp_from") == F.col("_lp_prior")).where(~same)
    halves = moved.select(
        F.explode(F.array(F.col("_lp_from"), F.col("_lp_from") + 1)).alias("_lp_half"), F.lit(1).alias("_lp_moved")
    )
    events = events.join(halves, F.col(ORD) == F.col("_lp_half"), "left")
    is_moved = F.col("_lp_moved").isNotNull()
    birth = (F.col(OP) == "insert") | (is_moved & (F.col(OP) == "update"))
    death = (F.col(OP) == "delete") | (is_moved & (F.col(OP) == "before"))
    return events.withColumns({_BIRTH: birth, _DEATH: death}).drop("_lp_half", "_lp_moved")


def _with_runs(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """A run's number in its key, and its name: the ordinal of its first row, which no other run has."""
    by_key = Window.partitionBy(_EPOCH, *(col(k) for k in key)).orderBy(ORD)
    so_far = by_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    events = events.withColumn(_RUN_NUMBER, F.sum(F.col(_BIRTH).cast("int")).over(so_far))
    in_run = Window.partitionBy(_EPOCH, *(col(k) for k in key), _RUN_NUMBER)
    return events.withColumn(_RUN, F.min(ORD).over(in_run))


def _links(runs: DataFrame) -> DataFrame:
    moved_out = runs.where(F.col(_DEATH) & (F.col(OP) == "before"))
    return moved_out.select((F.col(ORD) + 1).alias("_lp_child"), F.col(_RUN).alias("_lp_parent"))
