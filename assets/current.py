"""Compaction: one numbered cycle after the other writes every table's history and current, up to one position.

The cycle belongs to `wal2delta.pipeline.compact`. One asset per source, not per table: a cut covers all of its tables.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import dagster as dg
from pydantic import Field

from assets import metadata as md
from assets.keys import Layer, identifier, table_key
from assets.layers import COMPACTION_CODE_VERSION, WHILE_THE_LEASE_IS_HELD, table_spec
from assets.stopping import call
from assets.telling import to_run_log
from resources import LakeSpark, Settings
from wal2delta.config.model import Config, SourceConfig
from wal2delta.landing.lake_paths import LakePaths
from wal2delta.lsn import Lsn
from wal2delta.names import TableName
from wal2delta.pipeline.compact import CutReport, compact


class CompactionRun(dg.Config):
    """Which tables a run reports: a person wants to see them all, the schedule only what changed."""

    report: Literal["all", "changed"] = Field(
        default="all", description="`changed` leaves out the tables that did not change"
    )


@dataclass(frozen=True, slots=True)
class TableTotals:
    """What all cycles of one run did to one table; the versions are the last cycle's."""

    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    history_version: int | None = None
    current_version: int | None = None
    rows: int | None = None


def totals(cuts: Sequence[CutReport], table: TableName) -> TableTotals | None:
    """The sum over the cuts that wrote the table, None where none did."""
    parts = [cut.tables[table] for cut in cuts if table in cut.tables]
    if not parts:
        return None
    return TableTotals(
        changes=sum(part.changes for part in parts),
        inserted=sum(part.inserted for part in parts),
        deleted=sum(part.deleted for part in parts),
        history_version=parts[-1].history_version,
        current_version=parts[-1].current_version,
        rows=parts[-1].rows,
    )


def compaction_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """History and current of every table of one source, brought to the end of the landing."""

    @dg.multi_asset(
        name=f"compact_{identifier(source.name)}",
        specs=[spec for table in source.tables for spec in _specs(config, source, table)],
        can_subset=False,
        retry_policy=WHILE_THE_LEASE_IS_HELD,
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionRun, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None]]:
        report = to_run_log(context.log.info)
        cuts = call(lambda stop: compact(settings.config(), source.name, lake_spark.session, report, stop))
        for table in source.tables:
            yield from _results(source.name, table, cuts, every=config.report == "all")

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


def _results(
    source: str, table: TableName, cuts: Sequence[CutReport], *, every: bool
) -> Iterator[dg.MaterializeResult[None]]:
    done = totals(cuts, table)
    if not cuts or (done is None and not every):
        return
    done = done or TableTotals()
    cut = cuts[-1]
    held = cut.held.get(table)
    position: Lsn = cut.position
    common = md.merged(
        md.lsns(compacted_through_lsn=position),
        {"cut": int(cut.number), "cycles": len(cuts), "changes": done.changes},
        md.known(held=held and str(held)),
    )
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.HISTORY, source, table),
        data_version=md.data_version(position),
        metadata=md.merged(common, md.known(delta_version=done.history_version)),
    )
    rows = {"inserted": done.inserted, "deleted": done.deleted}
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.CURRENT, source, table),
        data_version=md.data_version(position),
        metadata=md.merged(common, rows, md.row_count(done.rows), md.known(delta_version=done.current_version)),
    )
