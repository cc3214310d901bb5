"""The claim under every proof: a value has the same exact form in PostgreSQL, in Arrow and in Spark, of every type.

Each test goes by both executors; that by Arrow needs no Spark. The lake's side goes the way that rows go: PostgreSQL's
output text, the one caster, Arrow; for Spark then Parquet and a Delta table. The values are in `exact_values.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession

from demo.server import EmbeddedPostgres
from lakeproof.config.model import TableConfig
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.rows.hashed import BucketSums, RowsOfBatch
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.proof.compare import Buckets, ProofRow
from lakeproof.proof.lake.form import lake_buckets, lake_rows
from lakeproof.proof.lake.in_arrow import buckets_of
from lakeproof.proof.source import form as source_form
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.exact_texts import exact_texts
from lakeproof.values.md5 import digest_bits
from lakeproof.values.types import KINDS
from tests.edges.values.exact_forms import assert_same_forms, assert_same_in_arrow, source_digests
from tests.edges.values.exact_tables import (
    exact_schema,
    fill,
    relation_of,
    source_buckets,
    to_arrow,
    to_lake,
    version_of,
)
from tests.edges.values.exact_values import ARRAYS_OF, PINNED, PINS, Text, columns

pytestmark = pytest.mark.postgres
ROWS = 120


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection of ours to an empty schema `exact`."""
    with exact_schema(postgres.dsn()) as connection:
        yield connection


@dataclass(frozen=True)
class Lake:
    """The lake's side of a comparison, by one of the executors; `spark` is None in Arrow."""

    spark: SparkSession | None
    folder: Path

    def assert_same(self, conn: Connection, version: SchemaVersion) -> None:
        """Compare the digests of all rows."""
        digests = source_digests(conn, relation_of(version))
        if self.spark is None:
            assert_same_in_arrow(digests, to_arrow(conn, version).combine_chunks().to_batches(), version)
        else:
            lake = self._delta(conn, version)
            assert_same_forms(digests, lake, DeltaRows.open(str(self.folder / "current"), 0).batches(), version)

    def buckets(self, conn: Connection, version: SchemaVersion, buckets: int) -> Buckets:
        """Return the sums of each bucket."""
        if self.spark is not None:
            return lake_buckets(self._delta(conn, version), version, buckets)
        sums = BucketSums(version, buckets)
        for batch in to_arrow(conn, version).to_batches(7):
            sums.add(RowsOfBatch.of(version, batch))
        return buckets_of(sums)

    def rows(
        self, conn: Connection, version: SchemaVersion, buckets: int, chosen: Sequence[int]
    ) -> Iterator[tuple[int, ProofRow]]:
        """Yield the rows of the chosen buckets."""
        if self.spark is not None:
            yield from lake_rows(self._delta(conn, version), version, buckets, chosen)
            return
        for batch in to_arrow(conn, version).to_batches(7):
            part = RowsOfBatch.of(version, batch)
            bits, bucket = part.hashed(version, buckets)
            texts = [exact_texts(c, part.columns[c.name], part.hidden).to_pylist() for c in key_columns(version)]
            keys = list(zip(*texts, strict=True)) if texts else [()] * batch.num_rows
            for each, row in zip(bucket.tolist(), map(ProofRow, bits.tolist(), keys), strict=True):
                if each in chosen:
                    yield each, row

    def _delta(self, conn: Connection, version: SchemaVersion) -> DataFrame:
        assert self.spark is not None
        current = self.folder / "current"
        if current.exists():
            return self.spark.read.format("delta").load(str(current))
        return to_lake(conn, version, self.spark, self.folder)


_SESSIONS = {"spark": ("UTC", "true"), "spark elsewhere": ("America/St_Johns", "false")}


# With our settings all tests that prove a table by Spark compare forms, too.
_OURS = pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.full])


@pytest.fixture(params=["arrow", _OURS, pytest.param("spark elsewhere", marks=pytest.mark.spark)])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """The lake's side by each executor; Spark's also in another zone and ANSI mode."""
    if request.param == "arrow":
        return Lake(None, tmp_path)
    own = request.getfixturevalue("spark").newSession()
    zone, ansi = _SESSIONS[request.param]
    own.conf.set("spark.sql.session.timeZone", zone)
    own.conf.set("spark.sql.ansi.enabled", ansi)
    return Lake(own, tmp_path)


# What Spark's side is left out of in `make test`.
MOSTLY_ARROW = pytest.mark.parametrize(
    "lake",
    ["arrow", _OURS, pytest.param("spark elsewhere", marks=[pytest.mark.spark, pytest.mark.full])],
    indirect=True,
)


def _every_kind(conn: Connection) -> SchemaVersion:
    """Make a table `t` that has all kinds with their extremes and random values; without a key."""
    result = columns(int(os.environ["LAKEPROOF_SEED"]), ROWS, conn.info.server_version)
    definition = sql.SQL(", ").join(sql.SQL("{} " + t).format(sql.Identifier(f"{i} {t}")) for i, t in enumerate(result))
    conn.execute(sql.SQL("CREATE TABLE t (id int, {}, pinned numeric, pins numeric[])").format(definition))
    ids: list[Text] = [str(i) for i in range(ROWS)]
    pinned = [[*values, *([None] * (ROWS - len(values)))] for values in (PINNED, PINS)]
    fill(conn, "t", [ids, *result.values(), *pinned])
    return version_of(conn, "t", table=TableConfig(numeric={"pinned": (12, 4), "pins": (12, 4)}))


def test_every_kind_has_one_form_on_both_sides(conn: Connection, lake: Lake) -> None:
    """All types, extremes and random values, as a bag."""
    bag = _every_kind(conn)
    assert {column.kind for column in bag.columns} == KINDS.keys(), (
        "a kind without a value here would never be compared"
    )
    typed = {column.name for column in bag.columns if column.kind.endswith("[]")}
    assert {name.partition(" ")[2].removesuffix("[]") for name in typed} - {""} == {*ARRAYS_OF, "numbers"} - {"numeric"}
    hidden = to_arrow(conn, bag).column("_lp_text")
    assert hidden.null_count < ROWS - 10, "values that no lake type holds are among them"
    lake.assert_same(conn, bag)


@MOSTLY_ARROW
def test_every_kind_has_the_same_form_beside_a_key(conn: Connection, lake: Lake) -> None:
    """A form has nothing of the key."""
    lake.assert_same(conn, replace(_every_kind(conn), key=("id",)))


def test_every_kind_has_one_form_in_a_key(conn: Connection) -> None:
    """Each column is the key in turn, and decides on its row's bucket."""
    bag = _every_kind(conn)
    rows = to_arrow(conn, bag)
    for column in bag.columns:
        version = replace(bag, columns=tuple({bag.columns[0], column}), key=(column.name,))
        sums = BucketSums(version, 64)
        for batch in rows.to_batches(50):
            sums.add(RowsOfBatch.of(version, batch))
        for reads_hex in {False, conn.info.server_version >= 160000}:
            assert buckets_of(sums) == source_buckets(conn, relation_of(version, reads_hex=reads_hex), 64), column.kind


@MOSTLY_ARROW
def test_a_database_in_another_encoding_is_summed_by_its_utf8_octets(
    postgres: EmbeddedPostgres, conn: Connection, lake: Lake
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
        relation = relation_of(version, encoding="LATIN1")
        for buckets in (1, 7):
            assert source_buckets(latin, relation, buckets) == lake.buckets(latin, version, buckets)
    conn.execute("DROP DATABASE latin")


@MOSTLY_ARROW
def test_a_table_of_more_columns_than_a_function_takes_arguments(conn: Connection, lake: Lake) -> None:
    """PostgreSQL's concat takes 100 arguments; a table may have 1600 columns."""
    width = 230
    conn.execute("CREATE TABLE t ({})".format(", ".join(f"c{i} int" for i in range(width))))
    fill(conn, "t", [[str(i), None if i % 3 else "7"] for i in range(width)])
    lake.assert_same(conn, version_of(conn, "t"))


@pytest.mark.parametrize("key", [("k",), ("d", "k"), ("v", '_lp;"odd'), ()])
def test_buckets_and_key_rows_are_the_same_on_both_sides(conn: Connection, lake: Lake, key: tuple[str, ...]) -> None:
    """Covers a key of exact kinds, keys of other kinds with a value that no lake type holds, and a bag."""
    conn.execute('CREATE TABLE t (v float8, k int, d date, "_lp;""odd" text)')
    days: list[Text] = ["infinity", "0044-03-15 BC", None, "2024-02-29"]
    fill(conn, "t", [[str(i % 5) for i in range(60)], [str(i - 20) for i in range(60)], [*days * 15], ["é"] * 60])
    conn.execute("INSERT INTO t SELECT * FROM t WHERE k < 3")
    version = version_of(conn, "t", key)
    relation = relation_of(version)
    for buckets in (1, 16):
        assert source_buckets(conn, relation, buckets) == lake.buckets(conn, version, buckets)
    chosen = [bucket for bucket in range(16) if bucket != 7]
    source = [
        (int(r[0]), ProofRow(hash=int(r[1]), key=tuple(r[2:])))
        for r in conn.execute(source_form.rows_query(relation, 16, chosen))
    ]
    there = list(lake.rows(conn, version, 16, chosen))
    assert source
    assert Counter(there) == Counter(source)
    assert lake.spark is None or [bucket for bucket, _ in there] == [bucket for bucket, _ in source]


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


def test_rows_that_went_are_taken_out_of_the_sums(conn: Connection) -> None:
    """What came and went leaves nothing, in whatever order; what went and never came is left over."""
    conn.execute("CREATE TABLE t (v text)")
    fill(conn, "t", [["a", "b", "a"]])
    version = version_of(conn, "t")
    part = RowsOfBatch.of(version, to_arrow(conn, version).combine_chunks().to_batches()[0])
    sums = BucketSums(version, 4)
    sums.add(part, -1)
    assert buckets_of(sums)
    sums.add(part)
    assert buckets_of(sums) == {}


def test_digests_are_md5s_of_every_length() -> None:
    """Around each end of a block, and longer than many."""
    rng = random.Random(7)
    texts = [rng.randbytes(size) for size in (*range(200), 1000, 4095, 4096, 10_001)]
    bits = digest_bits([pa.array(texts, pa.binary()), "|", pa.array(["x", *texts], pa.binary())[1:]], len(texts))
    whole = [text + b"|" + text for text in texts]
    assert bits.tolist() == [int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:15], 16) for text in whole]


def test_a_hidden_text_that_is_no_json_object_is_none(conn: Connection) -> None:
    """As Spark has it: a text of `_lp_text` that was damaged leaves the value NULL, which the source's is not."""
    conn.execute("CREATE TABLE t (k int, d date)")
    fill(conn, "t", [["1"], ["infinity"]])
    version = version_of(conn, "t", ("k",))
    rows = to_arrow(conn, version)
    forms = set()
    for text in (json.dumps({"2": "infinity"}), json.dumps({"2": "-infinity"}), '{"2":"infin', "[1]", "", None):
        altered = rows.set_column(2, "_lp_text", pa.array([text], pa.string())).to_batches()[0]
        forms.add((tuple(RowsOfBatch.of(version, altered).hashed(version, 1)[0].tolist()), text))
    hashes = Counter(form for form, _ in forms)
    assert sorted(hashes.values()) == [1, 1, 4]
