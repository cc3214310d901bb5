"""Rows of a table under one schema version, converted to another.

Matching the columns belongs to `planning.schema_change`; `planning.schema_changes` has checked that the conversion is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import UNCHANGED, scratch
from lakeproof.lake.columns import in_lake
from lakeproof.lake.planning.schema_change import SchemaDifference
from lakeproof.lake.rows.columns import col, relation
from lakeproof.schema import Column
from lakeproof.values.cast import cast_column
from lakeproof.values.types import arrow_type, spark_type

_DEFAULT = scratch("default_")


def convert_rows(
    session: SparkSession, rows: DataFrame, change: SchemaDifference, missing: Mapping[int, str]
) -> DataFrame:
    """Convert rows with the old schema's columns (under the lake's names); the new schema's come first, then the others.

    Added columns have the value that older rows read in them (`missing`), else null; dropped columns are left out.
    """
    old, new = in_lake(change.old), in_lake(change.new)
    named = dict(zip((c.name for c in change.old.columns), (c.name for c in old.columns), strict=True))
    kept = {b.name: named[a.name] for a, b in change.carried}
    given = [c for c in change.added if c.attnum in missing]
    rest = [n for n in rows.columns if n not in set(named.values())]
    if given:
        rows = rows.crossJoin(F.broadcast(_defaults(session, given, missing)))
    values: list[SparkColumn] = []
    for column, lake in zip(change.new.columns, new.columns, strict=True):
        value = F.lit(None)
        if column.name in kept:
            value = col(kept[column.name])
        elif column in given:
            value = F.col(f"{_DEFAULT}{column.attnum}")
        values.append(value.cast(spark_type(column)).alias(lake.name))
    return rows.select(*values, *(_unchanged(change) if n == UNCHANGED else col(n) for n in rest))


def _unchanged(change: SchemaDifference) -> SparkColumn:
    """Return `_lp_unchanged`, which lists columns by position, for the positions in the new schema."""
    before = [c.name for c in change.old.columns]
    after = [c.name for c in change.new.columns]
    pairs: Iterable[tuple[int, int]] = ((before.index(a.name), after.index(b.name)) for a, b in change.carried)
    places = F.create_map(*(F.lit(i) for pair in pairs for i in pair))
    moved = F.transform(F.col(UNCHANGED), lambda i: F.try_element_at(places, i.cast("int")).cast("smallint"))
    return F.filter(moved, lambda i: i.isNotNull()).alias(UNCHANGED)


def _defaults(session: SparkSession, columns: list[Column], missing: Mapping[int, str]) -> DataFrame:
    """Return one row: the value that older rows read in each of `columns`, cast as all values are."""
    values = [cast_column(pa.array([missing[c.attnum]], pa.string()), c).values for c in columns]
    schema = pa.schema([pa.field(f"{_DEFAULT}{c.attnum}", arrow_type(c)) for c in columns])
    return relation(session, pa.Table.from_arrays(values, schema=schema))
