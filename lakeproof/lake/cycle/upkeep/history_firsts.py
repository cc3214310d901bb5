"""The first change of a table's history that meets a condition, by Spark: where retention begins, and what is trimmed.

Choosing the condition does not belong here (`lakeproof.commands.maintain`).
"""

from __future__ import annotations

from collections.abc import Mapping

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import ORD, XID
from lakeproof.lake.cycle.upkeep.logs import HistoryLostError, lost_history
from lakeproof.lake.cycle.upkeep.table_files import Damaged
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import Held
from lakeproof.lake.spark.failures import reading, unreadable_file
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


def first_change_from(
    spark: SparkSession, lake: SourceLake, cut: Cut, ordinal: int, damaged: Damaged
) -> tuple[dict[TableName, int | None], dict[TableName, Held]]:
    """Return the ordinal of each table's first change that is not before `ordinal`, None if it has none.

    And how the tables are to be held whose history has an unreadable file. A history that is lost already is not read.
    """
    is_young = F.col(XID).isNotNull() & (F.col(ORD) >= F.lit(ordinal))
    return _each_first(spark, lake, cut, dict.fromkeys(cut.tables, is_young), damaged)


def tables_with_changes_before(
    spark: SparkSession, lake: SourceLake, cut: Cut, ordinals: Mapping[TableName, int], damaged: Damaged
) -> tuple[set[TableName], dict[TableName, Held]]:
    """Return which of these tables have a change before an ordinal; what a snapshot brought is none. And as above."""
    is_change = F.col(XID).isNotNull()
    conditions = {table: is_change & (F.col(ORD) < F.lit(ordinal)) for table, ordinal in ordinals.items()}
    firsts, lost = _each_first(spark, lake, cut, conditions, damaged)
    return {table for table, first in firsts.items() if first is not None}, lost


def _each_first(
    spark: SparkSession, lake: SourceLake, cut: Cut, conditions: Mapping[TableName, Column], damaged: Damaged
) -> tuple[dict[TableName, int | None], dict[TableName, Held]]:
    """Return the ordinal of each table's first row that meets its condition, and how unreadable histories are held."""
    firsts: dict[TableName, int | None] = {}
    lost: dict[TableName, Held] = {}
    for table, condition in conditions.items():
        cut_table, before = cut.tables[table], cut.held.get(table)
        if before is not None and before.history_lost:
            continue
        with reading(spark, LakeError, HistoryLostError, Py4JError, OSError) as attempt:
            firsts[table] = _first(spark, lake, table, cut_table, condition)
        if isinstance(attempt.error, HistoryLostError):
            unread = attempt.error.held(cut_table.at_lsn)
            lost[table] = unread if before is None else before.after(unread)
            damaged.add_held(table, unread)
        elif attempt.error is not None:
            damaged.add(table, attempt.error)
    return firsts, lost


def _first(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, condition: Column
) -> int | None:
    """Return the `_lp_ord` of that row; raises HistoryLostError if a file of history can't be read, twice."""
    try:
        return _first_ord(spark, lake, table, cut_table, condition)
    except (PySparkException, Py4JJavaError) as error:
        if lost_history(lake, table, unreadable_file(error)) is None:
            raise
    try:
        return _first_ord(spark, lake, table, cut_table, condition)
    except (PySparkException, Py4JJavaError) as error:
        raise lost_history(lake, table, unreadable_file(error)) or error from error


def _first_ord(
    spark: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable, condition: Column
) -> int | None:
    history = read_layer(spark, lake, table, cut_table, "history")
    first = history.where(condition).agg(F.min(ORD)).collect()[0][0]
    return None if first is None else int(first)
