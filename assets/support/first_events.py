"""Events that Dagster lacks when a drain begins: copies that the command line made, tables for which nothing has come yet.

Before each run downstream of an asset without an event Dagster warns that the run may fail, whatever the lake has.
Events of changes and of Dagster's own copies don't belong here (`assets.changes`, `assets.bootstrap`).

They wait until the drain has its slot, and are then written a while at a time, so that the run can do other things: a source
of hundreds of tables has hundreds of them, and an event takes Dagster's database milliseconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import dagster as dg

from assets.support import metadata as md
from assets.support.keys import Layer, table_key
from lakeproof.events import Event, Report
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.snapshot.folder import FinishedCopy


_POINT = "consistent_point"


def copies_unseen(
    instance: dg.DagsterInstance, lake: SourceLake, tables: Collection[TableName]
) -> list[dg.AssetMaterialization]:
    """Return an event for each table whose newest complete copy is later than the one that Dagster knows, if any."""
    from lakeproof.landing.chain import newest_incarnation
    from lakeproof.snapshot.folder import finished_tables

    incarnation = newest_incarnation(lake)
    copies = {} if incarnation is None else finished_tables(lake, incarnation)
    seen = _newest(instance, Layer.SNAPSHOT, lake.source, tables)
    return [
        _copied(lake.source, table, copies[table])
        for table in tables
        if table in copies and _point(seen.get(table)) < copies[table].consistent_point
    ]


def without_event(instance: dg.DagsterInstance, source: str, tables: Collection[TableName]) -> list[TableName]:
    """Return the tables of whose changes Dagster has no event at all."""
    seen = _newest(instance, Layer.CHANGES, source, tables)
    return [table for table in tables if table not in seen]


def _newest(
    instance: dg.DagsterInstance, layer: Layer, source: str, tables: Collection[TableName]
) -> Mapping[TableName, dg.AssetMaterialization]:
    keys = {table_key(layer, source, table): table for table in tables}
    newest = {}
    for record in instance.get_asset_records(list(keys)):
        event = record.asset_entry.last_materialization
        if event is not None and event.asset_materialization is not None:
            newest[keys[record.asset_entry.asset_key]] = event.asset_materialization
    return newest


def _point(event: dg.AssetMaterialization | None) -> Lsn:
    value = None if event is None else event.metadata.get(_POINT)
    return Lsn.ZERO if value is None else Lsn.parse(str(value.value))


def _copied(source: str, table: TableName, copy: FinishedCopy) -> dg.AssetMaterialization:
    chunks = copy.table.chunks
    return dg.AssetMaterialization(
        table_key(Layer.SNAPSHOT, source, table),
        description="copied outside of Dagster",
        metadata=md.merged(
            md.lsns(consistent_point=copy.consistent_point),
            md.row_count(copy.table.rows),
            {"dagster/size_bytes": sum(chunk.bytes for chunk in chunks), "chunks": len(chunks)},
        ),
        tags={"dagster/data_version": str(copy.consistent_point)},
    )


_WHILE_S = 0.5


class Backlog:
    """Events that are due from `begin` on, which any thread may call; `is_written` is for the thread of the run.

    `events` returns them, given the position at which the drain began.
    """

    def __init__(self, events: Callable[[Lsn], Iterator[dg.AssetMaterialization]]) -> None:
        self._events = events
        self._lock = threading.Lock()
        self._due: Iterator[dg.AssetMaterialization] | None = None
        self._is_empty = False

    def begin(self, position: Lsn) -> None:
        """Let the events be written from now on; only the first call counts."""
        with self._lock:
            if self._due is None:
                self._due = self._events(position)

    def heard(self, report: Report) -> Report:
        """Return a `Report` that begins as soon as the drain has its slot."""

        def hear(event: Event) -> None:
            if event.kind == "drain.start":
                self.begin(Lsn.parse(str(event.fields["start_lsn"])))
            report(event)

        return hear

    def is_written(self, log_event: Callable[[dg.AssetMaterialization], object], seconds: float = _WHILE_S) -> bool:
        """Write events for some seconds; True if none is left."""
        if self._is_empty or self._due is None:
            return self._is_empty
        until_s = time.monotonic() + seconds
        for event in self._due:
            log_event(event)
            if time.monotonic() >= until_s:
                return False
        self._is_empty = True
        return True
