"""A chunk, linked into history and current, is what Spark makes of its rows."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, FROM, KEY, LSN, OP, ORD, SEQ, TEXT, XID
from lakeproof.lake.columns import current_columns, history_columns, in_lake, landing_schema, layer_statistics
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.files.links import LandedFile
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.fold.history import as_current, state_rows
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.columns import named, pick
from lakeproof.lake.rows.history_ops import SNAPSHOT
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.landing.segments.file_columns import file_names
from lakeproof.landing.segments.row_order import chunk_ordinal
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.copy.chunk_rows import ChunkRows
from lakeproof.storage.open import open_store, store_of
from lakeproof.storage.parquet import open_parquet
from lakeproof.values.types import decimal_typmod, spark_type
from tests.support.lake.linkable_rows import TYPES, as_numbers, random_rows

KINDS = {
    "id": "int8", "small": "int2", "whole": "int4", "flag": "bool", "ratio4": "float4", "ratio8": "float8",
    "money": "numeric:9,2", "finer": "numeric:18,4", "widest": "numeric:38,10", "note": "text", "octets": "bytea",
    "day": "date", "at": "timestamp", "instant": "timestamptz", "numbers": "int4[]", "notes": "text[]",
    "moments": "timestamp[]", "nothing": "text",
}  # fmt: skip
POINT = Lsn(1 << 33)
NAMES = ("000005-ab.parquet", "old.parquet")
HIDDEN = {ORD: "bigint", LSN: "bigint", SEQ: "bigint", OP: "string", XID: "bigint", COMMIT_TIME: "timestamp"}
HIDDEN |= {TEXT: "string", KEY: "string", FROM: "string", COMMIT_NUMBER: "bigint"}


def _column(name: str, attnum: int) -> Column:
    kind, _, size = KINDS[name].partition(":")
    typmod = decimal_typmod(*map(int, size.split(","))) if size else -1
    return Column(name, Oid(1), typmod, kind, kind, attnum, name == "id")


# The names of columns count from 1, but not their attribute numbers.
VERSION = SchemaVersion(
    TableName("app", "t"), Oid(9), Identity.DEFAULT, tuple(_column(n, i + 3) for i, n in enumerate(KINDS)), ("id",)
)


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """The rows as the caster gives them."""
    text = pa.array([None if i % 7 else '{"12":"infinity"}' for i in range(rows.num_rows)], pa.string())
    arrays = [text, *(rows[name].combine_chunks() for name in KINDS)]
    table = pa.table(arrays, names=[TEXT, *(f"c{i}" for i in range(len(KINDS)))])
    batches: list[pa.RecordBatch] = table.combine_chunks().to_batches(130)
    return batches


def _written(folder: Path, batches: list[pa.RecordBatch]) -> tuple[LandedFile, ChunkRows, Path]:
    """One chunk as the copy writes it, and the same rows without anything but values."""
    store, below = store_of(str(folder))
    chunk = ChunkRows(VERSION, 5, POINT)
    new, old = (store.create(f"{below}/{name}".lstrip("/")) for name in NAMES)
    formed = [chunk.in_lake_form(batch) for batch in batches]
    with chunk.open(new, formed[0].schema) as writer:
        for batch in formed:
            writer.write_batch(batch)
    plain = pa.Table.from_batches(batches).rename_columns([TEXT, *file_names(VERSION)])
    with open_parquet(old, plain.schema) as writer:
        writer.write_table(plain)
    new.finish()
    old.finish()
    rows = sum(batch.num_rows for batch in batches)
    landed, plain_file = (folder / name for name in NAMES)
    return LandedFile(str(landed), rows, new.bytes_written, new.sha256), chunk, plain_file


def _by_spark(spark: SparkSession, old: Path, rows: int) -> tuple[DataFrame, DataFrame]:
    """History's and current's rows as a first entry makes them now, with the ordinals that the landing gives."""
    schema = in_lake(VERSION)
    frame = spark.read.schema(landing_schema(schema, [TEXT])).parquet(str(old)).coalesce(1)
    first = chunk_ordinal(5)
    placed = frame.select((frame["_metadata.row_index"] + first).alias(ORD), TEXT, *named(schema))
    current = as_current(schema, placed)
    assert placed.count() == rows
    return state_rows(schema, current, SNAPSHOT, POINT), pick(current, current_columns(schema))


@pytest.mark.spark
def test_a_linked_chunk_is_what_a_first_entry_writes(spark: SparkSession, tmp_path: Path) -> None:
    """Every column of both tables, every type; and the writer's sum is the one of history's rows."""
    batches = _batches(random_rows(random.Random(2), 500))
    # As a command does: landing and tables are in one store.
    open_store(str(tmp_path))
    landed, chunk, old = _written(tmp_path / "landing", batches)
    schema, types = in_lake(VERSION), {c.name: spark_type(c) for c in VERSION.columns} | HIDDEN
    names = {"history": history_columns(schema), "current": current_columns(schema)}
    statistics = {"history": layer_statistics(schema, "history"), "current": ()}
    required = {name: name for name in (*KINDS, TEXT, ORD)}
    tables = dict(zip(names, _by_spark(spark, old, landed.rows), strict=True))
    for layer, columns in names.items():
        path = str(tmp_path / layer)
        new = NewTable({n: types[n] for n in columns}, TableSpec(statistics=statistics[layer]))
        info = CommitInfo(f"lakeproof/shop/1/{layer}/app.t", 4, "{}")
        request = LinkRequest(path, info, [Link(landed)], required, NO_VERSION, statistics[layer], create=new)
        assert prepare_links(request).commit().inserted == landed.rows
        linked = spark.read.format("delta").load(path)
        assert linked.schema == tables[layer].schema or linked.columns == tables[layer].columns
        assert as_numbers(linked.toArrow()) == as_numbers(tables[layer].toArrow())
    history = spark.read.format("delta").load(str(tmp_path / "history"))
    assert HistorySum(chunk.sum.rows, chunk.sum.total) == sum_of(schema, history)
    assert len(history.where(f"{LSN} = {int(POINT)}").inputFiles()) == 1
    assert history.where(f"{LSN} > {int(POINT)}").inputFiles() == []


def test_constants_take_no_room(tmp_path: Path) -> None:
    """Ordinals, position and operation of 20,000 rows are some 2 KB; floats and lists have no bounds, the key has."""
    batches = _batches(random_rows(random.Random(2), 300)) * 67
    landed, _, _ = _written(tmp_path, batches)
    footer = pq.read_metadata(landed.url)
    names = [footer.schema.column(i).path for i in range(len(footer.schema))]
    sizes = {
        n: sum(footer.row_group(g).column(i).total_compressed_size for g in range(footer.num_row_groups))
        for i, n in enumerate(names)
    }
    assert footer.num_rows == 300 * 67
    assert max(sizes[LSN], sizes[OP]) < 120 * footer.num_row_groups
    group = footer.row_group(0)
    bounds = {n for i, n in enumerate(names) if group.column(i).statistics is not None}
    assert {"id", "note", "day", ORD, LSN} <= bounds
    assert not {"ratio4", "ratio8", OP} & bounds
    assert set(TYPES) == set(KINDS)


def test_a_name_that_parquet_refuses_is_its_number() -> None:
    """Never a name that another column has."""
    odd = [
        replace(_column("note", i), name=name) for i, name in enumerate(("a b", "#1#", "_lp_ord", "A", "a"), start=1)
    ]
    assert file_names(replace(VERSION, columns=tuple(odd), key=())) == ["#1##", "#1#", "#3#_lp_ord", "A", "#5#a"]
