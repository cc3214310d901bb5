"""The jobs of a source: bootstrap, drain, compaction, maintenance, verification, slot.

Each runs in one process: a second one per step would start a JVM per step, and the drain needs none.
"""

from __future__ import annotations

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from assets.checks.expectations import expectation_keys
from assets.checks.proof import things
from assets.support.keys import Layer, maintenance_key, slot_key, table_key
from jobs.names import (
    SLOT_TAG,
    SOURCE_TAG,
    bootstrap_job_name,
    compaction_job_name,
    drain_job_name,
    maintenance_job_name,
    slot_job_name,
    verification_job_name,
)
from lakeproof.config.model import Config, SourceConfig

# What define_asset_job returns; it has no public name.
Job = UnresolvedAssetJobDefinition


def source_jobs(config: Config, source: SourceConfig) -> list[Job]:
    """The jobs of one source with at least one table."""
    return [
        _bootstrap(source),
        _drain(source),
        _compaction(source),
        _maintenance(source),
        _verification(config, source),
        _slot(source),
    ]


def _bootstrap(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        bootstrap_job_name(source.name),
        selection=_tables(source, Layer.SNAPSHOT),
        executor_def=dg.in_process_executor,
        tags=_tags(source),
        description=f"Copies every table of {source.name} under one snapshot; with fewer selected, just those again.",
    )


def _drain(source: SourceConfig) -> Job:
    # Nothing else may be in this job: steps after a drain that reported by events alone would be skipped.
    return dg.define_asset_job(
        drain_job_name(source.name),
        selection=_tables(source, Layer.CHANGES),
        executor_def=dg.in_process_executor,
        tags=_tags(source) | {"dagster/priority": "10"},
        description=(
            f"Reads slot {source.slot} into the landing. Launched by a person it takes what is there now and ends; "
            "the slot drain sensor keeps one running for good."
        ),
    )


def _compaction(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        compaction_job_name(source.name),
        selection=_tables(source, Layer.HISTORY, Layer.CURRENT),
        executor_def=dg.in_process_executor,
        tags=_tags(source),
        description=f"Brings history and current of every table of {source.name} to the end of the landing.",
    )


def _maintenance(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        maintenance_job_name(source.name),
        selection=dg.AssetSelection.assets(maintenance_key(source.name)),
        executor_def=dg.in_process_executor,
        tags=_tags(source),
        description=f"Removes what the retention of {source.name} does not need, and puts small files together.",
    )


def _verification(config: Config, source: SourceConfig) -> Job:
    every = things(config, source)
    return dg.define_asset_job(
        verification_job_name(source.name),
        selection=dg.AssetSelection.assets(*every.tables, *every.histories, *every.views, *expectation_keys(source)),
        executor_def=dg.in_process_executor,
        tags=_tags(source),
        description=(
            f"Proves the current tables of {source.name} equal to PostgreSQL at one LSN, histories whole and views right; "
            "runs the expectations."
        ),
    )


def _slot(source: SourceConfig) -> Job:
    return dg.define_asset_job(
        slot_job_name(source.name),
        selection=dg.AssetSelection.assets(slot_key(source.name)),
        executor_def=dg.in_process_executor,
        tags=_tags(source),
        description=f"Records where slot {source.slot} stands, and checks how long it will last.",
    )


def _tables(source: SourceConfig, *layers: Layer) -> dg.AssetSelection:
    return dg.AssetSelection.assets(
        *(table_key(layer, source.name, table) for layer in layers for table in source.tables)
    )


def _tags(source: SourceConfig) -> dict[str, str]:
    return {SOURCE_TAG: source.name, SLOT_TAG: source.slot}
