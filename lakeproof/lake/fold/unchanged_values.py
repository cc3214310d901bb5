"""Unchanged large values in history: naming the row that holds each, and filling rows with their values.

Finding the holders belongs to `toast` and `holders`; choosing rows to fill belongs to the callers.

    _lp_ord  op      counter  doc      _lp_from
    101       insert  1        «3 MB»   NULL
    250       update  2        NULL     {"3":101}        101 holds attribute 3: the row whose own change brought the value,
    260       update  3        NULL     {"3":101}        never one that names another row for it

A row that names a holder and nevertheless has the value holds it for that ordinal: current's rows do, and so do the rows
that trimming left at history's low end. So a value is found by `_lp_from`'s entry if a row has one, else by the row's own
ordinal, among the rows that have it. An unchanged value is never NULL, but it may be an exact text in `_lp_text` alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import groupby
from operator import or_

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakeproof.hidden_columns import FROM, ORD, PUT_AWAY, TEXT, scratch
from lakeproof.lake.columns import in_lake, large_columns
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.refusal import refuse_table
from lakeproof.schema import SchemaVersion

# Up to this number, the holders to find are brought to the driver (24 bytes each), so that files without any are pruned; if
# there are more, all rows between the least and the greatest are read.
HOLDERS_MAX = 10_000
# The number of ranges that holders are put into, so that the widest gaps are left out.
RANGES_MAX = 32
# Every row may hold a value for an older ordinal, or none.
ANY_ROW = 1 << 62
NO_ROW = -ANY_ROW
NOT_THERE = "the row that an unchanged large value would come from is not in the lake"
_ATTNUM, _HOLDER, _HOLDER_TEXT = scratch("attnum"), scratch("holder_ordinal"), scratch("holder_text")
_TEXTS, _HOLDERS = "map<string,string>", "map<string,bigint>"


@dataclass(frozen=True, slots=True)
class _Holders:
    """The holders of one attribute that rows name: all in order, or the least and the greatest of those in `frame`."""

    ordinals: Sequence[int]
    frame: DataFrame | None = None


def resolve_history(schema: SchemaVersion, rows: DataFrame, history: DataFrame, low: int = NO_ROW) -> DataFrame:
    """Return `rows` (of history, or derived from it) with every unchanged value; `history` is all of it, at that version.

    Rows of `history` below `low` may hold values for older ordinals (`history_low`). Costs a job over the marks of `rows`;
    if there are none, `rows` is returned. Evaluating the result fails if a value has no holder.
    """
    if not large_columns(schema) and not any(name.startswith(PUT_AWAY) for name in rows.columns):
        return rows
    by_attnum = _named_holders(rows)
    if not by_attnum:
        return rows
    marked = rows.where(F.col(FROM).isNotNull())
    for attnum, holders in sorted(by_attnum.items()):
        names = _columns_of(schema, attnum, history)
        if any(name in rows.columns for name in names):
            marked = _given(marked, attnum, names, _holding(history, attnum, names, holders, low))
    return rows.where(F.col(FROM).isNull()).unionAll(marked)


def marks(holders: Mapping[int, SparkColumn]) -> SparkColumn:
    """Return `_lp_from`: the holders that are not NULL by attribute number; NULL if there are none."""
    entries = F.array(*(F.struct(F.lit(str(a)).alias("a"), h.alias("h")) for a, h in holders.items()))
    set_entries = F.filter(entries, lambda e: e["h"].isNotNull())
    return F.when(F.size(set_entries) > 0, F.to_json(F.map_from_entries(set_entries)))


def holder_ordinal(attnum: int) -> SparkColumn:
    """Return the ordinal of the row that holds the column's value: the holder that the row names, else the row's own."""
    return F.coalesce(_named(attnum), F.col(ORD))


def has_value(names: Iterable[str], attnum: int) -> SparkColumn:
    """True if a row has a value of the attribute: in one of the attribute's columns `names`, or as an exact text."""
    return reduce(or_, (col(name).isNotNull() for name in names)) | text_entry(attnum).isNotNull()


def text_entry(attnum: int) -> SparkColumn:
    """Return the value's entry in `_lp_text`."""
    return F.try_element_at(F.from_json(F.col(TEXT), _TEXTS), F.lit(str(attnum)))


def _named(attnum: int) -> SparkColumn:
    return F.try_element_at(F.from_json(F.col(FROM), _HOLDERS), F.lit(str(attnum)))


def _named_holders(rows: DataFrame) -> dict[int, _Holders]:
    """Return the holders that rows name, by attribute number."""
    named = rows.where(F.col(FROM).isNotNull()).select(F.explode(F.from_json(F.col(FROM), _HOLDERS)))
    named = named.select(F.col("key").cast("int").alias(_ATTNUM), F.col("value").alias(_HOLDER)).distinct()
    few = named.limit(HOLDERS_MAX + 1).collect()
    if len(few) <= HOLDERS_MAX:
        pairs = sorted((int(r[0]), int(r[1])) for r in few)
        return {attnum: _Holders([h for _, h in group]) for attnum, group in groupby(pairs, lambda pair: pair[0])}
    ends = named.groupBy(_ATTNUM).agg(F.min(_HOLDER), F.max(_HOLDER)).collect()
    return {int(r[0]): _Holders([int(r[1]), int(r[2])], named.where(F.col(_ATTNUM) == r[0])) for r in ends}


def _columns_of(schema: SchemaVersion, attnum: int, history: DataFrame) -> list[str]:
    """Return the columns of history that an attribute has had: today's, and those that were put away."""
    away = re.compile(rf"{PUT_AWAY}\d+_{attnum}(_\d+)?")
    today = [schema.columns[i].name for i in large_columns(schema) if schema.columns[i].attnum == attnum]
    return [*today, *(name for name in history.columns if away.fullmatch(name))]


def _holding(history: DataFrame, attnum: int, names: list[str], holders: _Holders, low: int) -> DataFrame:
    """Return `__lp_holder`, the values under other names, `__lp_holder_text`: one row for each ordinal that has a value."""
    ordinals = holders.ordinals
    ranges = ranges_of(ordinals) if holders.frame is None else [(ordinals[0], ordinals[-1])]
    near = reduce(or_, (F.col(ORD).between(first, last) for first, last in ranges))
    if ordinals[0] < low:
        near = near | ((F.col(ORD) < F.lit(low)) & F.col(FROM).isNotNull())
    values = [col(name).alias(_holder_value(i)) for i, name in enumerate(names)]
    holding = history.where(near & has_value(names, attnum)).select(
        holder_ordinal(attnum).alias(_HOLDER), text_entry(attnum).alias(_HOLDER_TEXT), *values
    )
    if holders.frame is None:
        holding = holding.where(f"{_HOLDER} IN ({', '.join(f'{ordinal}L' for ordinal in ordinals)})")
    else:
        holding = holding.join(holders.frame, _HOLDER, "left_semi")
    chosen = (F.first(name, ignorenulls=True).alias(name) for name in holding.columns if name != _HOLDER)
    return holding.groupBy(_HOLDER).agg(*chosen)


def _given(rows: DataFrame, attnum: int, names: list[str], holding: DataFrame) -> DataFrame:
    """Return the rows with the attribute's values filled in if they are marked and have none."""
    here = [name for name in names if name in rows.columns]
    named = _named(attnum)
    joined = rows.withColumn(_ATTNUM, F.when(named.isNotNull() & ~has_value(here, attnum), named))
    joined = joined.join(holding, F.col(_ATTNUM) == F.col(_HOLDER), "left")
    marked, absent = F.col(_ATTNUM).isNotNull(), F.col(_HOLDER).isNull()
    types = dict(rows.dtypes)
    values = {}
    for i, name in enumerate(names):
        if name in here:
            given = F.when(absent, refuse_table(NOT_THERE, types[name])).otherwise(F.col(_holder_value(i)))
            values[name] = F.when(marked, given).otherwise(col(name))
    text = F.col(_HOLDER_TEXT)
    own = F.coalesce(F.from_json(F.col(TEXT), _TEXTS), F.expr(f"cast(map() as {_TEXTS})"))
    merged = F.to_json(F.map_concat(own, F.create_map(F.lit(str(attnum)), text)))
    values[TEXT] = F.when(marked & text.isNotNull(), merged).otherwise(F.col(TEXT))
    return joined.select(*(values[n].alias(n) if n in values else col(n) for n in rows.columns))


def ranges_of(ordinals: Sequence[int], ranges_max: int = RANGES_MAX) -> list[tuple[int, int]]:
    """Return sorted ordinals in at most so many ranges."""
    gaps = sorted(range(1, len(ordinals)), key=lambda i: ordinals[i - 1] - ordinals[i])[: ranges_max - 1]
    begins = [0, *sorted(gaps)]
    return [(ordinals[a], ordinals[b - 1]) for a, b in zip(begins, [*begins[1:], len(ordinals)], strict=True)]


def _holder_value(i: int) -> str:
    return scratch(f"holder_{i}")


def completing(table: CutTable, history: DataFrame) -> Callable[[DataFrame], DataFrame]:
    """Return a function that fills rows of a table's `history` (all of it) with the large values that updates left out."""
    low = NO_ROW if table.history_low is None else table.history_low.ordinal
    return partial(resolve_history, in_lake(table.version), history=history, low=low)
