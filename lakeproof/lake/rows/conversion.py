"""Rows of one shape of a table as rows of another.

Which columns carry on belongs to `evolution`; whether the conversion is exact was asked before it is made (`shape_plan`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import UNCHANGED
from lakeproof.lake.columns import in_lake
from lakeproof.lake.planning.schema_change import Evolution
from lakeproof.lake.rows.columns import col
from lakeproof.schema import Column
from lakeproof.values.cast import cast_column
from lakeproof.values.types import arrow_type, spark_type

_DEFAULT = "_lp_default_"


def converted(session: SparkSession, rows: DataFrame, found: Evolution, missing: Mapping[int, str]) -> DataFrame:
    """Rows with the old shape's columns (under the lake's names) among others → with the new shape's in front of those.

    Columns that were added have what older rows read in them (`missing`), else null; dropped ones are not there.
    """
    old, new = in_lake(found.old), in_lake(found.new)
    named = dict(zip((c.name for c in found.old.columns), (c.name for c in old.columns), strict=True))
    known = {b.name: named[a.name] for a, b in found.carried}
    given = [c for c in found.added if c.attnum in missing]
    rest = [n for n in rows.columns if n not in set(named.values())]
    if given:
        rows = rows.crossJoin(F.broadcast(_defaults(session, given, missing)))
    values: list[SparkColumn] = []
    for column, lake in zip(found.new.columns, new.columns, strict=True):
        value = F.lit(None)
        if column.name in known:
            value = col(known[column.name])
        elif column in given:
            value = F.col(f"{_DEFAULT}{column.attnum}")
        values.append(value.cast(spark_type(column)).alias(lake.name))
    return rows.select(*values, *(_unchanged(found) if n == UNCHANGED else col(n) for n in rest))


def _unchanged(found: Evolution) -> SparkColumn:
    """`_lp_unchanged`, which goes by places, for the places in the new shape."""
    before = [c.name for c in found.old.columns]
    after = [c.name for c in found.new.columns]
    pairs: Iterable[tuple[int, int]] = ((before.index(a.name), after.index(b.name)) for a, b in found.carried)
    places = F.create_map(*(F.lit(i) for pair in pairs for i in pair))
    moved = F.transform(F.col(UNCHANGED), lambda i: F.try_element_at(places, i.cast("int")).cast("smallint"))
    return F.filter(moved, lambda i: i.isNotNull()).alias(UNCHANGED)


def _defaults(session: SparkSession, columns: list[Column], missing: Mapping[int, str]) -> DataFrame:
    """One row: what older rows read in each of `columns`, through the caster that all values go through."""
    values = [cast_column(pa.array([missing[c.attnum]], pa.string()), c).values for c in columns]
    schema = pa.schema([pa.field(f"{_DEFAULT}{c.attnum}", arrow_type(c)) for c in columns])
    return session.createDataFrame(pa.Table.from_arrays(values, schema=schema))
