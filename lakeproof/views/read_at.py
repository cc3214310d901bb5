"""What one refresh of a view reads: the point at which it is computed, and the frames of its tables there.

Choosing the point belongs to `lakeproof.commands.refresh`, and in an audit to the view's cut; the query to `refresh`.

A view reads each table at its source's cut, each other view at the version that the same refresh has given it, and each
external table at the version that the refresh has pinned. So whatever reaches it by two ways is of one cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.errors import LakeError
from lakeproof.lake.delta.log.commits import is_within
from lakeproof.lake.delta.versions import read_at, read_view_at
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion, view_path
from lakeproof.lake.spark.failures import reason_of, unreadable_file
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store
from lakeproof.storage.store import Store
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.table_changes import ChangeSource


@dataclass(frozen=True, slots=True)
class ReadAt:
    """The cut of each source whose tables a view reads itself, and the versions of the views and external tables."""

    cuts: Mapping[str, Cut] = field(default_factory=dict)
    views: Mapping[str, ViewVersion] = field(default_factory=dict)
    external: Mapping[str, ExternalVersion] = field(default_factory=dict)

    def row_bytes(self, view: ViewConfig) -> int:
        """Return the most bytes that a row of the view is taken to have: one row of each table and view that it reads."""
        tables = (self.cuts[source].tables.get(table) for source, table in view.reads.values() if source in self.cuts)
        views = (self.views[other].row_bytes for other in view.views.values() if other in self.views)
        return sum(table.row_bytes for table in tables if table is not None) + sum(views)

    def frames(self, session: SparkSession, lake: LakeLocation, view: ViewConfig) -> dict[str, DataFrame]:
        """Return a frame of `session` for each name in the view's SQL, without hidden columns of the lake's."""
        opened, store = OpenedLake(session, lake, self.cuts), open_store(lake)
        frames: dict[str, DataFrame] = {
            name: opened.table(source, table) for name, (source, table) in view.reads.items()
        }
        for name, other in view.views.items():
            frames[name] = read_view_at(session, store, other, self.views[other].delta_version)
        for name, table in view.external.items():
            pinned = self.external[str(table)]
            frames[name] = read_at(session, pinned.path, pinned.delta_version)
        return frames


@dataclass(frozen=True, slots=True)
class StagedRows:
    """A view's correction that was computed before, for its table at `version`; `insertions` are without `_lp_dup`."""

    version: int
    correction: ViewCorrection
    computed_at: str


@dataclass(frozen=True, slots=True)
class ViewInputs:
    """Everything that one refresh of a view reads.

    tables          a frame for each name in the view's SQL, without hidden columns
    cuts            the cut of each source, the sources of the views that it reads among them
    refresh         the number that the cuts of one refresh share
    changes_since   returns the tables' changes since a view's cut; None if they are unknown
    table_rows      returns the number of rows of each table, None for a table without a count
    point           the versions of the views and of the external tables that it reads
    replaces        the definition is a new one, and the view may get other columns
    takes_back      the definition is the one before the newest
    staged          the view's correction, if a preview has computed it
    """

    tables: Mapping[str, DataFrame]
    cuts: Mapping[str, CycleNumber]
    refresh: int
    changes_since: Callable[[ViewCut], Mapping[str, ChangeSource]] | None = None
    table_rows: Callable[[], Mapping[str, int | None]] = dict
    point: ReadAt = field(default_factory=ReadAt)
    replaces: bool = False
    takes_back: bool = False
    staged: StagedRows | None = None


def unreadable_error(store: Store, view: ViewConfig, point: ReadAt, error: BaseException) -> LakeError:
    """Return an error of Spark's while a view was computed as one of ours about what can't be read."""
    file = unreadable_file(error)
    for place, pinned in point.external.items():
        if file is not None and is_within(pinned.path.removeprefix("file://"), file):
            return LakeError(
                f"view {view.name}: external table {place}",
                f"its version {pinned.delta_version} can't be read: {reason_of(error)}",
                "restore its files, or write it anew: the next refresh reads its newest version",
            )
    return LakeError(
        f"view {view.name}: {view_path(store, view.name)}",
        f"its table, or a table that it reads, can't be read or written: {reason_of(error)}",
        "if the damaged table is the view's own, move that folder away: the next refresh creates it again",
    )
