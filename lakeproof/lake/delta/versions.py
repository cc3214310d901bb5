"""Tables and views as Spark reads them at the Delta version that a cut names.

Choosing the cut is the caller's decision (`lakeproof.lake.read`).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.lake.delta.log import RESTORE_LOG, LogGapError, is_emptied
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.view_cuts import ViewCut, view_path
from lakeproof.lake.rows.columns import pick
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import Store

Layer: TypeAlias = Literal["current", "history"]


def read_layer(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, layer: Layer = "current"
) -> DataFrame:
    """Return all columns of a table's current or history at the version that a cut names.

    Raises LogGapError if that version's commit was emptied.
    """
    key, version = lake.paths.current(table), cut_table.current_version
    if layer == "history":
        key, version = lake.paths.history(table), cut_table.history_version
    if is_emptied(lake.url(key), version):
        raise LogGapError(lake.url(key), f"version {version} of its log is empty, and a cut names it", RESTORE_LOG)
    return spark.read.format("delta").option("versionAsOf", version).load(lake.url(key))


def read_view(spark: SparkSession, store: Store, cut: ViewCut) -> DataFrame:
    """Return a view's rows as its cut has them, without hidden columns."""
    stored = spark.read.format("delta").option("versionAsOf", cut.delta_version)
    rows = stored.load(view_path(store, cut.view))
    return pick(rows, [column for column in rows.columns if not column.startswith(HIDDEN_PREFIX)])
