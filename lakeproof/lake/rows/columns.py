"""Names of columns in the lake: hidden columns, the source's own columns, and the columns that distinguish rows.

Computing the columns' values belongs to `exact` and to `lakeproof.lake.fold`.

A source column keeps its name, unless Spark could not distinguish it from another (names that differ in case only), from a
hidden column (`_lp_…`), from a scratch column (`__lp_…`) or from one that Spark and Delta have for themselves: then it
is `#<attribute number>#<name>`. Names with characters that Parquet refuses need column mapping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakeproof.lake.columns import quoted
from lakeproof.lake.rows.exact import key_text, row_digest, row_forms
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import needs_key_text


def col(name: str) -> SparkColumn:
    """Return a column by its exact name, which may have any characters."""
    return F.col(quoted(name))


def relation(session: SparkSession, rows: pa.Table, schema: StructType | str | None = None) -> DataFrame:
    """Return rows of Arrow's as a relation that the driver holds; `schema` or its DDL, if Arrow's types do not say it.

    In one piece: Spark 4.2 leaves out whatever comes after an empty batch.
    """
    whole = rows.combine_chunks()
    return session.createDataFrame(whole) if schema is None else session.createDataFrame(whole, schema)


def int_pairs(name: str, value: str, pairs: Mapping[int, int]) -> pa.Table:
    """Return pairs of whole numbers as Arrow, for `relation`.

    Of a list of Python's Spark makes tasks of Python's, which executors of a cluster need not have.
    """
    return pa.table({name: pa.array(list(pairs), pa.int64()), value: pa.array(list(pairs.values()), pa.int64())})


def no_rows(session: SparkSession, types: Mapping[str, str | DataType]) -> DataFrame:
    """Return a frame of no rows: name → Spark's type, or its DDL."""
    return session.range(1).limit(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in types.items()))


def key_value(schema: SchemaVersion) -> SparkColumn:
    """Return the value of `_lp_key`: a bag's digest, the key's text, or null if the key's columns compare exactly."""
    if schema.is_bag:
        return row_digest(row_forms(schema))
    return key_text(schema) if needs_key_text(schema) else F.lit(None).cast("string")


def row_key(schema: SchemaVersion) -> SparkColumn:
    """Return the digest of a whole row by exact forms."""
    return row_digest(row_forms(schema))


def named(schema: SchemaVersion) -> list[SparkColumn]:
    """Return a landed file's columns under the table's names."""
    return [col(name).alias(c.name) for name, c in zip(file_names(schema), schema.columns, strict=True)]


def pick(frame: DataFrame, names: Iterable[str]) -> DataFrame:
    """Return the columns by exact name, in this order."""
    return frame.select(*(col(n) for n in names))
