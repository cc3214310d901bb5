"""The comparison finds every single corruption of a lake table, and names the key; if there is none it finds none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import TypeAlias

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from demo.server import EmbeddedPostgres
from lakeproof.lake.rows import columns as rows_columns
from lakeproof.lake.rows.hashed import RowsOfBatch
from lakeproof.postgres.connections.connect import Connection
from lakeproof.proof.compare import (
    KEY_TEXT_MAX,
    KEYS_MAX,
    NARROW_ROWS_MAX,
    Bucket,
    ProofRow,
    differing_buckets,
    differing_keys,
    to_narrow,
)
from lakeproof.proof.lake import form as lake_form
from lakeproof.proof.lake.jvm_functions import jvm_functions
from lakeproof.proof.source.form import rows_query
from lakeproof.schema import SchemaVersion
from lakeproof.values import exact_kinds
from lakeproof.values.exact_texts import exact_texts
from tests.edges.values.exact_tables import exact_schema, relation_of, to_lake, version_of

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

_BUCKETS = 8
Corruption: TypeAlias = Callable[[DataFrame], DataFrame]


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection to a table `t` of six rows, one of them full of extremes."""
    with exact_schema(postgres.dsn()) as connection:
        connection.execute(
            "CREATE TABLE t (k int, s text, d date, f float8, g float4, n numeric(20,10), b bytea, at timestamptz, a int[])"
        )
        connection.execute(
            "INSERT INTO t VALUES (1, '', '2024-01-01', '-0', '-0', 0, ''), (2, NULL, NULL, NULL, NULL, NULL, NULL),"
            " (3, 'é', 'infinity', 'NaN', 0.1, 'NaN', '\\x00'), (4, 'a ', '0044-03-15 BC', 0.1, 1e-45, 1e-10, '\\xff'),"
            " (5, 'x', '2024-02-29', 5e-324, 1, 1, 'x'), (6, 'x', '2024-02-29', 1, 1, 1, 'x')"
        )
        connection.execute("UPDATE t SET at = '2024-02-29 12:00:00.5+00', a = '{1,NULL}' WHERE k = 6")
        yield connection


def _set(key: int, column: str, value: str) -> Corruption:
    """Change the value in one column of one row; `value` is Spark SQL."""

    def change(lake: DataFrame) -> DataFrame:
        return lake.withColumn(column, F.when(F.col("k") == key, F.expr(value)).otherwise(F.col(column)))

    return change


def _hidden(key: int, column: str, text: str) -> Corruption:
    """NULL in one column of one row, and an exact text in place of the value."""

    def change(lake: DataFrame) -> DataFrame:
        return _set(key, "_lp_text", f"'{text}'")(_set(key, column, "NULL")(lake))

    return change


_CORRUPTIONS: dict[str, tuple[int, Corruption]] = {
    "a row lost": (3, lambda lake: lake.where("k <> 3")),
    "a row twice": (5, lambda lake: lake.unionAll(lake.where("k = 5"))),
    "NULL for the empty text": (1, _set(1, "s", "NULL")),
    "the empty text for NULL": (2, _set(2, "s", "''")),
    "NULL for the empty octets": (1, _set(1, "b", "NULL")),
    "0 for -0": (1, _set(1, "f", "0D")),
    "0 for -0, single": (1, _set(1, "g", "float(0)")),
    "0 for NaN": (3, _set(3, "f", "0D")),
    "a double's last bit": (4, _set(4, "f", "0.1D + 1.3877787807814457e-17D")),
    "a float's last bit": (3, _set(3, "g", "float(0.1) + float(7.450581e-09)")),
    "0 for the least float": (4, _set(4, "g", "float(0)")),
    "0 for the least double": (5, _set(5, "f", "0D")),
    "a decimal's last digit": (4, _set(4, "n", "cast(0.0000000002 as decimal(20,10))")),
    "another Unicode normal form": (3, _set(3, "s", "'e\u0301'")),
    "a blank trimmed": (4, _set(4, "s", "'a'")),
    "an octet changed": (3, _set(3, "b", "X'01'")),
    "the exact text lost": (3, _set(3, "_lp_text", "NULL")),
    "the exact text changed": (4, _set(4, "_lp_text", "replace(_lp_text, '0044', '0045')")),
    "an empty exact text for NULL": (2, _set(2, "_lp_text", """'{"3":""}'""")),
    "an exact text with the row's own delimiter": (2, _set(2, "_lp_text", """'{"3":"|"}'""")),
    "an exact text beside a value": (1, _set(1, "_lp_text", """'{"3":"infinity"}'""")),
    "an exact text beside an instant": (6, _set(6, "_lp_text", """'{"8":"infinity"}'""")),
    "a day that readers don't see": (5, _hidden(5, "d", '{"3":"2024-02-29"}')),
    "an instant that readers don't see": (6, _hidden(6, "at", '{"8":"2024-02-29 12:00:00.5+00"}')),
    "an instant's octets for a text": (6, _hidden(6, "at", '{"8":"0002b582c47fb120"}')),
    "a number that readers don't see": (6, _hidden(6, "n", '{"6":"1.0000000000"}')),
    "an array that readers don't see": (6, _hidden(6, "a", '{"9":"{1,NULL}"}')),
    "a value beside its exact text": (3, _set(3, "d", "DATE'2024-01-01'")),
    "two values changed places": (
        5,
        lambda lake: lake.withColumn("k", F.when(F.col("k") == 5, 6).when(F.col("k") == 6, 5).otherwise(F.col("k"))),
    ),
    "another key": (5, _set(5, "k", "50")),
}


Side: TypeAlias = "list[tuple[int, ProofRow]]"


def differing_first_columns(version: SchemaVersion, source: Side, lake: Side) -> set[str | None]:
    """The first column of the keys that differ, after the buckets that don't have been left out."""
    sides = [_summed(side) for side in (source, lake)]
    expected = to_narrow(*sides)
    assert expected == differing_buckets(*sides)
    rows = [[row for bucket, row in side if bucket in expected] for side in (source, lake)]
    return {next(iter(key.key.values())) for key in differing_keys(version.key, *rows)}


def _summed(side: Side) -> dict[int, Bucket]:
    buckets: dict[int, Bucket] = {}
    for number, row in side:
        had = buckets.get(number, Bucket(0, 0))
        buckets[number] = Bucket(had.rows + 1, had.total + row.hash)
    return buckets


def source_side(conn: Connection, version: SchemaVersion) -> Side:
    """Every row of the source with its bucket."""
    return [
        (bucket, ProofRow(int(row[1]), tuple(row[2:])))
        for bucket in range(_BUCKETS)
        for row in conn.execute(rows_query(relation_of(version), _BUCKETS, [bucket]))
    ]


def lake_sides(frames: dict[str, DataFrame], version: SchemaVersion) -> dict[str, Side]:
    """Return the lake's side of each frame, in one Spark job for all."""
    texts = [rows_columns.exact_text(c) for c in exact_kinds.key_columns(version)]
    functions = jvm_functions(next(iter(frames.values())).sparkSession)
    bucket, row_hash = lake_form._bucket(version, _BUCKETS, functions), lake_form._hash(version, functions)
    result = [frame.select(F.lit(name), bucket, row_hash, *texts) for name, frame in frames.items()]
    sides: dict[str, Side] = {name: [] for name in frames}
    for row in reduce(DataFrame.unionAll, result).collect():
        sides[row[0]].append((int(row[1]), ProofRow(int(row[2]), tuple(row[3:]))))
    return sides


def arrow_sides(frames: dict[str, DataFrame], version: SchemaVersion) -> dict[str, Side]:
    """Return the same as this process has it in Arrow."""
    named = [frame.withColumn("__lp_frame", F.lit(name)) for name, frame in frames.items()]
    rows = reduce(DataFrame.unionAll, named).toArrow()
    sides: dict[str, Side] = {name: [] for name in frames}
    for batch in rows.to_batches():
        part = RowsOfBatch.of(version, batch)
        bits, bucket = part.hashed(version, _BUCKETS)
        columns = exact_kinds.key_columns(version)
        texts = [exact_texts(c, part.columns[c.name], part.hidden).to_pylist() for c in columns]
        keys = list(zip(*texts, strict=True)) if texts else [()] * batch.num_rows
        for name, *row in zip(
            batch.column("__lp_frame").to_pylist(), bucket.tolist(), bits.tolist(), keys, strict=True
        ):
            sides[name].append((row[0], ProofRow(*row[1:])))
    return sides


@pytest.mark.full
@pytest.mark.parametrize("key", [("k",), pytest.param((), marks=pytest.mark.full)], ids=["keyed", "bag"])
def test_every_corruption_is_found_and_its_key_named(
    conn: Connection, spark: SparkSession, tmp_path: Path, key: tuple[str, ...]
) -> None:
    """Corruptions are made one at a time; a bag's rows are named by their digests. Spark and this process see the same."""
    version = version_of(conn, "t", key)
    lake = to_lake(conn, version, spark, tmp_path)
    frames = {name: corrupt(lake) for name, (_key, corrupt) in _CORRUPTIONS.items()} | {"as it is": lake}
    source, sides = source_side(conn, version), lake_sides(frames, version)
    in_arrow = arrow_sides(frames, version)
    assert {name: Counter(side) for name, side in in_arrow.items()} == {n: Counter(side) for n, side in sides.items()}
    assert differing_first_columns(version, source, sides.pop("as it is")) == set()
    for name, (wrong, _corrupt) in _CORRUPTIONS.items():
        actual = differing_first_columns(version, source, sides[name])
        assert actual >= {str(wrong)} if key else actual, name


def test_only_the_differing_keys_are_named() -> None:
    """Each once, with its rows on both sides; a row in both is no difference, whatever its bucket."""
    source = [ProofRow(1, ("a",)), ProofRow(2, ("b",)), ProofRow(2, ("b",)), ProofRow(9, (None,))]
    lake = [ProofRow(1, ("a",)), ProofRow(2, ("b",)), ProofRow(8, (None,)), ProofRow(3, ("c",))]
    actual = [(dict(k.key), k.source_rows, k.lake_rows) for k in differing_keys(("id",), source, lake)]
    assert actual == [({"id": None}, 1, 1), ({"id": "b"}, 2, 1), ({"id": "c"}, 0, 1)]


def test_a_bag_is_named_by_digests_and_never_by_values() -> None:
    """A bag's rows have no key; the first 60 bits of the digest find them in `_lp_key`."""
    (actual,) = differing_keys((), [ProofRow(0xABC, ())] * 2, [ProofRow(0xABC, ())])
    assert actual.key == {"_lp_key": "000000000000abc"}
    assert (actual.source_rows, actual.lake_rows) == (2, 1)


@pytest.mark.full
def test_what_is_named_is_limited() -> None:
    """Keys, characters and rows read have limits; at least one bucket is always read."""
    many = [ProofRow(i, (f"{i:06d}",)) for i in range(KEYS_MAX + 5)]
    assert len(differing_keys(("id",), many, [])) == KEYS_MAX
    (long,) = differing_keys(("id",), [ProofRow(1, ("x" * 1000,))], [])
    assert len(str(long.key["id"])) == KEY_TEXT_MAX + 1
    huge = {b: Bucket(NARROW_ROWS_MAX, b) for b in range(3)}
    assert to_narrow(huge, {}) == [0]
    assert to_narrow({}, {b: Bucket(10, 1) for b in range(3)}) == [0, 1, 2]
    assert differing_buckets({1: Bucket(2, 5)}, {1: Bucket(2, 5)}) == []
    assert differing_buckets({1: Bucket(2, 5)}, {1: Bucket(1, 5)}) == [1]
