"""Finds what has changed in the tables of a view since its newest cut, or why it can't be used; and how many rows they have.

Computing with the changes does not belong here (`strategies`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.errors import LakeError
from lakeproof.lake.columns import column_names, in_lake
from lakeproof.lake.delta.files.data_files import data_file, live_rows
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError, VersionChanges
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.delta.versions import read_at, read_view_at, row_changes
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import read_cut
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewCut, ViewVersion, view_path
from lakeproof.lake.rows.columns import col
from lakeproof.lake.spark.failures import reading, unreadable_file
from lakeproof.names import CycleNumber
from lakeproof.schema import SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.incremental.collected import NotIncrementalError
from lakeproof.views.incremental.table_changes import ChangeSource
from lakeproof.views.read_at import ReadAt


def changes_since(
    session: SparkSession, location: LakeLocation, view: ViewConfig, cut: ViewCut, now: ReadAt
) -> dict[str, ChangeSource]:
    """Return the changes of what has another version than at the view's cut, by the names in its SQL in lower case.

    Raises NotIncrementalError if the changes are no sequence of rows: other columns, another table or incarnation, a cut or
    files that are not kept. Columns that were added are named; whether the query looks at one is not known here.
    """
    then = {source: _cut(location, source, cut.sources[source]) for source in now.cuts if source in cut.sources}
    opened = OpenedLake(session, location, then), OpenedLake(session, location, now.cuts)
    changes = {}
    for name, (source, table) in view.reads.items():
        old, new = (cuts.get(source) for cuts in (then, now.cuts))
        before, after = (None if c is None else c.tables.get(table) for c in (old, new))
        if before is None or after is None:
            raise NotIncrementalError(f"{source}: {table} was not in the lake then")
        if before.snapshot_incarnation != after.snapshot_incarnation:
            raise NotIncrementalError(f"{source}: {table} is in another incarnation")
        if before.current_version == after.current_version:
            continue
        place = SourceLake.open(location, source)
        read = _Read(f"{source}: {table}", place.url(place.paths.current(table)))
        versions = before.current_version, after.current_version
        now_rows, columns = opened[1].table(source, table), column_names(in_lake(after.version))
        added = _added(f"{source}: {table}", before.version, after.version)
        then_rows = partial(_with_added, now_rows, partial(opened[0].table, source, table), added)
        change = read.change(session, versions, then_rows, now_rows, columns)
        changes[name.lower()] = replace(change, added=added)
    return changes | _of_others(session, location, view, cut, now)


def _added(thing: str, before: SchemaVersion, after: SchemaVersion) -> frozenset[str]:
    """Return the columns that came; raise NotIncrementalError if another changed: Delta reads no changes over that."""
    then, now = ({c.name: replace(c, identity=False) for c in in_lake(v).columns} for v in (before, after))
    if any(now.get(name) != column for name, column in then.items()):
        raise NotIncrementalError(f"the columns of {thing} have changed")
    return frozenset(now.keys() - then.keys())


def _with_added(now: DataFrame, then: Callable[[], DataFrame], added: frozenset[str]) -> DataFrame:
    """Return the rows then with the columns of `now`; what was added is NULL, and nobody looks at it."""
    rows = then()
    if not added and rows.columns == now.columns:
        return rows
    fields = now.schema.fields
    return rows.select(
        *(F.lit(None).cast(f.dataType).alias(f.name) if f.name in added else col(f.name) for f in fields)
    )


@dataclass(frozen=True, slots=True)
class _Read:
    """A Delta table that a view reads: its name for people, and its place."""

    thing: str
    path: str

    def change(
        self,
        session: SparkSession,
        versions: tuple[int, int],
        before: Callable[[], DataFrame],
        now: DataFrame,
        columns: Sequence[str],
    ) -> ChangeSource:
        """Return where the change between two versions comes from."""
        return ChangeSource(
            now, before, partial(self._rows, session, versions, columns), partial(self._collected, versions)
        )

    def _rows(self, session: SparkSession, versions: tuple[int, int], columns: Sequence[str]) -> DataFrame:
        try:
            return row_changes(session, self.path, *versions, columns)
        except ChangesUnavailableError as error:
            raise NotIncrementalError(f"{self.thing}: {error}") from error

    def _collected(self, versions: tuple[int, int], columns: Sequence[str], rows_max: int) -> pa.Table | None:
        try:
            return VersionChanges.between(self.path, *versions, columns).collect(columns, rows_max)
        except ChangesUnavailableError as error:
            raise NotIncrementalError(f"{self.thing}: {error}") from error


def _of_others(
    session: SparkSession, location: LakeLocation, view: ViewConfig, cut: ViewCut, now: ReadAt
) -> dict[str, ChangeSource]:
    """Return the changes of the views and external tables that have another version than at the view's cut."""
    store = open_store(location)
    changes = {}
    for name, other in view.views.items():
        then, new = cut.views.get(other), now.views[other]
        read = _Read(f"view {other}", view_path(store, other))
        span = _changed(read.thing, then, new)
        if span is not None:
            changes[name.lower()] = _rows_of(session, read, span, partial(read_view_at, session, store, other))
    for name, table in view.external.items():
        before, after = cut.external.get(str(table)), now.external[str(table)]
        read = _Read(f"external table {table}", after.path)
        span = _changed(read.thing, before, after)
        if span is not None:
            changes[name.lower()] = _rows_of(session, read, span, partial(read_at, session, after.path))
    return changes


def _changed(
    thing: str, before: ViewVersion | ExternalVersion | None, after: ViewVersion | ExternalVersion
) -> tuple[int, int] | None:
    """Return both versions, None if they are the same."""
    if before is None:
        raise NotIncrementalError(f"{thing} was not read then")
    if before.table_id != after.table_id or before.delta_version > after.delta_version:
        raise NotIncrementalError(f"{thing} is another table than then")
    return None if before.delta_version == after.delta_version else (before.delta_version, after.delta_version)


def _rows_of(
    session: SparkSession, read: _Read, versions: tuple[int, int], at_version: Callable[[int], DataFrame]
) -> ChangeSource:
    now = at_version(versions[1])
    try:
        # Delta reads the log already here.
        then = at_version(versions[0])
        schemas = [[(f.name, f.dataType) for f in frame.schema.fields] for frame in (then, now)]
    except PySparkException as error:
        raise NotIncrementalError(f"{read.thing}: its version at the view's cut is not kept any more") from error
    if schemas[0] != schemas[1]:
        raise NotIncrementalError(f"{read.thing} has other columns than then")
    return read.change(session, versions, lambda: then, now, now.columns)


@contextmanager
def earlier_files(session: SparkSession) -> Iterator[None]:
    """Turn the error about a missing file in the block into NotIncrementalError: it may be of an earlier version alone.

    If a file of the version that counts is missing, the whole query says so.
    """
    with reading(session) as attempt:
        yield
    if attempt.error is None:
        return
    if unreadable_file(attempt.error) is None:
        raise attempt.error
    raise NotIncrementalError("files of an earlier version of what it reads are not kept any more") from attempt.error


def _cut(location: LakeLocation, source: str, number: CycleNumber) -> Cut:
    lake = SourceLake.open(location, source)
    try:
        if lake.store.exists(lake.paths.cut(number)):
            return read_cut(lake, number)
    except LakeError as error:
        raise NotIncrementalError(f"cut {number} of {source} can't be read: {error.reason}") from error
    raise NotIncrementalError(f"cut {number} of {source}, at which it was computed, is not kept any more")


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
