"""Unchanged TOAST: the row that holds each large value that the stream did not send again.

Adding changes up belongs to `net_change`, fetching the values to `unchanged_values`.

Each change belongs to a run of one row under one key; runs are linked by key moves into lineages:

    key 1:  update ── move out          a run begins with an insert or a move in and ends with a delete or a move out;
                          │             a key's first run may have begun before the range: its base is in the lake
    key 9:             move in ── move out
                                      │ a lineage is a chain of runs; its root is found by pointer doubling
    key 2:                         move in ── update

Invariant: keys are unique at every change (the replica identity's index can't be deferrable), so a key's runs follow each
other. Cost: two windows over the batch; `ROUNDS_MAX` joins of the moves with themselves, or one pass on the driver.

The holder of a value that an update leaves out is the last row of its row's lineage in the range that has the value, else
the holder that current names for the row under the key that the lineage began with. A value found in neither is refused
(nothing-guessed). Cost: one window over the batch's ordinals, and one scan of the base for the keys concerned only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED, scratch
from lakeproof.lake.columns import has_old_rows, large_columns
from lakeproof.lake.fold.unchanged_values import NOT_THERE, has_value, holder_ordinal, marks
from lakeproof.lake.rows.columns import col, int_pairs, pick, relation
from lakeproof.lake.rows.correction import same_key
from lakeproof.lake.rows.landing_rows import LandedChanges
from lakeproof.lake.rows.memory import persist
from lakeproof.lake.rows.refusal import refuse_invariant, refuse_table
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import FIXED_SIZE_KINDS

# Up to this number, the keys whose base is fetched are sent to every task, so that the base is scanned without a shuffle.
BROADCAST_KEYS_MAX = 1_000_000
# The same limit for keys that contain texts, of which an index takes up to 2,700 octets.
BROADCAST_TEXT_KEYS_MAX = 100_000
_MISSING = scratch("missing")


@dataclass(frozen=True, slots=True)
class MarkedEvents:
    """`events` with `_lp_from` in place of `_lp_unchanged`; `sources` are the rows that hold what they name.

    Both are persisted, as is all of `kept`, until the caller unpersists it.
    """

    events: DataFrame
    sources: DataFrame
    kept: tuple[DataFrame, ...]


def mark(
    session: SparkSession, changes: LandedChanges, key: Sequence[str], base: DataFrame | None, truncates: Sequence[int]
) -> MarkedEvents:
    """Find the holder of every unchanged value; `changes.frame` must have the `key` columns.

    `base` is the table's rows before the range (current's columns), None for an empty table. Evaluating the events raises
    refusals (`rows.refusal`) if a value has no holder.
    """
    schema = changes.schema
    if not key or schema.is_bag or has_old_rows(schema):
        raise InvariantError(str(schema.table), "has unchanged values but no key to find them by", "report this")
    events = changes.frame.where(F.col(OP) != "truncate")
    events = with_lineage(session, events, key, truncates, moves=changes.counts.befores > 0)
    last = persist(_with_last_holders(events, schema))
    kept = [last]
    stored = None
    if base is not None:
        stored = persist(
            _base_rows(last, schema, key, base, broadcast=changes.counts.unchanged <= _keys_max(schema, key))
        )
        kept.append(stored)
    with_base = _with_base(last, schema, key, stored)
    rows = with_base.select(*(_mark(schema) if n == UNCHANGED else col(n) for n in changes.frame.columns))
    if changes.counts.truncates:
        truncated = changes.frame.where(F.col(OP) == "truncate").withColumn(UNCHANGED, F.lit(None).cast("string"))
        rows = rows.unionAll(truncated.withColumnRenamed(UNCHANGED, FROM))
    rows = persist(rows)
    names = [*(schema.columns[i].name for i in large_columns(schema)), TEXT, ORD, FROM]
    sources = pick(rows.where(F.col(OP).isin("insert", "update")), names)
    if stored is not None:
        sources = sources.unionAll(pick(stored, names))
    return MarkedEvents(rows, sources, (rows, *kept))


def _keys_max(schema: SchemaVersion, key: Sequence[str]) -> int:
    fixed = {c.name for c in schema.columns if c.kind in FIXED_SIZE_KINDS}
    return BROADCAST_KEYS_MAX if fixed.issuperset(key) else BROADCAST_TEXT_KEYS_MAX


def _with_last_holders(events: DataFrame, schema: SchemaVersion) -> DataFrame:
    """Add `__lp_last_<i>`: the newest row of the lineage, up to each row, that was given a value of column i."""
    so_far = Window.partitionBy(LINEAGE).orderBy(ORD).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    after_image = F.col(OP).isin("insert", "update")
    given = {i: F.when(after_image & ~_is_unchanged(i), F.col(ORD)) for i in large_columns(schema)}
    newest = {_last(i): F.last(ordinal, ignorenulls=True).over(so_far) for i, ordinal in given.items()}
    events = events.withColumns(newest)
    missing = reduce(or_, (_is_unchanged(i) & F.col(_last(i)).isNull() for i in given))
    return events.withColumn(_MISSING, missing)


def _base_rows(
    events: DataFrame, schema: SchemaVersion, key: Sequence[str], base: DataFrame, *, broadcast: bool
) -> DataFrame:
    """Return the base's rows whose values may be needed: the key as `__lp_in_<i>`, the values, and their holders."""
    root = _root_key(key)
    keys = events.where(F.col(_MISSING) & F.col(HAS_BASE)).select(*root).distinct()
    keys = F.broadcast(keys) if broadcast else keys
    names = [*(schema.columns[i].name for i in large_columns(schema)), TEXT, ORD, FROM]
    rows = base.select(*(col(n) for n in names), *(col(k).alias(n) for k, n in zip(key, _base_key(key), strict=True)))
    return rows.join(keys, same_key(_base_key(key), root, null_safe=False), "left_semi")


def _with_base(events: DataFrame, schema: SchemaVersion, key: Sequence[str], stored: DataFrame | None) -> DataFrame:
    """Add `__lp_base_<i>`: the holder of column i of the row that the lineage began with; NULL if it has none."""
    columns = {i: schema.columns[i] for i in large_columns(schema)}
    if stored is None:
        nothing = [F.lit(None).cast("bigint").alias(_base(i)) for i in columns]
        return events.select("*", *nothing)
    holders = [
        F.when(has_value([c.name], c.attnum), holder_ordinal(c.attnum)).alias(_base(i)) for i, c in columns.items()
    ]
    # A damaged lake may have a key twice; history must not get a row twice because of it.
    names = _base_key(key)
    rows = stored.select(*(F.col(n) for n in names), *holders).dropDuplicates(names)
    on_key = same_key(names, _root_key(key), null_safe=False)
    return events.join(rows, on_key & F.col(_MISSING) & F.col(HAS_BASE), "left")


def _mark(schema: SchemaVersion) -> SparkColumn:
    """Return `_lp_from` of a row; refused if an unchanged value has no holder."""
    unknown = refuse_invariant(
        "an unchanged value of a row that was inserted in the same range was never sent", "bigint"
    )
    absent = refuse_table(NOT_THERE, "bigint")
    holders = {}
    for i in large_columns(schema):
        from_base = F.when(~F.col(HAS_BASE), unknown).otherwise(F.coalesce(F.col(_base(i)), absent))
        place = F.coalesce(F.col(_last(i)), from_base)
        holders[schema.columns[i].attnum] = F.when(_is_unchanged(i), place)
    return F.when(F.col(UNCHANGED).isNotNull(), marks(holders)).alias(FROM)


def _root_key(key: Sequence[str]) -> list[str]:
    return [f"{BASE_KEY}{i}" for i in range(len(key))]


def _base_key(key: Sequence[str]) -> list[str]:
    return [scratch(f"in_{i}") for i in range(len(key))]


def _last(i: int) -> str:
    return scratch(f"last_{i}")


def _base(i: int) -> str:
    return scratch(f"base_{i}")


def _is_unchanged(i: int) -> SparkColumn:
    # Three-valued logic would make "not unchanged" null in nearly every row.
    return F.coalesce(F.array_contains(F.col(UNCHANGED), F.lit(i).cast("smallint")), F.lit(False))


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
