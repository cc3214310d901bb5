"""Tables and views as Spark reads them at the Delta version that a cut names.

Choosing the cut is the caller's decision (`lakeproof.lake.read`).
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.log.commits import RESTORE_LOG, LogGapError, is_emptied
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.views.cuts import ViewCut, view_path
from lakeproof.lake.rows.columns import pick
from lakeproof.names import Layer, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store


def read_layer(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, layer: Layer = "current"
) -> DataFrame:
    """Return all columns of a table's current or history at the version that a cut names.

    Raises LogGapError if that version's commit was emptied.
    """
    key, version = lake.paths.layer(table, layer), cut_table.version_of(layer)
    if is_emptied(lake.url(key), version):
        raise LogGapError(lake.url(key), f"version {version} of its log is empty, and a cut names it", RESTORE_LOG)
    return read_at(spark, lake.url(key), version)


def read_view(spark: SparkSession, store: Store, cut: ViewCut) -> DataFrame:
    """Return a view's rows as its cut has them, without hidden columns."""
    return read_view_at(spark, store, cut.view, cut.delta_version)


def read_view_at(spark: SparkSession, store: Store, view: str, version: int) -> DataFrame:
    """Return a view's rows as a version of its table has them, without hidden columns."""
    rows = read_at(spark, view_path(store, view), version)
    return pick(rows, [column for column in rows.columns if not column.startswith(HIDDEN_PREFIX)])


def read_at(spark: SparkSession, path: str, version: int) -> DataFrame:
    """Return all columns of the Delta table at a path, as one of its versions has them."""
    return spark.read.format("delta").option("versionAsOf", version).load(path)


@dataclass(frozen=True, slots=True)
class TableDetail:
    """A table as Delta describes it: its format, its id, and the place where it is."""

    format: str
    table_id: str
    path: str


def table_detail(spark: SparkSession, name: str) -> TableDetail:
    """Return what Delta says about a table, by its SQL name; raises Spark's error if there is none, or it can't be read."""
    row = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "id", "location").collect()[0]
    return TableDetail(str(row["format"]), str(row["id"]), str(row["location"]))


def table_id(spark: SparkSession, path: str) -> str:
    """Return Delta's own id of the table at a path: another one if the table was moved away and made again."""
    return table_detail(spark, f"delta.{quoted(path)}").table_id
