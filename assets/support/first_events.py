"""Events that Dagster lacks when a drain begins: copies that the command line made, tables for which nothing has come yet.

Before each run downstream of an asset without an event Dagster warns that the run may fail, whatever the lake has.
Events of changes and of Dagster's own copies don't belong here (`assets.changes`, `assets.bootstrap`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import dagster as dg

from assets.bootstrap import copy_event
from assets.support import metadata as md
from assets.support.keys import Layer, table_key
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake


def copies_unseen(
    instance: dg.DagsterInstance, lake: SourceLake, tables: Collection[TableName]
) -> Iterator[dg.AssetMaterialization]:
    """Yield an event for each table whose newest complete copy is later than the one that Dagster knows, if any."""
    from lakeproof.landing.chain import newest_incarnation
    from lakeproof.snapshot.folder import finished_tables

    incarnation = newest_incarnation(lake)
    copies = {} if incarnation is None else finished_tables(lake, incarnation)
    seen = _newest(instance, Layer.SNAPSHOT, lake.source, tables)
    for table in tables:
        if table in copies and _point(seen.get(table)) < copies[table].consistent_point:
            copy, chunks = copies[table], copies[table].table.chunks
            size = md.size(copy.table.rows, sum(chunk.bytes for chunk in chunks), len(chunks))
            yield copy_event(lake.source, table, copy.consistent_point, size, "copied outside of Dagster")


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
    value = None if event is None else event.metadata.get("consistent_point")
    return Lsn.ZERO if value is None else Lsn.parse(str(value.value))
