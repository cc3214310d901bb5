"""The room that a source's lake takes: landing, tables, kept cuts, and what maintenance would remove now.

What may go is in `retention.py`. No Spark session: the sizes are those in the tables' logs and the
landing's folder.

Cost: a listing of the landing, and of each table the log from its last checkpoint on; what a run would remove costs the same
walk over all files as the run itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.errors import LakeError
from lakeproof.lake.cycle.upkeep.table_files import Damaged
from lakeproof.lake.delta.files.needed import TableFiles, Unread, counted_again, table_files
from lakeproof.lake.records.store import cut_numbers, newest_cut
from lakeproof.landing.retention import SpaceReclaimed, summed
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


@dataclass(frozen=True, slots=True)
class TableSize:
    """The data files of a table's newest version, without what older cuts keep besides."""

    current: SpaceReclaimed
    history: SpaceReclaimed


@dataclass(frozen=True, slots=True)
class LakeSizes:
    """Files and bytes of a landing and of the tables at the newest cut, how many cuts are kept, and what would go now.

    `damaged` says which tables and views could not be read, and why. `counted_again` are bytes of files that landing,
    snapshots, current and history share: they are on the disk once, and in each of these sums.
    """

    landing: SpaceReclaimed
    cuts: int
    tables: Mapping[TableName, TableSize] = field(default_factory=dict)
    reclaimable: SpaceReclaimed | None = None
    damaged: Mapping[str, Unread] = field(default_factory=dict)
    snapshots: SpaceReclaimed = field(default_factory=SpaceReclaimed)
    counted_again: int = 0

    @property
    def current(self) -> SpaceReclaimed:
        """Return the sum of all current tables."""
        return summed(size.current for size in self.tables.values())

    @property
    def history(self) -> SpaceReclaimed:
        """Return the sum of all histories."""
        return summed(size.history for size in self.tables.values())


def measure(lake: SourceLake) -> LakeSizes:
    """Return one source's sizes, without what maintenance would remove."""
    landing, snapshots = (
        summed(SpaceReclaimed(1, file.bytes) for file in lake.store.entries(folder) if not _is_hidden(file.key))
        for folder in (lake.paths.landings, lake.paths.all_snapshots)
    )
    cut = newest_cut(lake)
    if cut is None:
        return LakeSizes(landing, 0, snapshots=snapshots)
    tables, damaged = dict[TableName, TableSize](), Damaged(lake.source)
    files: dict[str, TableFiles] = {}
    for table, cut_table in sorted(cut.tables.items()):
        try:
            current, history = lake.url(lake.paths.current(table)), lake.url(lake.paths.history(table))
            files[current] = table_files(current, cut_table.current_version)
            files[history] = table_files(history, cut_table.history_version)
            tables[table] = TableSize(_newest(files[current]), _newest(files[history]))
        except LakeError as error:
            # A held table is known to be unreadable.
            if table not in cut.held:
                damaged.add(table, error)
    unread = {str(table): why for table, why in damaged.items()}
    return LakeSizes(landing, len(cut_numbers(lake)), tables, None, unread, snapshots, counted_again(files))


def _newest(files: TableFiles) -> SpaceReclaimed:
    return summed(SpaceReclaimed(1, file.bytes) for file in files.newest)


def _is_hidden(key: str) -> bool:
    """True for the store's own files."""
    return key.rpartition("/")[2].startswith(".")
