"""The metadata of history and current after cycles: where they stand, and what was done.

Sums of cycles do not belong here (`cycle_totals.py`), nor the events that carry them (`current.py`, `continuous.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import dagster as dg

from assets.cycle_totals import TableTotals
from assets.support import metadata as md
from assets.support.columns import table_columns
from assets.support.keys import Layer, table_key
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import describe
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class WrittenLayer:
    """A table's history or current, as it is at a cut."""

    key: dg.AssetKey
    data_version: dg.DataVersion
    metadata: md.Metadata


def written(source: str, table: TableName, cut: Cut, done: TableTotals) -> Iterator[WrittenLayer]:
    """Yield history and current of a table; none if it has no snapshot in the lake yet."""
    state = cut.tables.get(table)
    if state is None:
        return
    held = None if table not in cut.held else describe(cut.held[table], source, table)
    version = md.data_version(state.at_lsn)
    common = md.merged(
        md.lsns(compacted_through_lsn=state.at_lsn),
        {"cut": int(cut.number), "cycles": done.cycles, "changes": done.changes},
        md.optional(
            held=held and f"{held.reason}; {held.remedy}",
            schema_change="; ".join(done.schema_changes) or None,
            readers_need="; ".join(f"{name}: {reason}" for name, reason in done.features.items()) or None,
        ),
    )
    history = md.merged(common, _columns(Layer.HISTORY, state.version), {"delta_version": state.history_version})
    yield WrittenLayer(table_key(Layer.HISTORY, source, table), version, history)
    current = md.merged(
        common,
        _columns(Layer.CURRENT, state.version),
        {"inserted": done.inserted, "deleted": done.deleted, "delta_version": state.current_version},
        md.row_count(done.rows),
        md.optional(fallback_reason=done.fallback_reason, not_linked=done.not_linked),
    )
    yield WrittenLayer(table_key(Layer.CURRENT, source, table), version, current)


def _columns(layer: Layer, version: SchemaVersion) -> md.Metadata:
    """Return the columns tab. Dagster adds the comments that the definition has."""
    return {"dagster/column_schema": table_columns(layer, version)}
