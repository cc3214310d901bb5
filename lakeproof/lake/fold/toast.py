"""Unchanged TOAST: the row that holds each large value that the stream did not send again.

Assigning changes to rows belongs to `lineage`, adding changes up to `net_change`, fetching the values to `unchanged_values`.

The holder of a value that an update leaves out is the last row of its row's lineage in the range that has the value, else
the holder that current names for the row under the key that the lineage began with. A value found in neither is refused
(nothing-guessed). Cost: one window over the batch's ordinals, and one scan of the base for the keys concerned only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import FROM, OP, ORD, TEXT, UNCHANGED, scratch
from lakeproof.lake.columns import has_old_rows, large_columns
from lakeproof.lake.fold.lineage import BASE_KEY, HAS_BASE, LINEAGE, with_lineage
from lakeproof.lake.fold.unchanged_values import NOT_THERE, has_value, holder, marks
from lakeproof.lake.rows.columns import col, pick
from lakeproof.lake.rows.landing_rows import Changes
from lakeproof.lake.rows.matching import same_key
from lakeproof.lake.rows.memory import keep
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
    session: SparkSession, changes: Changes, key: Sequence[str], base: DataFrame | None, truncates: Sequence[int]
) -> MarkedEvents:
    """Find the holder of every unchanged value; `changes.frame` must have the `key` columns.

    `base` is the table's rows before the range (current's columns), None for an empty table. Evaluating the events raises
    refusals (`refusal.refusals`) if a value has no holder.
    """
    schema = changes.schema
    if not key or schema.is_bag or has_old_rows(schema):
        raise InvariantError(str(schema.table), "has unchanged values but no key to find them by", "report this")
    events = changes.frame.where(F.col(OP) != "truncate")
    events = with_lineage(session, events, key, truncates, moves=changes.counts.befores > 0)
    last = keep(_with_last_holders(events, schema))
    kept = [last]
    stored = None
    if base is not None:
        stored = keep(_base_rows(last, schema, key, base, broadcast=changes.counts.unchanged <= _keys_max(schema, key)))
        kept.append(stored)
    held = _with_base(last, schema, key, stored)
    rows = held.select(*(_mark(schema) if n == UNCHANGED else col(n) for n in changes.frame.columns))
    if changes.counts.truncates:
        truncated = changes.frame.where(F.col(OP) == "truncate").withColumn(UNCHANGED, F.lit(None).cast("string"))
        rows = rows.unionAll(truncated.withColumnRenamed(UNCHANGED, FROM))
    rows = keep(rows)
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
    holders = [F.when(has_value([c.name], c.attnum), holder(c.attnum)).alias(_base(i)) for i, c in columns.items()]
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
