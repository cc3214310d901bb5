"""How much room a source's lake takes: landing, tables, kept cuts, and what maintenance would remove now.

What may go belongs to `maintain`; showing it to the callers. No Spark session: sizes are those that the tables' logs and
the landing's folder have.

Cost: a listing of the landing, and of each table the log from its last checkpoint on; what a run would remove is the walk
over all files that the run itself makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.commands.maintain import maintenance_plan
from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.lake.cycle.table_files import Damaged
from lakeproof.lake.delta.files import Unread, table_files
from lakeproof.lake.records.store import cut_numbers, newest_cut
from lakeproof.landing.retention import Freed, summed
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store


@dataclass(frozen=True, slots=True)
class TableSize:
    """The data files of a table's newest version; what older cuts keep besides is not in it."""

    current: Freed
    history: Freed


@dataclass(frozen=True, slots=True)
class LakeSizes:
    """Files and bytes of a landing and of the tables at the newest cut, how many cuts are kept, and what would go now.

    `damaged` says which tables and views could not be read, and why.
    """

    landing: Freed
    cuts: int
    tables: Mapping[TableName, TableSize] = field(default_factory=dict)
    reclaimable: Freed | None = None
    damaged: Mapping[str, Unread] = field(default_factory=dict)

    @property
    def current(self) -> Freed:
        """All current tables."""
        return summed(size.current for size in self.tables.values())

    @property
    def history(self) -> Freed:
        """All histories."""
        return summed(size.history for size in self.tables.values())


def lake_sizes(config: Config, name: str, *, plan: bool = False) -> LakeSizes:
    """One source's, with what a maintenance would remove if `plan`.

    With `plan` raises TransientError if files go while they are looked at.
    """
    store, paths = open_store(config.lake), LakePaths(config.lake, name)
    landing = summed(_size(store, key) for key in store.list(paths.landings))
    cut = newest_cut(store, paths)
    if cut is None:
        return LakeSizes(landing, 0)
    tables, damaged = dict[TableName, TableSize](), Damaged(name)
    for table, at in sorted(cut.tables.items()):
        try:
            tables[table] = TableSize(
                _newest(paths.url(paths.current(table)), at.current_version),
                _newest(paths.url(paths.history(table)), at.history_version),
            )
        except LakeError as error:
            # That a held one can't be read is known.
            if table not in cut.held:
                damaged.add(table, error)
    planned = maintenance_plan(config, name) if plan else None
    unread = {str(table): why for table, why in damaged.items()} | dict({} if planned is None else planned.damaged)
    reclaimable = None if planned is None else summed(planned.freed.values())
    return LakeSizes(landing, len(cut_numbers(store, paths)), tables, reclaimable, unread)


def _newest(path: str, version: int) -> Freed:
    return summed(Freed(1, file.bytes) for file in table_files(path, version).newest)


def _size(store: Store, key: str) -> Freed:
    try:
        return Freed(1, store.size(key))
    except NotFoundError:
        # A drain or a removal works beside us.
        return Freed()
