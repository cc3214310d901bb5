"""The claim under every proof: a value has the same exact form in PostgreSQL as in the lake, of every type.

The lake's side goes the way that rows go: PostgreSQL's output text, the one caster, Parquet, a Delta table, Spark.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import SparkSession

from demo.server import EmbeddedPostgres
from lakeproof.config.model import TableConfig
from lakeproof.lake.rows import exact
from lakeproof.postgres.connection import Connection, connect
from lakeproof.proof import source_form
from lakeproof.proof.compare import ProofRow
from lakeproof.proof.lake_form import lake_buckets, lake_rows, proof_forms
from tests.edges.exact_forms import assert_same_forms, source_digests
from tests.edges.exact_tables import exact_schema, fill, relation_of, source_buckets, to_lake, version_of
from tests.edges.exact_values import ARRAYS_OF, Text, columns

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection of ours to an empty schema `exact`."""
    with exact_schema(postgres.dsn()) as connection:
        yield connection


@pytest.fixture
def seed() -> int:
    """The seed of the random values; printed, so that a failure can be had again."""
    value = int(os.environ.get("LAKEPROOF_SEED", str(random.randrange(1 << 32))))
    print(f"LAKEPROOF_SEED={value}")  # noqa: T201  (pytest shows it beside a failure)
    return value


# In the first all tests that prove a table compare forms, too.
_SESSIONS = [
    pytest.param(("UTC", "true"), id="ours", marks=pytest.mark.full),
    pytest.param(("America/St_Johns", "false"), id="another"),
]


@pytest.mark.parametrize("session", _SESSIONS)
def test_every_type_has_one_form_on_both_sides(
    conn: Connection, spark: SparkSession, tmp_path: Path, seed: int, session: tuple[str, str]
) -> None:
    """All types, extremes and random values, whatever the Spark session's zone and ANSI mode."""
    result = columns(seed, 120)
    types = list(result)
    definition = sql.SQL(", ").join(sql.SQL("{} " + t).format(sql.Identifier(f"{i} {t}")) for i, t in enumerate(types))
    conn.execute(sql.SQL("CREATE TABLE t (id int, {}, pinned numeric, pins numeric[])").format(definition))
    pinned: list[Text] = ["1.5", "1.50000", "0", "-0.0001", "12345678.1234", "123456789", "0.00001", "NaN", "Infinity"]
    pins: list[Text] = ["{1.5,1.50000,NULL}", "{}", "{0,12345678.1234}", "{1,NaN}", "{123456789}", "{0.00001}", "{{1}}"]
    ids: list[Text] = [str(i) for i in range(120)]
    fill(
        conn,
        "t",
        [ids, *result.values(), [*pinned, *([None] * (120 - len(pinned)))], [*pins, *([None] * (120 - len(pins)))]],
    )
    version = version_of(conn, "t", table=TableConfig(numeric={"pinned": (12, 4), "pins": (12, 4)}))
    typed = {column.name for column in version.columns if column.kind.endswith("[]")}
    assert {name.partition(" ")[2].removesuffix("[]") for name in typed} - {""} == {*ARRAYS_OF, "numbers"} - {"numeric"}
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", session[0])
    own.conf.set("spark.sql.ansi.enabled", session[1])
    lake = to_lake(conn, version, own, tmp_path)
    assert_same_forms(source_digests(conn, relation_of(version)), lake, version)
    keyed = replace(version, key=("id",))
    assert_same_forms(source_digests(conn, relation_of(keyed)), lake, keyed)
    overflowed = lake.where("_lp_text IS NOT NULL").count()
    assert overflowed > 10, "the values that no lake type holds are among them"


def test_a_database_in_another_encoding_is_summed_by_its_utf8_octets(
    postgres: EmbeddedPostgres, conn: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    """LATIN1 has one octet for é; both sides count UTF-8's two."""
    conn.execute("DROP DATABASE IF EXISTS latin")
    conn.execute("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with connect(SecretStr(postgres.dsn("latin"))) as latin:
        latin.execute("CREATE SCHEMA exact")
        latin.execute("SET search_path = exact")
        latin.execute("CREATE TABLE t (id int, v text, w char(3))")
        fill(latin, "t", [["1", "2", "3"], ["é", "Ünï", "a"], ["é", None, ""]])
        version = version_of(latin, "t", ("v",))
        lake = to_lake(latin, version, spark, tmp_path)
        relation = relation_of(version, encoding="LATIN1")
        texts = [exact.row_digest(proof_forms(version, None))]
        assert set(source_digests(latin, relation)) == {r[0] for r in lake.select(*texts).collect()}
        assert source_buckets(latin, relation, 7) == lake_buckets(lake, version, 7)
    conn.execute("DROP DATABASE latin")


def test_a_table_of_more_columns_than_a_function_takes_arguments(
    conn: Connection, spark: SparkSession, tmp_path: Path
) -> None:
    """PostgreSQL's concat takes 100 arguments; a table may have 1600 columns."""
    width = 230
    conn.execute("CREATE TABLE t ({})".format(", ".join(f"c{i} int" for i in range(width))))
    fill(conn, "t", [[str(i), None if i % 3 else "7"] for i in range(width)])
    version = version_of(conn, "t")
    lake = to_lake(conn, version, spark, tmp_path)
    assert_same_forms(source_digests(conn, relation_of(version)), lake, version)


@pytest.mark.parametrize("key", [("k",), ("d", "k"), ()])
def test_buckets_and_key_rows_are_the_same_on_both_sides(
    conn: Connection, spark: SparkSession, tmp_path: Path, key: tuple[str, ...]
) -> None:
    """Covers a key of exact kinds, a key of other kinds with a value that no lake type holds, and a bag."""
    conn.execute('CREATE TABLE t (v float8, k int, d date, "_lp;""odd" text)')
    days: list[Text] = ["infinity", "0044-03-15 BC", None, "2024-02-29"]
    fill(
        conn,
        "t",
        [[str(i % 5) for i in range(60)], [str(i) for i in range(60)], [days[i % 4] for i in range(60)], ["é"] * 60],
    )
    conn.execute("INSERT INTO t SELECT * FROM t WHERE k < 3")
    version = version_of(conn, "t", key)
    lake = to_lake(conn, version, spark, tmp_path)
    relation = relation_of(version)
    assert source_buckets(conn, relation, 16) == lake_buckets(lake, version, 16)
    expected = [0, 3, 11]
    actual = [
        (int(r[0]), ProofRow(hash=int(r[1]), key=tuple(r[2:])))
        for r in conn.execute(source_form.rows_query(relation, 16, expected))
    ]
    there = list(lake_rows(lake, version, 16, expected))
    assert Counter(actual) == Counter(there)
    assert [bucket for bucket, _ in actual] == [bucket for bucket, _ in there]
    assert actual


def test_the_source_reads_what_the_publication_names(conn: Connection) -> None:
    """The row filter applies, and a parent's children stay out unless the whole tree is asked for."""
    conn.execute("CREATE TABLE t (k int, v text)")
    conn.execute("CREATE TABLE child () INHERITS (t)")
    conn.execute("INSERT INTO t SELECT i, 'x' FROM generate_series(1, 10) i")
    conn.execute("INSERT INTO child SELECT i, 'y' FROM generate_series(11, 15) i")
    version = version_of(conn, "t", ("k",))
    counts = {
        (rows, row_filter): sum(
            b.rows
            for b in source_buckets(
                conn, source_form.ComparedRelation(version, sql.SQL(rows), row_filter=row_filter), 4
            ).values()
        )
        for rows in ("ONLY t", "t")
        for row_filter in (None, "(k % 2) = 0")
    }
    assert counts == {("ONLY t", None): 10, ("ONLY t", "(k % 2) = 0"): 5, ("t", None): 15, ("t", "(k % 2) = 0"): 7}
