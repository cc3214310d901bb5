"""The jobs that are selections of assets: a source's, a group's compaction, the refresh of every view.

Each job runs in one process: a process per step might start a JVM per step, and the drain needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from assets.checks.expectations import expectation_keys
from assets.checks.proof import proof_targets
from assets.current import CompactionUnit
from assets.daily import daily_tables_of
from assets.support.keys import Layer, table_key
from jobs.names import VIEWS_REFRESH, SourceJob, run_tags, source_tags
from lakeproof.config.model import Config, SourceConfig

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

# The return type of define_asset_job, which has no public name: only the type checker looks for it where it is today.
Job: TypeAlias = "UnresolvedAssetJobDefinition"


def source_jobs(config: Config, source: SourceConfig) -> list[Job]:
    """Return the jobs of one source with at least one table, but not the one that compacts, nor those by hand."""
    name, kept, targets = source.name, daily_tables_of(source), proof_targets(config, source)
    proofs = [*targets.tables, *targets.histories, *targets.views]
    daily = f"Keeps tables of {name} as they were at the end of each day, the days of a range in one run."
    return [
        _job(
            source,
            SourceJob.BOOTSTRAP,
            _tables(source, Layer.SNAPSHOT),
            f"Copies every table of {name} under one snapshot, or only the selected ones again.",
        ),
        # No other asset may be in this job: Dagster would skip steps after a drain that has reported by events alone.
        _job(
            source,
            SourceJob.DRAIN,
            _tables(source, Layer.CHANGES),
            f"Reads slot {source.slot} into the landing. If a person launches it, it reads all current changes and ends; "
            "the slot drain sensor keeps a run going all the time.",
        ),
        _job(
            source,
            SourceJob.MAINTENANCE,
            [Layer.MAINTENANCE.key(name)],
            f"Deletes what the retention of {name} no longer keeps, and merges small files.",
        ),
        _job(
            source,
            SourceJob.VERIFICATION,
            [*proofs, *expectation_keys(source)],
            f"Proves that the current tables of {name} equal PostgreSQL at one LSN, that histories are complete and "
            "that views are right; runs the expectations. With `repair: true` in the launchpad it reads the rows of keys "
            "that differ again, or the whole table if it has no key for that, corrects them and compares once more.",
        ),
        _job(
            source,
            SourceJob.SLOT,
            [Layer.SLOTS.key(name)],
            f"Records the position of slot {source.slot}, and checks how long it will last.",
        ),
        *(
            [_job(source, SourceJob.DAILY, [table_key(Layer.DAILY, name, table) for table in kept], daily)]
            if kept
            else []
        ),
    ]


def compaction_job(unit: CompactionUnit) -> Job:
    """Return the job that compacts a source, or all sources of a group."""
    ends = "one position, then puts a cut of the group" if unit.is_group else "the end of the landing"
    kind = SourceJob.COMPACTION
    return dg.define_asset_job(
        kind.of(unit.name),
        selection=[key for source in unit.sources for key in _tables(source, Layer.HISTORY, Layer.CURRENT)],
        executor_def=dg.in_process_executor,
        tags=run_tags(kind.value, source=unit.name) if unit.is_group else source_tags(kind, unit.sources[0]),
        description=f"Brings history and current of every table of {unit.name} up to {ends}.",
    )


def views_refresh_job(config: Config) -> Job | None:
    """Return the job: all views in one process, with one Spark session; None if the configuration has no view."""
    if not config.views:
        return None
    return dg.define_asset_job(
        VIEWS_REFRESH,
        selection=[Layer.VIEWS.key(name) for name in config.views],
        executor_def=dg.in_process_executor,
        tags=run_tags("views"),
        description="Corrects every view to the result of its query at the newest cut of each source.",
    )


def _job(
    source: SourceConfig,
    kind: SourceJob,
    assets: Iterable[dg.AssetKey],
    description: str,
) -> Job:
    return dg.define_asset_job(
        kind.of(source.name),
        selection=list(assets),
        executor_def=dg.in_process_executor,
        tags=source_tags(kind, source) | ({"dagster/priority": "10"} if kind is SourceJob.DRAIN else {}),
        description=description,
    )


def _tables(source: SourceConfig, *layers: Layer) -> list[dg.AssetKey]:
    return [table_key(layer, source.name, table) for layer in layers for table in source.tables]
