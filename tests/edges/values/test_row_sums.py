"""The sum of rows' hashes that a writer computes is the one that Spark computes of the same rows."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.landing.segments.reader import file_url
from lakeproof.landing.segments.row_sums import RowSum
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.folder import read_snapshot
from tests.support.lake.linkable_rows import TYPES, land, random_rows
from tests.support.lake.simulated_source import two_tables

pytestmark = pytest.mark.spark
NUMBERS = {name: number for number, name in enumerate(TYPES, start=1)}
SCHEMA = SchemaVersion(
    TableName("public", "t"),
    Oid(99),
    Identity.DEFAULT,
    tuple(Column(name, Oid(1), -1, "", "", number, number == 1) for name, number in NUMBERS.items()),
    ("id",),
)


def _sum(rows: pa.Table, constants: dict[str, pa.Scalar] | None = None, batch_rows: int = 70) -> HistorySum:
    result = RowSum(NUMBERS, constants)
    for batch in rows.combine_chunks().to_batches(batch_rows):
        result.add(batch)
    return HistorySum(result.rows, result.total)


def test_a_writers_sum_is_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """All types together, and each alone; with constants beside the rows, in batches that begin inside buffers."""
    rows = random_rows(random.Random(9), 400).append_column("_lp_ord", pa.array(range(400)))
    read = spark.read.parquet(land(tmp_path, "rows.parquet", rows).url)
    for name in TYPES:
        assert _sum(rows.select([name])) == sum_of(SCHEMA, read.select(name)), name
    constants = {"_lp_op": pa.scalar("snapshot"), "_lp_lsn": pa.scalar(1 << 40, pa.int64())}
    with_constants = read.withColumns({"_lp_op": F.lit("snapshot"), "_lp_lsn": F.lit(1 << 40), "_lp_seq": F.lit(None)})
    assert _sum(rows, constants) == sum_of(SCHEMA, with_constants)


def test_texts_of_every_length_and_decimals_of_every_size(spark: SparkSession, tmp_path: Path) -> None:
    """The hash takes a text in pieces of 32, 8, 4 and 1 octets, and a decimal's shortest octets."""
    edges = sorted({sign * ((1 << bits) + more) for bits in range(126) for more in (-1, 0, 1) for sign in (1, -1)})
    kept = [n for n in edges if abs(n) < 10**38]
    numbers = pa.array(kept, pa.decimal128(38, 0))
    texts = pa.array(["é" * (n % 60) + "a" * (n % 7) for n in range(len(kept))])
    rows = pa.table({"note": texts, "widest": numbers})
    read = spark.read.parquet(land(tmp_path, "rows.parquet", rows).url)
    assert _sum(rows) == sum_of(SCHEMA, read)


def test_documents_have_the_sums_of_their_files(spark: SparkSession, tmp_path: Path) -> None:
    """A segment's file and a chunk's have what Spark computes of the file's rows under history's columns."""
    source, rng = two_tables(tmp_path), random.Random(4)
    for number in range(40):
        table = source.table(rng.choice("ab"))
        source.insert(table, (number, f"é{number}" if number % 3 else None))
        if number % 4 == 0:
            source.update(table, table.rows[-1], (number, "other"))
        source.commit(rng)
        if number % 16 == 0:
            source.flush()
    source.flush()
    point = source.snapshot(["a", "b"])
    files = [(f, file_url(source.chain, f)) for m in source.chain.manifests() for f in m.files]
    sums = [(f.table, HistorySum(f.rows, f.sum), url) for f, url in files]
    folder = source.lake.paths.snapshot(Incarnation(1), point)
    for name, copied in read_snapshot(source.lake, folder).tables.items():
        sums += [(name, HistorySum(c.rows, c.sum), source.lake.url(f"{folder}/{c.path}")) for c in copied.chunks]
    assert len(sums) > 8
    for name, expected, url in sums:
        assert sum_of(source.tables[name].version, spark.read.parquet(url).drop("_lp_unchanged")) == expected
