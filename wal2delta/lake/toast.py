"""Unchanged TOAST: giving updates the large values that the stream did not send again.

Whose row a change is belongs to `lineage`; what comes of the changes to `net_change`.

A value that an update leaves out is the last one that its row's lineage had in the range, else what the lake holds
under the key that the lineage began with. Its exact text in `_w2d_text` comes from the same place. A value found in
neither is refused (nothing-guessed). Cost: one window over the batch, and one scan of the base for the keys concerned
only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from wal2delta.errors import InvariantError
from wal2delta.lake.changes import Changes
from wal2delta.lake.columns import OP, ORD, TEXT, UNCHANGED, col, column_names
from wal2delta.lake.lineage import BASE_KEY, HAS_BASE, LINEAGE, with_lineage
from wal2delta.lake.refusal import refuse_invariant, refuse_table
from wal2delta.schema import SchemaVersion

# Values of these kinds have a fixed, small size: PostgreSQL never stores them out of line.
NEVER_TOASTED = frozenset(
    {"bool", "int2", "int4", "int8", "float4", "float8", "date", "timestamp", "timestamptz", "uuid", "name", "enum"}
)
# Up to here the keys whose base is fetched are sent to every task, so that the base is scanned without a shuffle.
BROADCAST_KEYS_MAX = 1_000_000
_TEXTS = "_w2d_texts"
_FOUND = "_w2d_found"
_MAP = "map<string,string>"


def resolve(
    session: SparkSession, changes: Changes, key: Sequence[str], base: DataFrame | None, truncates: Sequence[int]
) -> tuple[DataFrame, DataFrame]:
    """The changes with every after-image complete, `_w2d_unchanged` gone; `changes.frame` must have the `key` columns.

    `base` is the table's rows before the range (current's columns), None for an empty table. Evaluating the result raises
    refusals (`refusal.refusals`) where a value is nowhere to be found. The result is worth persisting; the second frame is
    persisted already, until the caller unpersists it.
    """
    shape = changes.shape
    if shape.is_bag or not key:
        raise InvariantError(str(shape.table), "has unchanged values but no key to find them by", "report this")
    wanted = [i for i, c in enumerate(shape.columns) if c.kind not in NEVER_TOASTED]
    events = changes.frame.where(F.col(OP) != "truncate")
    events = with_lineage(session, events, key, truncates, moves=changes.counts.befores > 0)
    events = _with_last_values(events, shape, wanted)
    missing = _any(_is_missing(i) for i in wanted)
    events = events.withColumn("_w2d_missing", F.coalesce(missing, F.lit(False)))
    kept = events.persist()
    events = _with_base(kept, shape, wanted, key, base, few=changes.counts.unchanged <= BROADCAST_KEYS_MAX)
    resolved = events.select(*_result(changes.frame, shape, wanted))
    if changes.counts.truncates == 0:
        return resolved, kept
    return resolved.unionByName(changes.frame.where(F.col(OP) == "truncate").drop(UNCHANGED)), kept


def _with_last_values(events: DataFrame, shape: SchemaVersion, wanted: Sequence[int]) -> DataFrame:
    """`_w2d_last_<i>`: the newest value that column i was given in the lineage, with its exact text, up to each row."""
    events = events.withColumn(_TEXTS, F.from_json(F.col(TEXT), _MAP))
    so_far = Window.partitionBy(LINEAGE).orderBy(ORD).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    after_image = F.col(OP).isin("insert", "update")
    newest = {}
    for i in wanted:
        column = shape.columns[i]
        value = F.struct(col(column.name).alias("v"), F.col(_TEXTS)[str(column.attnum)].alias("t"))
        given = F.when(after_image & ~_is_unchanged(i), value)
        newest[_last(i)] = F.last(given, ignorenulls=True).over(so_far)
    return events.withColumns(newest)


def _with_base(
    events: DataFrame,
    shape: SchemaVersion,
    wanted: Sequence[int],
    key: Sequence[str],
    base: DataFrame | None,
    *,
    few: bool,
) -> DataFrame:
    """`_w2d_base_<i>`: column i of the row that the lineage began with; `_w2d_found`: whether that row is there."""
    root = [f"{BASE_KEY}{i}" for i in range(len(key))]
    if base is None:
        types = dict(events.dtypes)
        nothing = [F.lit(None).cast(types[_last(i)]).alias(f"_w2d_base_{i}") for i in wanted]
        return events.select("*", *nothing, F.lit(None).cast("int").alias(_FOUND))
    keys = events.where(F.col("_w2d_missing") & F.col(HAS_BASE)).select(*root).distinct()
    keys = F.broadcast(keys) if few else keys
    texts = F.from_json(F.col(TEXT), _MAP)
    values = [
        F.struct(col(shape.columns[i].name).alias("v"), texts[str(shape.columns[i].attnum)].alias("t")).alias(
            f"_w2d_base_{i}"
        )
        for i in wanted
    ]
    rows = base.select(*(col(k).alias(f"_w2d_in_{i}") for i, k in enumerate(key)), *values, F.lit(1).alias(_FOUND))
    on_key = _all(F.col(f"_w2d_in_{i}") == F.col(r) for i, r in enumerate(root))
    rows = rows.join(keys, on_key, "left_semi")
    return events.join(rows, on_key & F.col("_w2d_missing") & F.col(HAS_BASE), "left")


def _result(frame: DataFrame, shape: SchemaVersion, wanted: Sequence[int]) -> list[SparkColumn]:
    """The frame's columns again, resolved."""
    types = dict(frame.dtypes)
    chosen = {i: _chosen(i, types[shape.columns[i].name]) for i in wanted}
    values = {
        shape.columns[i].name: F.when(_is_unchanged(i), chosen[i]["v"]).otherwise(col(shape.columns[i].name))
        for i in wanted
    }
    values[TEXT] = _texts(shape, wanted, chosen)
    names = set(column_names(shape)) | {TEXT}
    return [values[n].alias(n) if n in values and n in names else col(n) for n in frame.columns if n != UNCHANGED]


def _chosen(i: int, spark_type: str) -> SparkColumn:
    kind = f"struct<v:{spark_type},t:string>"
    unknown = refuse_invariant("an unchanged value of a row that was inserted in the same range was never sent", kind)
    absent = refuse_table("the row that an unchanged large value would come from is not in the lake", kind)
    from_base = (
        F.when(~F.col(HAS_BASE), unknown).when(F.col(_FOUND).isNull(), absent).otherwise(F.col(f"_w2d_base_{i}"))
    )
    return F.when(F.col(_last(i)).isNotNull(), F.col(_last(i))).otherwise(from_base)


def _texts(shape: SchemaVersion, wanted: Sequence[int], chosen: dict[int, SparkColumn]) -> SparkColumn:
    """`_w2d_text` anew, where something was unchanged: the row's own entries and those of the values it was given."""
    entries = F.col(_TEXTS)
    given = F.map_from_entries(
        F.filter(
            F.array(
                *(
                    F.struct(
                        F.lit(str(shape.columns[i].attnum)).alias("k"),
                        F.when(_is_unchanged(i), chosen[i]["t"]).alias("t"),
                    )
                    for i in wanted
                )
            ),
            lambda e: e["t"].isNotNull(),
        )
    )
    own = F.coalesce(entries, F.expr(f"cast(map() as {_MAP})"))
    merged = F.map_concat(own, given)
    rebuilt = F.when(F.size(merged) > 0, F.to_json(merged))
    return F.when(F.col(UNCHANGED).isNull(), F.col(TEXT)).otherwise(rebuilt)


def _last(i: int) -> str:
    return f"_w2d_last_{i}"


def _is_unchanged(i: int) -> SparkColumn:
    # Three-valued logic would make "not unchanged" null in nearly every row.
    return F.coalesce(F.array_contains(F.col(UNCHANGED), F.lit(i).cast("smallint")), F.lit(False))


def _is_missing(i: int) -> SparkColumn:
    return _is_unchanged(i) & F.col(_last(i)).isNull()


def _any(conditions: Iterable[SparkColumn]) -> SparkColumn:
    result = F.lit(False)
    for condition in conditions:
        result = result | condition
    return result


def _all(conditions: Iterable[SparkColumn]) -> SparkColumn:
    result = F.lit(True)
    for condition in conditions:
        result = result & condition
    return result
