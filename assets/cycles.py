"""The events of history and current after cycles: each says where its table stands at the newest cut, and what a run did.

Running cycles does not belong here, nor the pace of events (`assets.support.pace`). An event has the changes of Dagster's
own runs, and the table as all have left it; what cycles of others did is in the metrics of the lake and in `status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import dagster as dg

from assets.support import metadata as md
from assets.support.columns import table_columns
from assets.support.keys import Layer, table_key
from lakeproof.errors import LakeproofError
from lakeproof.events import counted
from lakeproof.lake.records.described import read_described
from lakeproof.lake.records.documents import Cut, CutTable
from lakeproof.lake.records.held import describe_held
from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import TableDescription
from lakeproof.storage.source_lake import SourceLake
from resources import Settings

if TYPE_CHECKING:
    from lakeproof.lake.cycle.runner import CutReport


def layers(settings: Settings, source: str, done: Mapping[TableName, TableTotals]) -> list[dg.AssetMaterialization]:
    """Return the events of tables at the source's newest cut; raises the errors of `lakeproof.errors`."""
    cut = settings.newest_cut(source) if done else None
    if cut is None:
        return []
    lake = settings.lake_of(source)
    descriptions = read_described(lake)
    return [
        layer for table, each in done.items() for layer in _written(lake, table, cut, each, descriptions.get(table))
    ]


def _written(
    lake: SourceLake, table: TableName, cut: Cut, done: TableTotals, description: TableDescription | None
) -> Iterator[dg.AssetMaterialization]:
    """Yield the events of a table, each with what was done in a line; none if it has no snapshot in the lake yet."""
    state, source = cut.tables.get(table), lake.source
    if state is None:
        return
    held = None if table not in cut.held else describe_held(cut.held[table], source, table)
    columns = table_columns(state.version, description)
    common = md.merged(
        md.lsns(compacted_through_lsn=state.at_lsn),
        {"cut": int(cut.number), "cycles": done.cycles, "changes": done.changes},
        md.optional(
            held=held and f"{held.reason}; {held.remedy}",
            schema_change="; ".join(done.schema_changes) or None,
            readers_need="; ".join(f"{name}: {reason}" for name, reason in done.features.items()) or None,
        ),
    )
    history = md.merged(
        common,
        {"dagster/column_schema": columns[Layer.HISTORY]},
        {"delta_version": state.history_version, "dagster/row_count": state.history_sum.rows},
    )
    words = _in_words(done, None if held is None else held.reason)
    yield md.event(table_key(Layer.HISTORY, source, table), history, state.at_lsn, words)
    current = md.merged(
        common,
        {"dagster/column_schema": columns[Layer.CURRENT]},
        {"inserted": done.inserted, "deleted": done.deleted, "delta_version": state.current_version},
        md.optional(**{"dagster/row_count": _rows(lake, table, state, done)}),
        {"written_by": f"{state.written_by.engine}: {state.written_by.reason}"},
    )
    if done.cycles and held is None:
        words += f": {counted(done.inserted, 'row')} in, {counted(done.deleted, 'row')} out"
    yield md.event(table_key(Layer.CURRENT, source, table), current, state.at_lsn, words)


def _rows(lake: SourceLake, table: TableName, state: CutTable, done: TableTotals) -> int | None:
    """Return the rows of current as a cycle counted them, else as Delta's log has them."""
    if done.rows is not None and done.version == state.current_version:
        return done.rows
    from lakeproof.lake.delta.files.needed import rows_at

    try:
        return rows_at(lake.url(lake.paths.current(table)), state.current_version)
    except (LakeproofError, OSError):
        return None


def _in_words(done: TableTotals, held: str | None) -> str:
    """Return what was done, as the line of an event."""
    if held is not None:
        return f"held: {held}"
    return f"{counted(done.changes, 'change')} in {counted(done.cycles, 'cycle')}" if done.cycles else "no changes"


# A table has an event of history and one of current.
EVENTS = 2


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The sum of a run's `cycles` that wrote a table.

    `rows` is the table's row count in the version `version` of current, if known; `schema_changes` describes each schema
    change, or why it was not applied; `features` are those of Delta's that its readers need since, each with its reason.
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    version: int | None = None
    schema_changes: tuple[str, ...] = ()
    features: Mapping[str, str] = field(default_factory=dict)

    def followed_by(self, later: TableTotals) -> TableTotals:
        """Return the sum of both; what only the newest cycle knows is the later one's."""
        newest = later if later.cycles else self
        return TableTotals(
            cycles=self.cycles + later.cycles,
            changes=self.changes + later.changes,
            inserted=self.inserted + later.inserted,
            deleted=self.deleted + later.deleted,
            rows=newest.rows,
            version=newest.version,
            schema_changes=self.schema_changes + later.schema_changes,
            features={**self.features, **later.features},
        )


def totals(cuts: Sequence[CutReport]) -> dict[TableName, TableTotals]:
    """Return the sum of each table that the cuts wrote, or whose schema they changed."""
    sums: dict[TableName, TableTotals] = {}
    for cut in cuts:
        for table in {*cut.tables, *cut.schema_changes}:
            done, change = TableTotals(), cut.schema_changes.get(table)
            if table in cut.tables:
                part = cut.tables[table]
                done = TableTotals(
                    1, part.changes, part.inserted, part.deleted, part.rows, part.current_version, (), part.features
                )
            if change is not None:
                done = replace(done, schema_changes=(change,))
            sums[table] = sums[table].followed_by(done) if table in sums else done
    return sums
