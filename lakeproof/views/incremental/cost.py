"""Decides if computing a view from its changes is worth it, by the number of changed rows and of all rows of its tables.

The choice of an exact strategy belongs to `strategies`. Rows are counted by the tables' logs, so nothing is read here.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.data_files import data_file, live_rows
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.views.cuts import view_path
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.incremental.collected import NotIncrementalError

# If more of the rows have changed the whole query is cheaper: it reads each row once, and a changed row is read, looked for
# in the view and in the other tables, and written.
CHANGED_SHARE_MAX = 0.2
# So few changes cost little in any way, and of a small table they are soon a large share.
FEW_CHANGES = 100


def check_worth(changed: int, rows: int | None) -> None:
    """Raise NotIncrementalError if the whole query over so many rows is cheaper; None: nobody counted them."""
    if rows is not None and changed > max(FEW_CHANGES, rows * CHANGED_SHARE_MAX):
        raise NotIncrementalError(f"{changed:,} rows have changed of tables with {rows:,}: all of it is cheaper")


def table_rows(location: LakeLocation, view: ViewConfig) -> Mapping[str, int | None]:
    """Return about how many rows each table and view has that a view reads, by its name in lower case.

    None if its files do not say, or nobody has looked: an external table's.
    """
    paths, store = dict[str, str](), open_store(location)
    for name, (source, table) in view.reads.items():
        place = SourceLake.open(location, source)
        paths[name.lower()] = place.url(place.paths.current(table))
    paths |= {name.lower(): view_path(store, other) for name, other in view.views.items()}
    return {name: _live_rows(path) for name, path in paths.items()}


def _live_rows(path: str) -> int | None:
    """Return the number of rows of a table's newest version, as its log counts them; None if it does not."""
    try:
        state = read_state(path, newest_version(path))
    except LakeError:
        # What a killed process has left above the version that is read.
        return None
    return live_rows(map(data_file, state.files.values()))
