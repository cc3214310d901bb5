"""The files of a source's tables: small ones, those that no kept cut needs, and those that can't be read.

When something is removed does not belong here, nor the cycles in which files are put together: `lakeproof maintain` does
that.

A table that can't be read stops no other: it keeps what it has, and `Damaged` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import ORD, XID
from lakeproof.lake.cycle.broken_log import is_broken
from lakeproof.lake.cycle.lost_history import HistoryLostError, lost_history
from lakeproof.lake.delta.files import TableFiles, Unread, table_files, unneeded
from lakeproof.lake.delta.optimize import is_small
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import Held, describe, snapshot_command
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lake.spark.failures import reading, reason_of, unreadable_file
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake


class Damaged(dict[TableName, Unread]):
    """Tables that could not be read."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def add(self, table: TableName, error: BaseException) -> None:
        """Note what is wrong with a table, unless something is noted already."""
        remedy = f"{snapshot_command(self._source, table)}: it is copied again"
        self.setdefault(table, Unread(reason_of(error), remedy))

    def add_held(self, table: TableName, held: Held) -> None:
        """Note the same of a table that is held for it."""
        report = describe(held, self._source, table)
        self.setdefault(table, Unread(report.reason, report.remedy))


def fragmented(lake: SourceLake, cut: Cut, small_files: int, damaged: Damaged) -> tuple[TableName, ...]:
    """Return the tables with so many small files."""
    tables = []
    # A held table gets no new files, and if somebody else has written it nothing can be done in it.
    for table, cut_table in sorted((t, cut_table) for t, cut_table in cut.tables.items() if t not in cut.held):
        places = (
            (lake.paths.history(table), cut_table.history_version),
            (lake.paths.current(table), cut_table.current_version),
        )
        read = [_files(lake.url(key), version, table, damaged) for key, version in places]
        if None not in read and any(is_small(files.newest, small_files) for files in read if files is not None):
            tables.append(table)
    return tuple(tables)


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


def unneeded_files(lake: SourceLake, old: Iterable[str], damaged: Damaged) -> Iterator[tuple[str, int]]:
    """Yield the files that only cuts in `old` need, with their bytes, of the tables that the oldest other cut has.

    Versions only grow, so the oldest cut decides for all; a table that came later gives nothing back until that cut has it.
    """
    going = set(old)
    kept = [n for n in cut_numbers(lake) if lake.paths.cut(n) not in going]
    if not kept:
        return
    cut = read_cut(lake, kept[-1])
    oldest, newest = _versions(lake.paths, read_cut(lake, kept[0])), _versions(lake.paths, cut)
    for key, (table, version) in sorted(oldest.items()):
        path = lake.url(key)
        last = newest.get(key, (table, version))[1]
        try:
            files = table_files(path, version, last)
        except LakeError as error:
            # A held table is known to be unreadable. If it can be read at the newest cut, a copy has begun it again, and its
            # old files go when the last cut of that time is gone.
            if table not in cut.held and is_broken(path, last):
                damaged.add(table, error)
            continue
        yield from unneeded(path, files)


def _files(path: str, version: int, table: TableName, damaged: Damaged) -> TableFiles | None:
    """Return what the log says, None if it is damaged."""
    try:
        return table_files(path, version)
    except LakeError as error:
        damaged.add(table, error)
        return None


def _versions(paths: LakePaths, cut: Cut) -> dict[str, tuple[TableName, int]]:
    """Return the versions that a cut names of the tables' two Delta tables, by their places."""
    versions: dict[str, tuple[TableName, int]] = {}
    for table, cut_table in cut.tables.items():
        versions[paths.history(table)] = (table, cut_table.history_version)
        versions[paths.current(table)] = (table, cut_table.current_version)
    return versions
