"""The claim under every proof without Spark: a value has the same exact form in PostgreSQL as in Arrow, of every type.

`test_exact_forms.py` compares both with Spark's. The lake's side goes the way that rows go: PostgreSQL's output text, the
one caster, Arrow.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from psycopg import sql
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.config.model import TableConfig
from lakeproof.postgres.connection import Connection, connect
from lakeproof.proof import source_form
from lakeproof.proof.compare import ProofRow
from lakeproof.proof.lake_in_arrow import BucketSums, RowsOfBatch
from lakeproof.schema import SchemaVersion
from lakeproof.values.exact_kinds import key_columns
from lakeproof.values.exact_texts import exact_texts
from lakeproof.values.md5 import digest_bits
from lakeproof.values.types import KINDS
from tests.edges.exact_forms import assert_same_in_arrow, source_digests
from tests.edges.exact_tables import exact_schema, fill, relation_of, source_buckets, to_arrow, version_of
from tests.edges.exact_values import PINNED, PINS, Text, columns

ROWS = 120


@pytest.fixture
def conn(postgres: EmbeddedPostgres) -> Iterator[Connection]:
    """A connection of ours to an empty schema `exact`."""
    with exact_schema(postgres.dsn()) as connection:
        yield connection


@pytest.mark.postgres
def test_every_kind_has_one_form_in_the_source_and_in_arrow(conn: Connection) -> None:
    """All kinds, extremes and random values; with a key, as a bag, and with every column in the key."""
    seed = int(os.environ.get("LAKEPROOF_SEED", str(random.randrange(1 << 32))))
    print(f"LAKEPROOF_SEED={seed}")  # noqa: T201  (pytest shows it beside a failure)
    result = columns(seed, ROWS)
    definition = sql.SQL(", ").join(sql.SQL("{} " + t).format(sql.Identifier(f"{i} {t}")) for i, t in enumerate(result))
    conn.execute(sql.SQL("CREATE TABLE t (id int, {}, pinned numeric, pins numeric[])").format(definition))
    ids: list[Text] = [str(i) for i in range(ROWS)]
    pinned = [[*values, *([None] * (ROWS - len(values)))] for values in (PINNED, PINS)]
    fill(conn, "t", [ids, *result.values(), *pinned])
    bag = version_of(conn, "t", table=TableConfig(numeric={"pinned": (12, 4), "pins": (12, 4)}))
    assert {column.kind for column in bag.columns} == KINDS.keys(), (
        "a kind without a value here would never be compared"
    )
    rows = to_arrow(conn, bag)
    assert rows.column("_lp_text").null_count < ROWS - 10, "values that no lake type holds are among them"
    for version in (bag, replace(bag, key=("id",))):
        digests = source_digests(conn, relation_of(version))
        assert_same_in_arrow(digests, rows.combine_chunks().to_batches(), version)
    for column in bag.columns:
        version = replace(bag, columns=tuple({bag.columns[0], column}), key=(column.name,))
        sums = BucketSums(version, 64)
        for batch in rows.to_batches(50):
            sums.add(RowsOfBatch.of(version, batch))
        assert sums.sums() == source_buckets(conn, relation_of(version), 64), column.kind


@pytest.mark.postgres
def test_a_database_in_another_encoding_is_summed_by_its_utf8_octets(
    postgres: EmbeddedPostgres, conn: Connection
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
            assert source_buckets(latin, relation, buckets) == _summed(to_arrow(latin, version), version, buckets)
    conn.execute("DROP DATABASE latin")


@pytest.mark.postgres
@pytest.mark.parametrize("key", [("k",), ("d", "k"), ("v", '_lp;"odd'), ()])
@pytest.mark.parametrize("buckets", [1, 16])
def test_buckets_and_key_rows_are_the_same_on_both_sides(conn: Connection, key: tuple[str, ...], buckets: int) -> None:
    """Covers a key of exact kinds, keys of other kinds with a value that no lake type holds, and a bag."""
    conn.execute('CREATE TABLE t (v float8, k int, d date, "_lp;""odd" text)')
    days: list[Text] = ["infinity", "0044-03-15 BC", None, "2024-02-29"]
    fill(conn, "t", [[str(i % 5) for i in range(60)], [str(i - 20) for i in range(60)], [*days * 15], ["é"] * 60])
    conn.execute("INSERT INTO t SELECT * FROM t WHERE k < 3")
    version = version_of(conn, "t", key)
    rows = to_arrow(conn, version)
    assert source_buckets(conn, relation_of(version), buckets) == _summed(rows, version, buckets)
    source = Counter(
        (int(r[0]), ProofRow(hash=int(r[1]), key=tuple(r[2:])))
        for r in conn.execute(source_form.rows_query(relation_of(version), buckets, range(buckets)))
    )
    assert Counter(_proof_rows(rows, version, buckets)) == source


def _proof_rows(rows: pa.Table, version: SchemaVersion, buckets: int) -> Iterator[tuple[int, ProofRow]]:
    for batch in rows.to_batches(7):
        part = RowsOfBatch.of(version, batch)
        bits, bucket = part.hashed(version, buckets)
        texts = [exact_texts(c, part.columns[c.name], part.hidden).to_pylist() for c in key_columns(version)]
        keys = list(zip(*texts, strict=True)) if texts else [()] * batch.num_rows
        yield from zip(bucket.tolist(), map(ProofRow, bits.tolist(), keys), strict=True)


def _summed(rows: pa.Table, version: SchemaVersion, buckets: int) -> object:
    sums = BucketSums(version, buckets)
    for batch in rows.to_batches(7):
        sums.add(RowsOfBatch.of(version, batch))
    return sums.sums()


@pytest.mark.postgres
def test_rows_that_went_are_taken_out_of_the_sums(conn: Connection) -> None:
    """What came and went leaves nothing, in whatever order; what went and never came is left over."""
    conn.execute("CREATE TABLE t (v text)")
    fill(conn, "t", [["a", "b", "a"]])
    version = version_of(conn, "t")
    part = RowsOfBatch.of(version, to_arrow(conn, version).combine_chunks().to_batches()[0])
    sums = BucketSums(version, 4)
    sums.add(part, -1)
    assert sums.sums()
    sums.add(part)
    assert sums.sums() == {}


def test_digests_are_md5s_of_every_length() -> None:
    """Around each end of a block, and longer than many."""
    rng = random.Random(7)
    texts = [rng.randbytes(size) for size in (*range(200), 1000, 4095, 4096, 10_001)]
    offsets = np.cumsum([0, *map(len, texts)]).astype(np.int32)
    offsets.flags.writeable = False
    bits = np.zeros(len(texts), np.int64)
    digest_bits(np.frombuffer(b"".join(texts), np.uint8), offsets, bits)
    assert bits.tolist() == [int(hashlib.md5(text, usedforsecurity=False).hexdigest()[:15], 16) for text in texts]


@pytest.mark.postgres
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
