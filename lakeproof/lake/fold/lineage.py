"""The row to which each change belongs: runs of one row under one key, linked by key moves into lineages.

Only unchanged TOAST values need this (`toast`); adding changes up (`net_change`) does not.

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

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import OP, ORD, scratch
from lakeproof.lake.rows.columns import col, int_pairs, relation
from lakeproof.lake.rows.matching import same_key

_ABOVE = scratch("above")
_AT = scratch("at")
_BLOCK = scratch("block")
_CHILD = scratch("child")
_FIRST = scratch("first")
_OLD_HALF = scratch("old_half")
_HALF = scratch("half")
_IN = scratch("in")
_IN_BLOCK = scratch("in_block")
_MOVED = scratch("moved")
_PARENT = scratch("parent")
_PRIOR = scratch("prior")
_ROOT = scratch("root")

BASE_KEY = scratch("base_key_")
LINEAGE = scratch("lineage")
HAS_BASE = scratch("has_base")
_EPOCH = scratch("epoch")
_BIRTH = scratch("birth")
_DEATH = scratch("death")
_RUN = scratch("run")
_RUN_NUMBER = scratch("run_number")
# Up to this number, moves are chained on the driver in one pass (16 bytes each); more are chained by joins in Spark.
DRIVER_MOVES_MAX = 200_000
# 2**40 moves in one chain are more than a cycle can have.
ROUNDS_MAX = 40
# Up to this number, truncates are literals of the query, which checks each for each row; more are checked in blocks of this
# size.
LITERAL_TRUNCATES_MAX = 1_000


def with_lineage(
    session: SparkSession, events: DataFrame, key: Sequence[str], truncates: Sequence[int], *, moves: bool
) -> DataFrame:
    """Return `events` (no truncate rows) with `__lp_lineage`, `__lp_has_base` and the root's key in `__lp_base_key_<i>`.

    `truncates` are the `_lp_ord` of the truncates in the range: no lineage crosses one. `moves`: there may be key
    moves. Rows of one lineage share its number; `__lp_has_base` is true if the lineage began before the range.
    """
    events = _with_epoch(session, events, truncates)
    events = _with_moves(events, key) if moves else _without_moves(events)
    runs = _with_runs(events, key)
    if moves:
        roots = root_runs(session, _links(runs))
        runs = runs.join(roots, F.col(_RUN) == F.col(_CHILD), "left")
        runs = runs.withColumn(LINEAGE, F.coalesce(F.col(_ROOT), F.col(_RUN))).drop(_CHILD, _ROOT)
    else:
        runs = runs.withColumn(LINEAGE, F.col(_RUN))
    first = Window.partitionBy(LINEAGE).orderBy(ORD).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    has_base = (F.col(_RUN_NUMBER) == 0) & (F.col(_EPOCH) == 0)
    roots_of = {f"{BASE_KEY}{i}": F.first(col(name)).over(first) for i, name in enumerate(key)}
    # All at once: Spark analyses the whole plan anew for every step.
    runs = runs.withColumns({HAS_BASE: F.first(has_base).over(first), **roots_of})
    return runs.drop(_EPOCH, _BIRTH, _DEATH, _RUN, _RUN_NUMBER)


def root_runs(session: SparkSession, links: DataFrame, driver_max: int = DRIVER_MOVES_MAX) -> DataFrame:
    """Return each child's `__lp_root`; `links` are `__lp_child` and `__lp_parent`: run numbers, the parent's the lesser.

    Few links are sent to every task; many would fill the driver, and are shuffled.
    """
    few = links.limit(driver_max + 1).collect()
    if len(few) <= driver_max:
        roots: dict[int, int] = {}
        for child, parent in sorted((int(r[0]), int(r[1])) for r in few):
            roots[child] = roots.get(parent, parent)
        return F.broadcast(relation(session, int_pairs(_CHILD, _ROOT, roots)))
    return _doubled(links)


def _doubled(links: DataFrame) -> DataFrame:
    """Replace, in each round, a run's ancestor by that ancestor's ancestor, so that distances double."""
    now = links.select(_CHILD, F.col(_PARENT).alias(_ROOT)).localCheckpoint()
    for _ in range(ROUNDS_MAX):
        above = now.select(F.col(_CHILD).alias(_AT), F.col(_ROOT).alias(_ABOVE))
        joined = now.join(above, F.col(_ROOT) == F.col(_AT), "left").localCheckpoint()
        if joined.where(F.col(_ABOVE).isNotNull()).isEmpty():
            return now
        now = joined.select(_CHILD, F.coalesce(F.col(_ABOVE), F.col(_ROOT)).alias(_ROOT))
    raise InvariantError("key moves", f"no end of their chains after {ROUNDS_MAX} doublings", "report this")


def _with_epoch(
    session: SparkSession, events: DataFrame, truncates: Sequence[int], block: int = LITERAL_TRUNCATES_MAX
) -> DataFrame:
    """Add the number of truncates before each row; `truncates` are in order."""
    if len(truncates) <= block:
        return events.withColumn(_EPOCH, _before(truncates))
    firsts = range(0, len(truncates), block)
    table = relation(
        session,
        pa.table(
            {
                _BLOCK: pa.array([i // block + 1 for i in firsts], pa.int32()),
                _FIRST: pa.array(firsts, pa.int32()),
                _IN: pa.array([truncates[i : i + block] for i in firsts], pa.list_(pa.int64())),
            }
        ),
    )
    # The block of the newest truncate before the row; 0 before the first.
    events = events.withColumn(_IN_BLOCK, _before(truncates[::block]))
    events = events.join(F.broadcast(table), F.col(_IN_BLOCK) == F.col(_BLOCK), "left")
    within = F.expr(f"{_FIRST} + size(filter({_IN}, t -> t < {ORD}))")
    events = events.withColumn(_EPOCH, F.when(F.col(_IN_BLOCK) == 0, F.lit(0)).otherwise(within))
    return events.drop(_IN_BLOCK, _BLOCK, _FIRST, _IN)


def _before(truncates: Sequence[int]) -> SparkColumn:
    if not truncates:
        return F.lit(0)
    ordinals = ", ".join(f"{t}L" for t in truncates)
    return F.expr(f"size(filter(array({ordinals}), t -> t < {ORD}))")


def _without_moves(events: DataFrame) -> DataFrame:
    return events.withColumns({_BIRTH: F.col(OP) == "insert", _DEATH: F.col(OP) == "delete"})


def _with_moves(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Mark the old and the new half of each key move; an update's old half has the ordinal right before it."""
    names = [scratch(f"to_{i}") for i in range(len(key))]
    before = events.where(F.col(OP) == "before").select(F.col(ORD).alias(_OLD_HALF), *(col(k) for k in key))
    update = events.where(F.col(OP) == "update").select(
        (F.col(ORD) - 1).alias(_PRIOR), *(col(k).alias(n) for k, n in zip(key, names, strict=True))
    )
    moved = before.join(update, F.col(_OLD_HALF) == F.col(_PRIOR)).where(~same_key(key, names, null_safe=True))
    halves = moved.select(
        F.explode(F.array(F.col(_OLD_HALF), F.col(_OLD_HALF) + 1)).alias(_HALF), F.lit(1).alias(_MOVED)
    )
    events = events.join(halves, F.col(ORD) == F.col(_HALF), "left")
    is_moved = F.col(_MOVED).isNotNull()
    birth = (F.col(OP) == "insert") | (is_moved & (F.col(OP) == "update"))
    death = (F.col(OP) == "delete") | (is_moved & (F.col(OP) == "before"))
    return events.withColumns({_BIRTH: birth, _DEATH: death}).drop(_HALF, _MOVED)


def _with_runs(events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Add a run's number within its key, and its name: the ordinal of its first row, which is unique."""
    by_key = Window.partitionBy(_EPOCH, *(col(k) for k in key)).orderBy(ORD)
    so_far = by_key.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    events = events.withColumn(_RUN_NUMBER, F.sum(F.col(_BIRTH).cast("int")).over(so_far))
    in_run = Window.partitionBy(_EPOCH, *(col(k) for k in key), _RUN_NUMBER)
    return events.withColumn(_RUN, F.min(ORD).over(in_run))


def _links(runs: DataFrame) -> DataFrame:
    moved_out = runs.where(F.col(_DEATH) & (F.col(OP) == "before"))
    return moved_out.select((F.col(ORD) + 1).alias(_CHILD), F.col(_RUN).alias(_PARENT))
