"""The jobs of a source: bootstrap, drain, compaction (or that of its group), maintenance, verification, slot, days.

Each job runs in one process: a process per step would start a JVM per step, and the drain needs none. Asset implementations
do not belong here.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from assets.checks.expectations import expectation_keys
from assets.checks.proof import proof_targets
from assets.current import CompactionUnit
from assets.daily import daily_tables_of
from assets.support.keys import Layer, maintenance_key, slot_key, table_key
from jobs.names import (
    bootstrap_job_name,
    compaction_job_name,
    daily_job_name,
    drain_job_name,
    maintenance_job_name,
    run_tags,
    slot_job_name,
    verification_job_name,
)
from lakeproof.config.model import Config, SourceConfig

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

# The return type of define_asset_job, which has no public name: only the type checker looks for it where it is today.
Job: TypeAlias = "UnresolvedAssetJobDefinition"


def source_jobs(config: Config, source: SourceConfig) -> list[Job]:
    """Return the jobs of one source with at least one table, but not the one that compacts."""
    return [
        _bootstrap(source),
        _drain(source),
        _maintenance(source),
        _verification(config, source),
        _slot(source),
        *([_daily(source)] if daily_tables_of(source) else []),
    ]


def _bootstrap(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        bootstrap_job_name(source.name),
        selection=_tables(source, Layer.SNAPSHOT),
        executor_def=dg.in_process_executor,
        tags=_tags("bootstrap", source),
        description=f"Copies every table of {source.name} under one snapshot, or only the selected ones again.",
    )


def _drain(source: SourceConfig) -> Job:
    # No other asset may be in this job: Dagster would skip steps after a drain that has reported by events alone.
    return dg.define_asset_job(
        drain_job_name(source.name),
        selection=_tables(source, Layer.CHANGES),
        executor_def=dg.in_process_executor,
        tags=_tags("drain", source) | {"dagster/priority": "10"},
        description=(
            f"Reads slot {source.slot} into the landing. If a person launches it, it reads all current changes and ends; "
            "the slot drain sensor keeps a run going all the time."
        ),
    )


def compaction_job(unit: CompactionUnit) -> Job:
    """Return the job that compacts a source, or all sources of a group."""
    ends = "one position, then puts a cut of the group" if unit.is_group else "the end of the landing"
    kind = "compaction"
    tags = run_tags(kind, source=unit.name) if unit.is_group else _tags(kind, unit.sources[0])
    selections = [_tables(source, Layer.HISTORY, Layer.CURRENT) for source in unit.sources]
    return dg.define_asset_job(
        compaction_job_name(unit.name),
        selection=reduce(or_, selections),
        executor_def=dg.in_process_executor,
        tags=tags,
        description=f"Brings history and current of every table of {unit.name} up to {ends}.",
    )


def _maintenance(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        maintenance_job_name(source.name),
        selection=dg.AssetSelection.assets(maintenance_key(source.name)),
        executor_def=dg.in_process_executor,
        tags=_tags("maintenance", source),
        description=f"Deletes what the retention of {source.name} no longer keeps, and merges small files.",
    )


def _verification(config: Config, source: SourceConfig) -> Job:
    targets = proof_targets(config, source)
    return dg.define_asset_job(
        verification_job_name(source.name),
        selection=dg.AssetSelection.assets(
            *targets.tables, *targets.histories, *targets.views, *expectation_keys(source)
        ),
        executor_def=dg.in_process_executor,
        tags=_tags("verification", source),
        description=(
            f"Proves that the current tables of {source.name} equal PostgreSQL at one LSN, that histories are complete and "
            "that views are right; runs the expectations."
        ),
    )


def _daily(source: SourceConfig) -> Job:
    keys = [table_key(Layer.DAILY, source.name, table) for table in daily_tables_of(source)]
    return dg.define_asset_job(
        daily_job_name(source.name),
        selection=dg.AssetSelection.assets(*keys),
        executor_def=dg.in_process_executor,
        tags=_tags("daily", source),
        description=f"Keeps tables of {source.name} as they were at the end of each day, the days of a range in one run.",
    )


def _slot(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        slot_job_name(source.name),
        selection=dg.AssetSelection.assets(slot_key(source.name)),
        executor_def=dg.in_process_executor,
        tags=_tags("slot", source),
        description=f"Records the position of slot {source.slot}, and checks how long it will last.",
    )


def _tables(source: SourceConfig, *layers: Layer) -> dg.AssetSelection:
    return dg.AssetSelection.assets(
        *(table_key(layer, source.name, table) for layer in layers for table in source.tables)
    )


def _tags(kind: str, source: SourceConfig) -> dict[str, str]:
    return run_tags(kind, source=source.name, slot=source.slot)
