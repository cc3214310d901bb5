"""The sum of history's rows: the same through every change of schema, another one after every kind of damage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.history_sum import Summing, sum_of
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion

pytestmark = pytest.mark.spark

_KINDS = {"id": ("int4", "int"), "f": ("float4", "float"), "n": ("numeric", "decimal(10,2)"), "s": ("text", "string")}
_KINDS |= {"a": ("_float8", "array<double>"), "at": ("timestamptz", "timestamp"), "b": ("bytea", "binary")}
SCHEMA = SchemaVersion(
    TableName("public", "t"),
    Oid(99),
    Identity.DEFAULT,
    tuple(Column(n, Oid(1), -1, kind, kind, i, n == "id") for i, (n, (kind, _)) in enumerate(_KINDS.items(), 1)),
    ("id",),
)
_ROWS = (
    "(1, float(0.5), 1.25, 'x', array(1.5D, null), timestamp'2026-01-01 00:00:00Z', X'01', 10L, 'insert')",
    "(2, float('-0'), null, '', array(), timestamp'0001-01-01 00:00:00Z', X'', 11L, 'update')",
    "(3, float('nan'), -0.01, null, null, null, null, 12L, 'delete')",
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Three rows of history."""
    types = [f"cast({n} as {kind}) as {n}" for n, (_, kind) in _KINDS.items()]
    named = f"(VALUES {', '.join(_ROWS)}) AS v({', '.join(_KINDS)}, _lp_ord, _lp_op)"
    return spark.sql(f"SELECT {', '.join(types)}, _lp_ord, _lp_op FROM {named}").persist()  # noqa: S608  constants


def renamed(old: str, new: str) -> SchemaVersion:
    """The schema with another name for a column."""
    return replace(SCHEMA, columns=tuple(replace(c, name=new) if c.name == old else c for c in SCHEMA.columns))


def without(name: str) -> SchemaVersion:
    """The schema without a column."""
    return replace(SCHEMA, columns=tuple(c for c in SCHEMA.columns if c.name != name))


SAME: dict[str, tuple[SchemaVersion, Callable[[DataFrame], DataFrame]]] = {
    "a column is added": (SCHEMA, lambda r: r.withColumn("later", F.lit(None).cast("int"))),
    "an array is added": (SCHEMA, lambda r: r.withColumn("later", F.lit(None).cast("array<float>"))),
    "a column is renamed": (renamed("s", "other"), lambda r: r.withColumnRenamed("s", "other")),
    "a column is put away": (without("s"), lambda r: r.withColumnRenamed("s", "_lp_dropped_99_4")),
    "it is put away the second time": (without("s"), lambda r: r.withColumnRenamed("s", "_lp_dropped_99_4_2")),
    "a number is widened": (SCHEMA, lambda r: r.withColumn("id", F.col("id").cast("bigint"))),
    "a float is widened": (SCHEMA, lambda r: r.withColumn("f", F.col("f").cast("double"))),
    "a numeric has more digits": (SCHEMA, lambda r: r.withColumn("n", F.col("n").cast("decimal(20,2)"))),
    "the columns stand in another order": (SCHEMA, lambda r: r.select(*reversed(r.columns))),
    "the rows do": (SCHEMA, lambda r: r.orderBy(F.col("id").desc())),
    "a hidden column is added": (SCHEMA, lambda r: r.withColumn("_lp_more", F.lit(None).cast("string"))),
}
OTHER: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a row is lost": lambda r: r.where("id <> 2"),
    "a row is doubled": lambda r: r.unionAll(r.where("id = 2")),
    "a row is there for another": lambda r: r.where("id <> 2").unionAll(r.where("id = 1")),
    "a text": lambda r: r.withColumn("s", F.when(F.col("id") == 1, "y").otherwise(F.col("s"))),
    "NULL for the empty text": lambda r: r.withColumn("s", F.when(F.col("id") == 1, F.col("s"))),
    "0 for -0": lambda r: r.withColumn("f", F.when(F.col("id") == 2, F.lit(0.0)).otherwise(F.col("f")).cast("float")),
    "an array's NULL elsewhere": lambda r: r.withColumn("a", F.reverse("a")),
    "an op": lambda r: r.withColumn("_lp_op", F.lit("insert")),
    "an ordinal": lambda r: r.withColumn("_lp_ord", F.col("_lp_ord") + 1),
    "two texts changed places": lambda r: r.withColumn("s", F.when(F.col("id") == 1, "").when(F.col("id") == 2, "x")),
}


def test_a_change_of_schema_keeps_the_sum(rows: DataFrame) -> None:
    """Rows from before read NULL in what was added; a column is its number."""
    sums = {name: sum_of(schema, change(rows)) for name, (schema, change) in SAME.items()}
    assert sums == dict.fromkeys(SAME, sum_of(SCHEMA, rows))


def test_damage_changes_the_sum(rows: DataFrame) -> None:
    """Each kind of damage is tried alone."""
    sums = {name: sum_of(SCHEMA, change(rows)) for name, change in OTHER.items()}
    written = sum_of(SCHEMA, rows)
    assert [name for name, actual in sums.items() if actual == written] == []


def test_sums_add_up(rows: DataFrame) -> None:
    """The rows of many cycles, one after the other, and without those that were taken away."""
    parts = [sum_of(SCHEMA, rows.where(f"id = {i}")) for i in (1, 2, 3)]
    whole = sum_of(SCHEMA, rows)
    assert HistorySum().plus(parts[0]).plus(parts[1]).plus(parts[2]) == whole
    assert whole.minus(parts[1]) == sum_of(SCHEMA, rows.where("id <> 2"))
    assert sum_of(SCHEMA, rows.limit(0)) == HistorySum()


def test_rows_are_summed_on_their_way(rows: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The sum is taken while rows are written, so later damage to the files shows; an empty history has a sum, too."""
    for number, some in enumerate((rows, rows.limit(0), rows.coalesce(1))):
        summing = Summing(SCHEMA, some)
        place = str(tmp_path_factory.mktemp("lake") / str(number))
        summing.rows.write.format("delta").save(place)
        written = rows.sparkSession.read.format("delta").load(place)
        assert summing.sum() == sum_of(SCHEMA, written) == sum_of(SCHEMA, some)
