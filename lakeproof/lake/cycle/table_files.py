"""The files of a source's tables: which tables have too many small ones, which files no kept cut needs, what changed last.

When something goes, and the cycles in which files are put together, belong to `maintain`.

A table that can't be read stops nobody else: it keeps what it has, and `Damaged` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import LakeError
from lakeproof.hidden_columns import COMMIT_TIME, ORD
from lakeproof.lake.cycle.broken_log import is_broken
from lakeproof.lake.cycle.lost_history import HistoryLostError, held_for, lost_history
from lakeproof.lake.delta.files import TableFiles, Unread, table_files, unneeded
from lakeproof.lake.delta.optimize import is_small
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.planning.ordinals import ORDINAL_BITS
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, CutTable, Held
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lake.spark.failures import raise_unless_about_the_data, reason_of, unreadable_file
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store


class Damaged(dict[TableName, Unread]):
    """Tables that could not be read."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self._source = source

    def add(self, table: TableName, error: BaseException) -> None:
        """Say of a table what was wrong, unless something was said before."""
        self.add_held(table, Held(Lsn.ZERO, reason_of(error), f"{RESNAPSHOT}: it is copied again"))

    def add_held(self, table: TableName, held: Held) -> None:
        """The same of a table that is held for it."""
        typed = held.named(self._source, table)
        self.setdefault(table, Unread(typed.reason, typed.remedy))


def fragmented(paths: LakePaths, cut: Cut, small_files: int, damaged: Damaged) -> tuple[TableName, ...]:
    """The tables with so many small files."""
    found = []
    # A held table gets no new files, and if somebody else has written it nothing can be done in it.
    for table, at in sorted((t, at) for t, at in cut.tables.items() if t not in cut.held):
        places = ((paths.history(table), at.history_version), (paths.current(table), at.current_version))
        read = [_files(paths.url(key), version, table, damaged) for key, version in places]
        if None not in read and any(is_small(files.newest, small_files) for files in read if files is not None):
            found.append(table)
    return tuple(found)


def first_change_since(
    spark: SparkSession, paths: LakePaths, cut: Cut, limit: datetime, damaged: Damaged
) -> tuple[dict[TableName, CycleNumber | None], dict[TableName, Held]]:
    """The cycle of each table's oldest change that was committed at `limit` or later, None if it has none.

    And how those are to be held of whose history a file can't be read. What is known to be lost is not read.
    """
    found: dict[TableName, CycleNumber | None] = {}
    lost: dict[TableName, Held] = {}
    for table, at in cut.tables.items():
        before = cut.held.get(table)
        if before is not None and before.history_lost:
            continue
        try:
            newest = _first(spark, paths, table, at, limit)
        except HistoryLostError as error:
            unread = held_for(error, at.at_lsn)
            lost[table] = unread.named(paths.source, table) if before is None else before.after(unread)
            damaged.add_held(table, unread)
        except (LakeError, PySparkException, Py4JError, OSError) as error:
            raise_unless_about_the_data(spark, error)
            damaged.add(table, error)
        else:
            found[table] = None if newest is None else CycleNumber(newest >> ORDINAL_BITS)
    return found, lost


def _first(spark: SparkSession, paths: LakePaths, table: TableName, at: CutTable, limit: datetime) -> int | None:
    """The `_lp_ord` of that change; raises HistoryLostError if a file of history can't be read, twice."""
    try:
        return _first_ord(spark, paths, table, at, limit)
    except (PySparkException, Py4JJavaError) as error:
        if lost_history(paths, table, unreadable_file(error)) is None:
            raise
    try:
        return _first_ord(spark, paths, table, at, limit)
    except (PySparkException, Py4JJavaError) as error:
        raise lost_history(paths, table, unreadable_file(error)) or error from error


def _first_ord(spark: SparkSession, paths: LakePaths, table: TableName, at: CutTable, limit: datetime) -> int | None:
    history = read_layer(spark, paths, table, at, "history")
    found = history.where(F.col(COMMIT_TIME) >= F.lit(limit)).agg(F.min(ORD)).collect()[0][0]
    return None if found is None else int(found)


def unneeded_files(store: Store, paths: LakePaths, old: Iterable[str], damaged: Damaged) -> Iterator[tuple[Path, int]]:
    """The files that no cut needs but those in `old`, of the tables that the oldest of the others has, with their bytes.

    Versions only grow, so that cut says it for all; a table that came later gives nothing back until the oldest has it.
    """
    going = set(old)
    kept = [n for n in cut_numbers(store, paths) if paths.cut(n) not in going]
    if not kept:
        return
    cut = read_cut(store, paths, kept[-1])
    oldest, newest = _versions(paths, read_cut(store, paths, kept[0])), _versions(paths, cut)
    for key, (table, version) in sorted(oldest.items()):
        path = paths.url(key)
        last = newest.get(key, (table, version))[1]
        try:
            files = table_files(path, version, last)
        except LakeError as error:
            # That a held one can't be read is known; if it can at the newest cut, a copy has begun it again, and what it
            # was goes when the last cut of that time is gone.
            if table not in cut.held and is_broken(path, last):
                damaged.add(table, error)
            continue
        yield from unneeded(path, files)


def _files(path: str, version: int, table: TableName, damaged: Damaged) -> TableFiles | None:
    """What the log says, None if it is damaged."""
    try:
        return table_files(path, version)
    except LakeError as error:
        damaged.add(table, error)
        return None


def _versions(paths: LakePaths, cut: Cut) -> dict[str, tuple[TableName, int]]:
    """What a cut names of the tables' two, by their places."""
    versions: dict[str, tuple[TableName, int]] = {}
    for table, at in cut.tables.items():
        versions[paths.history(table)] = (table, at.history_version)
        versions[paths.current(table)] = (table, at.current_version)
    return versions
