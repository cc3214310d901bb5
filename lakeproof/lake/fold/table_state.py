"""The state of a table that a snapshot or a net change leaves behind."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, FROM, KEY, ORD, TEXT
from lakeproof.lake.columns import current_columns, keeps_key, landing_schema, merge_key, placed, quoted
from lakeproof.lake.fold.net_change import NetChange
from lakeproof.lake.rows.columns import col, key_value, named, pick
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.values.types import spark_type

_FILE = "_lp_file"


_START = "_lp_start"


def snapshot_rows(
    session: SparkSession, shape: SchemaVersion, table: SnapshotTable, folder: str, first_ord: int
) -> DataFrame:
    """A snapshot's rows: current's columns and `_lp_ord`, which runs from `first_ord` on, chunk by chunk.

    `folder` is the snapshot's place; a row's ordinal depends on the files alone, so it is the same at every attempt.
    """
    if not table.chunks:
        return empty_rows(session, shape)
    starts = []
    for chunk in table.chunks:
        starts.append((chunk.path.rpartition("/")[2], first_ord))
        first_ord += chunk.rows
    bases = F.broadcast(session.createDataFrame(starts, f"{_FILE} string, {_START} bigint"))
    files = session.read.schema(landing_schema(shape, [f"{TEXT} string"])).parquet(
        *(f"{folder}/{c.path}" for c in table.chunks)
    )
    placed = files.select(
        "*", F.col("_metadata.file_name").alias("_lp_name"), F.col("_metadata.row_index").alias("_lp_i")
    )
    placed = placed.join(bases, F.col("_lp_name") == F.col(_FILE))
    rows = placed.select((F.col(_START) + F.col("_lp_i")).alias(ORD), F.col(TEXT), *named(shape))
    return as_current(shape, rows)


def as_current(shape: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Rows with the table's columns, `_lp_text` and `_lp_ord` → current's columns and `_lp_ord`."""
    if keeps_key(shape):
        rows = rows.withColumn(KEY, key_value(shape))
    if shape.is_bag:
        rows = rows.withColumn(DUP, F.col(ORD))
    if FROM not in rows.columns:
        rows = rows.withColumn(FROM, F.lit(None).cast("string"))
    return pick(rows, placed(shape))


def empty_rows(session: SparkSession, shape: SchemaVersion) -> DataFrame:
    """No rows, with current's columns and `_lp_ord`."""
    types = {c.name: spark_type(c) for c in shape.columns} | {
        TEXT: "string",
        KEY: "string",
        DUP: "bigint",
        ORD: "bigint",
        FROM: "string",
    }
    return session.createDataFrame([], ", ".join(f"{quoted(n)} {types[n]}" for n in placed(shape)))


def with_net_change(rows: DataFrame, net: NetChange) -> DataFrame:
    """Rows of a table (current's columns) after a net change, current's columns."""
    columns = current_columns(net.shape)
    kept = pick(rows, columns)
    if net.wipe:
        kept = kept.limit(0)
    elif net.deletes is not None:
        kept = without(kept, net.deletes, merge_key(net.shape), null_safe=net.null_safe)
    return kept if net.images is None else kept.unionAll(pick(net.images, columns))


def without(rows: DataFrame, gone: DataFrame, key: tuple[str, ...], *, null_safe: bool) -> DataFrame:
    """The rows whose key is not in `gone`."""
    return _by_key(rows, gone, key, "left_anti", null_safe=null_safe)


def _by_key(rows: DataFrame, keys: DataFrame, key: tuple[str, ...], how: str, *, null_safe: bool) -> DataFrame:
    names = [f"_lp_gone_{i}" for i in range(len(key))]
    keys = keys.select(*(col(k).alias(n) for k, n in zip(key, names, strict=True)))
    condition = F.lit(True)
    for k, n in zip(key, names, strict=True):
        condition = condition & (col(k).eqNullSafe(F.col(n)) if null_safe else col(k) == F.col(n))
    return rows.join(keys, condition, how)
