"""Compaction: numbered cycles write every table's history and current, each up to one position.

The cycle does not belong here (`lakeproof.commands.compact`). One multi-asset per source, not per table: a cut covers all of
a source's tables. The sources of a group have one multi-asset together, since they are compacted as one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from assets.support import metadata as md
from assets.support.engine_call import run_engine_in_turn
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, table_key
from assets.support.specs import COMPACTION_CODE_VERSION, LayerTable, table_spec
from lakeproof.commands.compact import compact
from lakeproof.commands.compact_group import compact_group
from lakeproof.config.model import Config, SourceConfig
from lakeproof.events import Report, Stop
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.held import describe
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths
from resources import LakeSpark, Settings


class CompactionRun(dg.Config):
    """The tables that a run reports: all of them for a person, only the changed ones for the schedule."""

    report: Literal["all", "changed"] = Field(
        default="all", description="`changed` leaves out the tables that did not change"
    )


@dataclass(frozen=True, slots=True)
class TableTotals:
    """The sum of a run's `cycles` that wrote a table.

    `rows` is the table's row count, if known; `schema_changes` describes each schema change, or why it was not applied;
    `fallback_reason` is why its changes were written to current with the slower MERGE, `not_linked` why Spark has read and
    written rows of landed files; `features` are those of Delta's that its readers need since, each with its reason.
    """

    cycles: int = 0
    changes: int = 0
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    schema_changes: tuple[str, ...] = ()
    fallback_reason: str | None = None
    not_linked: str | None = None
    features: Mapping[str, str] = field(default_factory=dict)


def totals(cuts: Sequence[CutReport], table: TableName) -> TableTotals | None:
    """Return the sum over the cuts that wrote the table or changed its schema, None if no cut did."""
    parts = [cut.tables[table] for cut in cuts if table in cut.tables]
    schema_changes = tuple(cut.schema_changes[table] for cut in cuts if table in cut.schema_changes)
    if not parts and not schema_changes:
        return None
    return TableTotals(
        cycles=len(parts),
        changes=sum(part.changes for part in parts),
        inserted=sum(part.inserted for part in parts),
        deleted=sum(part.deleted for part in parts),
        rows=parts[-1].rows if parts else None,
        schema_changes=schema_changes,
        fallback_reason=_newest(part.fallback_reason for part in parts),
        not_linked=_newest(part.not_linked for part in parts),
        features={name: reason for part in parts for name, reason in part.features.items()},
    )


def _newest(reasons: Iterable[str | None]) -> str | None:
    return next((reason for reason in reversed([*reasons]) if reason is not None), None)


@dataclass(frozen=True, slots=True)
class CompactionUnit:
    """What one run compacts: a source, or all sources of a group; `name` is that of the source or group.

    `sources` are those with tables that Dagster shows.
    """

    name: str
    sources: tuple[SourceConfig, ...]
    is_group: bool = False


def compaction_units(config: Config) -> list[CompactionUnit]:
    """Return a unit for each group, and for each source that is in none, if it has tables."""
    groups = [
        CompactionUnit(group, tuple(s for name in names if (s := config.sources[name]).tables), is_group=True)
        for group, names in config.groups.items()
    ]
    alone = [CompactionUnit(s.name, (s,)) for s in config.sources.values() if config.group_of(s.name) is None]
    return [unit for unit in [*alone, *groups] if any(source.tables for source in unit.sources)]


def compaction_asset(config: Config, unit: CompactionUnit) -> dg.AssetsDefinition:
    """Return the asset that brings history and current of every table of a unit to the end of the landing."""

    @dg.multi_asset(
        name=f"compact_{unit.name}",
        specs=[spec for s in unit.sources for table in s.tables for spec in _specs(config, s, table)],
        can_subset=False,
    )
    def compaction(
        context: dg.AssetExecutionContext, config: CompactionRun, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.MaterializeResult[None]]:
        report = to_run_log(context.log.info)
        cuts = run_engine_in_turn(lambda stop: _compact(unit, settings.config(), lake_spark.session, report, stop))
        for source in unit.sources:
            newest = settings.newest_cut(source.name)
            if newest is None:
                continue
            for table in source.tables:
                table_totals = totals(cuts.get(source.name, ()), table)
                if table_totals is not None or config.report == "all":
                    yield from _results(source.name, table, newest, table_totals or TableTotals())

    return compaction


def _compact(
    unit: CompactionUnit, config: Config, session: SparkSession, report: Report, stop: Stop
) -> Mapping[str, Sequence[CutReport]]:
    """Return the cycles of each source."""
    if unit.is_group:
        return compact_group(config, unit.name, session, report, stop).cuts
    return {unit.name: compact(config, unit.name, session, report, stop)}


def _specs(config: Config, source: SourceConfig, table: TableName) -> list[dg.AssetSpec]:
    paths = LakePaths(source.name)
    deps = [table_key(layer, source.name, table) for layer in (Layer.SNAPSHOT, Layer.CHANGES)]
    history = table_spec(
        config,
        LayerTable(source, table, Layer.HISTORY, paths.history(table)),
        deps=deps,
        kinds={"deltalake", "spark"},
        description=f"Every change of {table}, as a complete row after the change, with its position and commit time.",
        code_version=COMPACTION_CODE_VERSION,
    )
    current = table_spec(
        config,
        LayerTable(source, table, Layer.CURRENT, paths.current(table)),
        deps=deps,
        kinds={"deltalake", "spark"},
        description=f"The table {table} as it is at the newest cut.",
        code_version=COMPACTION_CODE_VERSION,
    )
    return [history, current]


def _results(source: str, table: TableName, cut: Cut, done: TableTotals) -> Iterator[dg.MaterializeResult[None]]:
    """Yield the results of history and current; none for a table without a snapshot."""
    state = cut.tables.get(table)
    if state is None:
        return
    held = None if table not in cut.held else describe(cut.held[table], source, table)
    common = md.merged(
        md.lsns(compacted_through_lsn=state.at_lsn),
        md.column_schema(state.version),
        {"cut": int(cut.number), "cycles": done.cycles, "changes": done.changes},
        md.optional(
            held=held and f"{held.reason}; {held.remedy}",
            schema_change="; ".join(done.schema_changes) or None,
            readers_need="; ".join(f"{name}: {reason}" for name, reason in done.features.items()) or None,
        ),
    )
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.HISTORY, source, table),
        data_version=md.data_version(state.at_lsn),
        metadata=md.merged(common, {"delta_version": state.history_version}),
    )
    rows = {"inserted": done.inserted, "deleted": done.deleted, "delta_version": state.current_version}
    yield dg.MaterializeResult(
        asset_key=table_key(Layer.CURRENT, source, table),
        data_version=md.data_version(state.at_lsn),
        metadata=md.merged(
            common,
            rows,
            md.row_count(done.rows),
            md.optional(fallback_reason=done.fallback_reason, not_linked=done.not_linked),
        ),
    )
