"""The rows of a table after a snapshot or after a net change, as Spark frames.

Nothing is written here: `lakeproof.lake.delta.apply` commits.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.hidden_columns import DUP, FROM, KEY, ORD, TEXT
from lakeproof.lake.columns import current_columns, keeps_key, lake_types, landing_schema, placed
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import key_value, named, no_rows, pick
from lakeproof.lake.rows.matching import join_on_key
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable


def snapshot_rows(session: SparkSession, schema: SchemaVersion, table: SnapshotTable, folder: str) -> DataFrame:
    """Return a snapshot's rows: current's columns and `_lp_ord`, by chunk and row; `folder` holds the snapshot's files."""
    if not table.chunks:
        return empty_rows(session, schema)
    hidden = [f"{ORD} bigint", f"{TEXT} string"]
    files = session.read.schema(landing_schema(schema, hidden)).parquet(*(f"{folder}/{c.path}" for c in table.chunks))
    rows = files.select(F.col(ORD), F.col(TEXT), *named(schema))
    return as_current(schema, rows)


def as_current(schema: SchemaVersion, rows: DataFrame) -> DataFrame:
    """Turn rows with the table's columns, `_lp_text` and `_lp_ord` into current's columns and `_lp_ord`."""
    if keeps_key(schema):
        rows = rows.withColumn(KEY, key_value(schema))
    if schema.is_bag:
        rows = rows.withColumn(DUP, F.col(ORD))
    if FROM not in rows.columns:
        rows = rows.withColumn(FROM, F.lit(None).cast("string"))
    return pick(rows, placed(schema))


def empty_rows(session: SparkSession, schema: SchemaVersion) -> DataFrame:
    """Return a frame of no rows, with current's columns and `_lp_ord`."""
    types = lake_types(schema, placed(schema))
    return no_rows(session, types)


def with_net_change(schema: SchemaVersion, rows: DataFrame, net: NetChange) -> DataFrame:
    """Return a table's rows (current's columns) after a net change, with current's columns."""
    columns = current_columns(schema)
    kept = pick(rows, columns)
    if net.truncate:
        kept = kept.limit(0)
    elif net.deletes is not None:
        kept = join_on_key(kept, net.deletes, net.key, "left_anti", null_safe=net.null_safe)
    return kept if net.images is None else kept.unionAll(pick(net.images, columns))
