"""The files of a source's tables: small files, files that no kept cut or reader needs, and files that can't be read.

The time of a removal, and the cycles that put files together, are elsewhere: `lakeproof maintain` does that. A table that
can't be read stops no other: its files stay, and `Damaged` has the reason.

A version of a table of days (`lakeproof.lake.delta.day_table`) stays readable for as long as a cut does (`cuts_s`). While
days are being made nothing is removed: a commit's files are not in the log before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from lakeproof.errors import LakeError, TransientError
from lakeproof.lake.cycle.upkeep.logs import is_broken
from lakeproof.lake.delta.day_table import unneeded_by_readers
from lakeproof.lake.delta.files.needed import TableFiles, Unread, remove_files, table_files, unneeded
from lakeproof.lake.delta.files.optimize import is_small
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import Held, describe_held, snapshot_command
from lakeproof.lake.records.store import cut_numbers, read_cut
from lakeproof.lake.spark.failures import reason_of
from lakeproof.landing.retention import SpaceReclaimed, summed
from lakeproof.names import LAYERS, TableName
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
        report = describe_held(held, self._source, table)
        self.setdefault(table, Unread(report.reason, report.remedy))


def fragmented(lake: SourceLake, cut: Cut, small_files: int, damaged: Damaged) -> tuple[TableName, ...]:
    """Return the tables with so many small files."""
    tables = []
    # A held table gets no new files, and if somebody else has written it nothing can be done in it.
    for table, cut_table in sorted((t, cut_table) for t, cut_table in cut.tables.items() if t not in cut.held):
        read = [
            _files(lake.url(lake.paths.layer(table, layer)), cut_table.version_of(layer), table, damaged)
            for layer in LAYERS
        ]
        if None not in read and any(is_small(files.newest, small_files) for files in read if files is not None):
            tables.append(table)
    return tuple(tables)


def unneeded_table_files(lake: SourceLake, old: Iterable[str], damaged: Damaged) -> Iterator[list[tuple[str, int]]]:
    """Yield the files that only cuts in `old` need, with their bytes: a list for each table that the oldest other cut has.

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
        yield unneeded(path, files)


def _files(path: str, version: int, table: TableName, damaged: Damaged) -> TableFiles | None:
    """Return what the log says, None if it is damaged."""
    try:
        return table_files(path, version)
    except LakeError as error:
        damaged.add(table, error)
        return None


def _versions(paths: LakePaths, cut: Cut) -> dict[str, tuple[TableName, int]]:
    """Return the versions that a cut names of the tables' two Delta tables, by their places."""
    return {
        paths.layer(table, layer): (table, cut_table.version_of(layer))
        for table, cut_table in cut.tables.items()
        for layer in LAYERS
    }


_REMEDY = "move that folder away, and make the days again"


def files_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> Iterator[list[tuple[str, int]]]:
    """Yield the files that nobody needs after `limit`, with their bytes: a list for each table of days.

    One that can't be read is added to `unread`.
    """
    folder = lake.paths.all_daily
    for schema in lake.store.folders(folder):
        for table in lake.store.folders(f"{folder}/{schema}"):
            url = lake.url(f"{folder}/{schema}/{table}")
            try:
                yield unneeded_by_readers(url, limit)
            except LakeError as error:
                unread[f"days of {schema}/{table}"] = Unread(error.reason, _REMEDY)


def planned_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> SpaceReclaimed:
    """Return what would be removed, without a change."""
    return summed(SpaceReclaimed(1, size) for files in files_of_days(lake, limit, unread) for _, size in files)


def remove_of_days(lake: SourceLake, limit: datetime, unread: dict[str, Unread]) -> SpaceReclaimed:
    """Remove those files; nothing while another process makes days."""
    freed = SpaceReclaimed()
    try:
        with lake.store.lock(lake.paths.daily_lock, f"{lake.source}: days", "another process makes days") as lock:
            for files in files_of_days(lake, limit, unread):
                lock.check()
                freed = freed.plus(remove_files(files))
    except TransientError:
        return freed
    return freed
