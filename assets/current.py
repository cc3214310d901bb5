"""Compaction: one numbered cycle after the other writes every table's history and current, up to one position.

The cycle belongs to `lakeproof.commands.compact`. One asset per source, not per table: a cut covers all of its tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import call_in_turn
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, table_key
from assets.support.specs import COMPACTION_CODE_VERSION, table_spec
from lakeproof.commands.compact import compact
from lakeproof.config.model import Config, SourceConfig
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.records.documents import Cut
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from resources import LakeSpark, Settings


class CompactionRun(dg.Config):
    """Which tables a run reports: a person wants to see them all, the schedule only what changed."""

    report: Literal["all", "changed"] = Field(
        default="all", description="`changed` leaves out the tables that did not change"
    )


@dataclass(frozen=True, slots=True)
class TableTotals:
    """What the `cycles` of one run that wrote a table did to it.

    `rows` is how many it has, where that is known, `shapes` what changed in its shape, or why that was not applied,
    `merged_because` why its changes took the slower way into current.
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    shapes: tuple[str, ...] = ()
    merged_because: str | None = None


def totals(cuts: Sequence[CutReport], table: TableName) -> TableTotals | None:
    """The sum over the cuts that wrote the table or changed something about its shape, None where none did."""
    parts = [cut.tables[table] for cut in cuts if table in cut.tables]
    shapes = tuple(cut.shapes[table] for cut in cuts if table in cut.shapes)
    if not parts and not shapes:
        return None
    return TableTotals(
        cycles=len(parts),
        changes=sum(part.changes for part in parts),
        inserted=sum(part.inserted for part in parts),
        deleted=sum(part.deleted for part in parts),
        rows=parts[-1].rows if parts else None,
        shapes=shapes,
        merged_because=next((part.unfit for part in reversed(parts) if part.unfit is not None), None),
    )


def compaction_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """History and current of every table of one source, brought to the end of the landing."""

    @dg.multi_asset(
        name=f"compact_{source.name}",
        specs=[spec for table in source.tables for spec in _specs(config, source, table)],
        can_subset=False,
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionRun, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None]]:
        report = to_run_log(context.log.info)
        cuts = call_in_turn(lambda stop: compact(settings.config(), source.name, lake_spark.session, report, stop))
        newest = settings.newest_cut(source.name)
        if newest is None:
            return
        for table in source.tables:
            done = totals(cuts, table)
            if done is not None or config.report == "all":
                yield from _results(source.name, table, newest, done or TableTotals())

    return compaction


def _specs(config: Config, source: SourceConfig, table: TableName) -> list[dg.AssetSpec]:
    paths = LakePaths(config.lake, source.name)
    deps = [table_key(layer, source.name, table) for layer in (Layer.SNAPSHOT, Layer.CHANGES)]
    history = table_spec(
        config,
        source,
        table,
        Layer.HISTORY,
        deps=deps,
        place=paths.history(table),
        kinds={"deltalake", "spark"},
        description=f"Every change there ever was in {table}: complete after-images, with the position and time of each.",
        code_version=COMPACTION_CODE_VERSION,
    )
    current = table_spec(
        config,
        source,
        table,
        Layer.CURRENT,
        deps=deps,
        place=paths.current(table),
        kinds={"deltalake", "spark"},
        description=f"The table {table} as it is at the newest cut.",
        code_version=COMPACTION_CODE_VERSION,
    )
    return [history, current]


def _results(source: str, table: TableName, cut: Cut, done: TableTotals) -> Iterator[dg.MaterializeResult[None]]:
    """History's and current's; a table that has not been snapshotted yet has none."""
    at = cut.tables.get(table)
    if at is None:
        return
    held = cut.held.get(table)
    common = md.merged(
        md.lsns(compacted_through_lsn=at.at_lsn),
        md.column_schema(at.version),
        {"cut": int(cut.number), "cycles": done.cycles, "changes": done.changes},
        md.known(held=held and f"{held.reason}; {held.remedy}", schema_change="; ".join(done.shapes) or None),
    )
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.HISTORY, source, table),
        data_version=md.data_version(at.at_lsn),
        metadata=md.merged(common, {"delta_version": at.history_version}),
    )
    rows = {"inserted": done.inserted, "deleted": done.deleted, "delta_version": at.current_version}
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.CURRENT, source, table),
        data_version=md.data_version(at.at_lsn),
        metadata=md.merged(common, rows, md.row_count(done.rows), md.known(merged_because=done.merged_because)),
    )
