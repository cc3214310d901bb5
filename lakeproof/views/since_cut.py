"""Finds what has changed since a view's newest cut in the tables that it reads, or why that can't be gone by.

Computing with the changes does not belong here (`strategies`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone

from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.errors import LakeError
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.row_changes import ChangesUnavailableError, row_changes
from lakeproof.lake.read.open import OpenedLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import read_cut
from lakeproof.lake.records.view_cuts import ViewCut
from lakeproof.names import CycleNumber
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from lakeproof.views.strategies import NotIncrementalError, TableChange


def check_can_go_on(view: ViewConfig, newest: ViewCut | None, before: int, sha256: str) -> ViewCut:
    """Return the newest cut if its table is known to be its query's answer there; `before` is the table's version now.

    Raises NotIncrementalError with the reason if it is not known.
    """
    if newest is None:
        raise NotIncrementalError("it has no cut yet")
    if view.refresh == "full":
        raise NotIncrementalError("its configuration says so")
    if newest.definition_sha256 != sha256:
        raise NotIncrementalError("its definition has changed")
    if newest.delta_version != before:
        raise NotIncrementalError("its table was written by somebody else, or moved")
    age = datetime.now(timezone.utc) - time_of(newest.whole_at)
    if age >= timedelta(seconds=view.audit_s):
        raise NotIncrementalError(f"it was computed as a whole {age.total_seconds():,.0f} s ago")
    return newest


def changes_since(
    session: SparkSession, location: LakeLocation, view: ViewConfig, cut: ViewCut, now: Mapping[str, Cut]
) -> dict[str, TableChange]:
    """Return the changes of the tables that have another version than at the view's cut, by their names in lower case.

    Raises NotIncrementalError if a table's changes are no sequence of rows: a new shape, another incarnation, a cut or files
    that are not kept.
    """
    then = {source: _cut(location, source, number) for source, number in cut.sources.items()}
    opened = OpenedLake(session, location, then), OpenedLake(session, location, now)
    changes = {}
    for name, (source, table) in view.reads.items():
        old, new = (cuts.get(source) for cuts in (then, now))
        before, after = (None if c is None else c.tables.get(table) for c in (old, new))
        if before is None or after is None:
            raise NotIncrementalError(f"{source}: {table} was not in the lake then")
        if before.version.id != after.version.id:
            raise NotIncrementalError(f"{source}: the schema of {table} has changed")
        if before.snapshot_incarnation != after.snapshot_incarnation:
            raise NotIncrementalError(f"{source}: {table} is in another incarnation")
        if before.current_version == after.current_version:
            continue
        place = SourceLake.open(location, source)
        columns = column_names(in_lake(after.version))
        try:
            rows = row_changes(
                session, place.url(place.paths.current(table)), before.current_version, after.current_version, columns
            )
        except ChangesUnavailableError as error:
            raise NotIncrementalError(f"{source}: {table}: {error}") from error
        frames = [lake.table(source, table) for lake in opened]
        changes[name.lower()] = TableChange(frames[0], frames[1], rows)
    return changes


def _cut(location: LakeLocation, source: str, number: CycleNumber) -> Cut:
    lake = SourceLake.open(location, source)
    try:
        if lake.store.exists(lake.paths.cut(number)):
            return read_cut(lake, number)
    except LakeError as error:
        raise NotIncrementalError(f"cut {number} of {source} can't be read: {error.reason}") from error
    raise NotIncrementalError(f"cut {number} of {source}, at which it was computed, is not kept any more")
