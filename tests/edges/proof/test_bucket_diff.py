"""The difference of two states of a table: no value changes without its row's hash, and no key's rows come apart."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo.server import EmbeddedPostgres
from lakeproof.hidden_columns import DUP, FROM, KEY, ORD, TEXT
from lakeproof.lake.columns import current_columns
from lakeproof.lake.cycle.commits_by_spark import DIGEST, entry_correction
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col, exact_form, key_value, pick, row_key
from lakeproof.lake.rows.correction import bucket_diff, correct, row_hash
from lakeproof.names import Oid, TableName
from lakeproof.postgres.connections.connect import Connection
from lakeproof.schema import Column, Identity, SchemaVersion
from tests.edges.values.exact_tables import exact_schema, fill, to_lake, version_of
from tests.edges.values.exact_values import columns

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_COLUMNS = (
    Column("k", Oid(20), -1, "bigint", "int8", 1, identity=True),
    Column("f", Oid(701), -1, "double precision", "float8", 2, identity=False),
    Column("a", Oid(25), -1, "text", "text", 3, identity=False),
    Column("b", Oid(25), -1, "text", "text", 4, identity=False),
    Column("n", Oid(1007), -1, "integer[]", "int4[]", 5, identity=False),
)
_TYPES = "k bigint, f double, a string, b string, n array<int>, _lp_text string"
_KEYED = SchemaVersion(TableName("s", "t"), Oid(1), Identity.DEFAULT, _COLUMNS, ("k",))
_BAG = replace(_KEYED, identity=Identity.NOTHING, columns=tuple(replace(c, identity=False) for c in _COLUMNS), key=())
Row = tuple[int, float | None, str | None, str | None, Sequence[int | None] | None, str | None]
_ROW: Row = (7, 0.0, "", None, [1, None, 2], None)
_CHANGED: dict[str, Row] = {
    "the sign of a zero": (7, -0.0, "", None, [1, None, 2], None),
    "a float's last bit": (7, 5e-324, "", None, [1, None, 2], None),
    "a float that is none": (7, float("nan"), "", None, [1, None, 2], None),
    "NULL for ''": (7, 0.0, None, None, [1, None, 2], None),
    "swapped columns": (7, 0.0, None, "", [1, None, 2], None),
    "a NULL elsewhere in an array": (7, 0.0, "", None, [None, 1, 2], None),
    "an empty array for NULL": (7, 0.0, "", None, [], None),
    "a hidden text": (7, 0.0, "", None, [1, None, 2], '{"2":"x"}'),
}


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection of ours to an empty schema `exact`."""
    with exact_schema(postgres.dsn()) as connection:
        yield connection


@pytest.fixture
def rng() -> random.Random:
    """Random choices by a printed seed."""
    seed = int(os.environ.get("LAKEPROOF_SEED", str(random.randrange(1 << 32))))
    print(f"LAKEPROOF_SEED={seed}")  # noqa: T201  (pytest shows it beside a failure)
    return random.Random(seed)


@pytest.mark.full
def test_rows_of_one_hash_have_one_exact_form(
    conn: Connection, spark: SparkSession, tmp_path: Path, rng: random.Random
) -> None:
    """Covers every type: each column by itself, extremes and random values."""
    result = columns(rng.randrange(1 << 32), 100, conn.info.server_version)
    definition = sql.SQL(", ").join(sql.SQL("{} " + t).format(sql.Identifier(f"{i} {t}")) for i, t in enumerate(result))
    conn.execute(sql.SQL("CREATE TABLE t ({})").format(definition))
    fill(conn, "t", list(result.values()))
    version = version_of(conn, "t")
    lake = to_lake(conn, version, spark, tmp_path)
    each = [
        F.struct(
            F.lit(c.name).alias("name"), row_hash(replace(version, columns=(c,))).alias("hash"), form.alias("form")
        )
        for c, form in ((c, exact_form(c)) for c in version.columns)
    ]
    actual = lake.select(F.explode(F.array(*each)).alias("of")).groupBy("of.name", "of.hash")
    forms = actual.agg(F.collect_set("of.form").alias("forms")).where(F.size("forms") > 1)
    assert [(r["name"], r["forms"]) for r in forms.collect()] == []


@pytest.mark.full
@pytest.mark.parametrize("schema", [_KEYED, _BAG], ids=["keyed", "bag"])
def test_a_row_that_changed_is_left_to_compare(spark: SparkSession, schema: SchemaVersion) -> None:
    """Both sides keep the row's whole bucket, and drop most equal rows."""
    same: list[Row] = [(i, 1.5, "a", "b", [i], None) for i in range(1000, 1400)]
    before = [(key, *_ROW[1:]) for key in range(len(_CHANGED))]
    after = [(key, *row[1:]) for key, row in enumerate(_CHANGED.values())]
    actual = bucket_diff(schema, _frame(spark, schema, [*same, *before]), _frame(spark, schema, [*same, *after]))
    try:
        for side in (actual.desired, actual.persisted):
            keys = {int(r["k"]) for r in side.collect()}
            assert [change for key, change in enumerate(_CHANGED) if key not in keys] == []
            assert len(keys) < 50
    finally:
        actual.release()


@pytest.mark.parametrize("schema", [_KEYED, _BAG], ids=["keyed", "bag"])
def test_what_must_go_and_come_is_the_same_narrowed_or_not(
    spark: SparkSession, schema: SchemaVersion, rng: random.Random
) -> None:
    """Random states with rows lost, doubled and changed: the corrections are equal as multisets."""
    desired = [_random_row(rng, k) for k in range(400)]
    persisted = [_random_row(rng, row[0]) if rng.random() < 0.1 else row for row in desired if rng.random() < 0.95]
    persisted += rng.sample(persisted, 9)
    sides = _frame(spark, schema, desired), _frame(spark, schema, persisted)
    actual = bucket_diff(schema, *sides)
    assert actual.kept, "not all buckets are compared"
    result = []
    for ours, theirs in ((actual.desired, actual.persisted), sides):
        correction = correct(
            ours.withColumn(DIGEST, row_key(schema)), theirs.withColumn(DIGEST, row_key(schema)), DIGEST
        )
        result.append([_forms(schema, side) for side in (correction.retractions, correction.insertions)])
        correction.release()
    actual.release()
    assert result[0] == result[1]
    assert all(result[0])


@pytest.mark.parametrize("stored", ["of other values", None])
def test_a_row_of_a_bag_under_the_key_of_another_goes(spark: SparkSession, stored: str | None) -> None:
    """Later changes would look for it by that key, and take a row of other values; an equal row stays."""
    desired, rows = _frame(spark, _BAG, [_ROW] * 2), _frame(spark, _BAG, [_ROW] * 3)
    last = F.col(DUP) == rows.agg(F.max(DUP)).collect()[0][0]
    persisted = rows.withColumn(KEY, F.when(last, F.lit(stored)).otherwise(F.col(KEY)))
    correction = entry_correction(_BAG, desired, persisted, NetChange())
    try:
        keys = [row[KEY] for row in correction.retractions.collect()]
        assert (keys, correction.insertions.count()) == ([stored], 0)
    finally:
        correction.release()


@pytest.mark.full
def test_equal_states_leave_nothing_and_others_everything(spark: SparkSession) -> None:
    """No row is read again if all are equal; if most differ the frames stay what they were."""
    rows = spark.range(200_000).selectExpr(
        "id k", "0D f", "'a' a", "'b' b", "array(1) n", f"cast(null as string) {TEXT}"
    )
    same = bucket_diff(_KEYED, rows, rows)
    assert (same.desired.count(), same.persisted.count()) == (0, 0)
    other = rows.withColumn("a", F.lit("c"))
    all_of_it = bucket_diff(_KEYED, rows, other)
    assert all_of_it.desired is rows
    assert all_of_it.persisted is other
    assert all_of_it.kept == ()


def _frame(spark: SparkSession, schema: SchemaVersion, rows: Sequence[Row]) -> DataFrame:
    frame = spark.createDataFrame([tuple(r) for r in rows], _TYPES).withColumn(KEY, key_value(schema))
    number = F.monotonically_increasing_id()
    frame = frame.withColumns({DUP: number, ORD: number, FROM: F.lit(None).cast("string")})
    return pick(frame, current_columns(schema))


def _forms(schema: SchemaVersion, rows: DataFrame) -> list[str]:
    forms = rows.select(F.concat(*(exact_form(c) for c in schema.columns), F.coalesce(col(TEXT), F.lit("~"))))
    return sorted(r[0] for r in forms.collect())


def _random_row(rng: random.Random, key: int) -> Row:
    number = rng.choice([None, 0.0, -0.0, 1.5, float("nan")])
    array = rng.choice([None, [], [1, None], [None, 1]])
    return (key, number, rng.choice([None, "", "a", "ab"]), rng.choice([None, "", "b", "bc"]), array, None)
