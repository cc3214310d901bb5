"""The jobs that are selections of assets: a source's, a group's compaction, the refresh of every view.

Each job runs in one process: a process per step might start a JVM per step, and the drain needs none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import dagster as dg

from assets.checks.expectations import expectation_keys
from assets.checks.proof import proof_targets
from assets.current import CompactionUnit
from assets.daily import daily_tables_of
from assets.support.keys import Layer, layer_keys, table_key
from jobs.names import VIEWS_REFRESH, SourceJob, run_tags, source_tags
from lakeproof.config.model import Config, SourceConfig

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

# The return type of define_asset_job, which has no public name: only the type checker looks for it where it is today.
Job: TypeAlias = "UnresolvedAssetJobDefinition"


def source_jobs(config: Config, source: SourceConfig) -> list[Job]:
    """Return the jobs of one source with at least one table, but not the one that compacts, nor those by hand."""
    name, targets = source.name, proof_targets(config, source)
    selections = {
        SourceJob.BOOTSTRAP: (
            layer_keys(source, Layer.SNAPSHOT),
            f"Copies every table of {name} under one snapshot, or only the selected ones again.",
        ),
        # No other asset may be in this job: Dagster would skip steps after a drain that has reported by events alone.
        SourceJob.DRAIN: (
            layer_keys(source, Layer.CHANGES),
            (
                f"Reads slot {source.slot} into the landing. If a person launches it, it reads all current changes and "
                "ends; the slot drain sensor keeps a run going all the time."
            ),
        ),
        SourceJob.MAINTENANCE: (
            [Layer.MAINTENANCE.key(name)],
            f"Deletes what the retention of {name} no longer keeps, and merges small files.",
        ),
        SourceJob.VERIFICATION: (
            [*targets.keys, *expectation_keys(source)],
            (
                f"Proves that the current tables of {name} equal PostgreSQL at one LSN, that histories are complete and "
                "that views are right; runs the expectations. With `repair: true` in the launchpad it reads the rows of "
                "keys that differ again, or the whole table if it has no key for that, corrects them and compares once more."
            ),
        ),
        SourceJob.SLOT: (
            [Layer.SLOTS.key(name)],
            f"Records the position of slot {source.slot}, and checks how long it will last.",
        ),
        SourceJob.DAILY: (
            [table_key(Layer.DAILY, name, table) for table in daily_tables_of(source)],
            f"Keeps tables of {name} as they were at the end of each day, the days of a range in one run.",
        ),
    }
    first = {SourceJob.DRAIN: {"dagster/priority": "10"}}
    return [
        _job(kind.of(name), keys, source_tags(kind, source) | first.get(kind, {}), text)
        for kind, (keys, text) in selections.items()
        if keys
    ]


def compaction_job(unit: CompactionUnit) -> Job:
    """Return the job that compacts a source, or all sources of a group."""
    kind, ends = SourceJob.COMPACTION, "the end of the landing"
    if unit.is_group:
        ends = "one position, then puts a cut of the group"
    return _job(
        kind.of(unit.name),
        [key for source in unit.sources for key in layer_keys(source, Layer.HISTORY, Layer.CURRENT)],
        run_tags(kind.value, source=unit.name) if unit.is_group else source_tags(kind, unit.sources[0]),
        f"Brings history and current of every table of {unit.name} up to {ends}.",
    )


def views_refresh_job(config: Config) -> list[Job]:
    """Return the job: all views in one process, with one Spark session; none if the configuration has no view."""
    text = "Corrects every view to the result of its query at the newest cut of each source."
    keys = [Layer.VIEWS.key(name) for name in config.views]
    return [_job(VIEWS_REFRESH, keys, run_tags("views"), text)] if keys else []


def _job(name: str, keys: Sequence[dg.AssetKey], tags: Mapping[str, str], description: str) -> Job:
    return dg.define_asset_job(
        name, selection=keys, executor_def=dg.in_process_executor, tags=tags, description=description
    )
