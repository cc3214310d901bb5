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
from lakeproof.events import counted
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import describe
from lakeproof.names import TableName
from lakeproof.postgres.catalog_descriptions import TableDescription
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class WrittenLayer:
    """A table's history or current, as it is at a cut; `in_words` is what was done, in a line."""

    key: dg.AssetKey
    data_version: dg.DataVersion
    metadata: md.Metadata
    in_words: str


def written(
    source: str, table: TableName, cut: Cut, done: TableTotals, description: TableDescription | None = None
) -> Iterator[WrittenLayer]:
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
            first_cut=done.first_cut or None,
            cuts_of_others=True if done.others else None,
        ),
    )
    history = md.merged(
        common,
        _columns(Layer.HISTORY, state.version, description),
        {"delta_version": state.history_version},
        md.row_count(state.history_sum.rows),
    )
    words = _in_words(done, None if held is None else held.reason)
    yield WrittenLayer(table_key(Layer.HISTORY, source, table), version, history, words)
    current = md.merged(
        common,
        _columns(Layer.CURRENT, state.version, description),
        {"inserted": done.inserted, "deleted": done.deleted, "delta_version": state.current_version},
        md.row_count(done.rows),
        {"written_by": f"{state.written_by.engine}: {state.written_by.reason}"},
    )
    if done.cycles and held is None:
        words += f": {counted(done.inserted, 'row')} in, {counted(done.deleted, 'row')} out"
    yield WrittenLayer(table_key(Layer.CURRENT, source, table), version, current, words)


def _columns(layer: Layer, version: SchemaVersion, description: TableDescription | None) -> md.Metadata:
    """Return the columns tab, with what is known of comments, whole types and NOT NULL."""
    return {"dagster/column_schema": table_columns(layer, version, description)}


def _in_words(done: TableTotals, held: str | None) -> str:
    """Return what was done, as the line of an event."""
    if held is not None:
        return f"held: {held}"
    if not done.cycles and not done.others:
        return "no changes"
    changes = "changes whose number is not known" if done.uncounted else counted(done.changes, "change")
    if not done.others:
        return f"{changes} in {counted(done.cycles, 'cycle')}"
    whose = f"{counted(done.cycles, 'cycle')} and others'" if done.cycles else "others' cycles"
    return f"{changes} in {whose}, cuts {done.first_cut} to {done.last_cut}"
