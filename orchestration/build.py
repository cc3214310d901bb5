"""Assembles the location from a configuration: every asset, check, job, sensor, schedule and resource meets here.

This needs no server, Spark or secret. Of the lake it reads only the list of tables that the configuration's patterns match.
Choosing the configuration file does not belong here (`find_config`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

import dagster as dg

from assets.bootstrap import snapshot_asset
from assets.catalog import Catalog
from assets.changes import changes_asset
from assets.checks.expectations import expectations_asset
from assets.checks.proof import proof_asset
from assets.current import CompactionUnit, compaction_asset, compaction_units
from assets.daily import daily_asset
from assets.external import external_specs
from assets.maintenance import maintenance_asset
from assets.postgres import UNKNOWN, postgres_specs
from assets.slots import slot_asset
from assets.support.keys import Layer, table_key, view_key
from assets.views import view_asset
from jobs.by_hand import jobs_by_hand
from jobs.by_hand.replace import replace_jobs
from jobs.names import compaction_job_name, drain_job_name
from jobs.source import compaction_job, source_jobs
from jobs.views import views_refresh_job
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import LakeproofError
from lakeproof.state.known_tables import with_known_tables
from orchestration.alert_sensor import NAME as ALERTS
from orchestration.alert_sensor import alert_sensor, watched
from orchestration.compaction_sensor import compaction_sensor
from orchestration.narrow import narrowed
from orchestration.old_runs import NAME as OLD_RUNS
from orchestration.old_runs import Lasting, old_runs_sensor
from orchestration.outside_proofs import outside_proofs
from orchestration.schedules import schedules
from orchestration.sensors import held_sensor, slot_drain_sensor
from orchestration.start import start_of
from orchestration.view_conditions import conditional_views, refreshed_by, view_condition, view_condition_sensor
from resources import Compute, Settings
from resources.fixed import fixed

_log = logging.getLogger("lakeproof.dagster")


def build(file: Config, only: Sequence[str] | None = None) -> dg.Definitions:
    """Return the location of a configuration, or `only` what belongs to some of its sources.

    Of a source without known tables, one asset says what to do. Patterns, and sources that list nothing, have the tables
    that the lake knows: a table that was added later is shown when the location is reloaded.
    """
    file = file if only is None else narrowed(file, only)
    config = file.model_copy(update={"sources": {name: _with_tables(file, name) for name in file.sources}})
    sources = [source for source in config.sources.values() if source.tables]
    for source in config.sources.values():
        if not source.tables:
            _log.warning("sources.%s: %s", source.name, UNKNOWN)
    catalog, units = Catalog(config), compaction_units(config)
    views_job, start, conditional = views_refresh_job(config), start_of(config), conditional_views(config)
    path, views = str(config.path), config.views.values()
    assets = [
        *(catalog.show(asset) for source in sources for asset in _assets(config, source)),
        *(catalog.show(compaction_asset(config, unit)) for unit in units),
        *(_view(catalog.show(view_asset(config, v)), conditional, refreshed_by(config, v.name)) for v in views),
    ]
    jobs = [
        *(job for source in sources for job in source_jobs(config, source)),
        *(compaction_job(unit) for unit in units),
        *([views_job] if views_job else []),
    ]
    # A person who launches a job sees its end.
    names = watched(config, [job.name for job in jobs], assets)
    by_hand = [*(job for source in sources for job in jobs_by_hand(source)), *replace_jobs(config)]
    part = sorted(only or ())
    return dg.Definitions(
        assets=[*map(catalog.complete, [*postgres_specs(config), *external_specs(config)]), *assets],
        jobs=[*jobs, *by_hand],
        sensors=[
            *(slot_drain_sensor(source, outside_proofs(config, source), start=start) for source in sources),
            *(compaction_sensor(unit, start=start) for unit in units if unit.is_continuous),
            *(held_sensor(source, start=start) for source in sources if source.snapshot.held == "copy"),
            *view_condition_sensor(config, start),
            *alert_sensor(config, names, start=start, name="_".join([ALERTS, *part])),
            *old_runs_sensor(config, _lasting(config, sources, units), start=start, name="_".join([OLD_RUNS, *part])),
        ],
        schedules=schedules(config, start),
        resources=_resources(path),
        metadata={"configuration": dg.MetadataValue.path(path)},
    )


@cache
def _resources(path: str) -> dict[str, Any]:
    """Return the resources of a configuration: the same objects for each component, or Dagster would not merge them."""
    return {"settings": fixed(Settings(config_path=path)), "compute": fixed(Compute(config_path=path))}


def _lasting(config: Config, sources: Sequence[SourceConfig], units: Sequence[CompactionUnit]) -> Lasting:
    """Return the jobs that sensors keep going, each with the assets whose events its runs have: its views, too."""
    jobs: Lasting = {drain_job_name(s.name): [table_key(Layer.CHANGES, s.name, t) for t in s.tables] for s in sources}
    following = {
        compaction_job_name(unit.name): [
            table_key(layer, source.name, table)
            for source in unit.sources
            for table in source.tables
            for layer in (Layer.HISTORY, Layer.CURRENT)
        ]
        + [
            view_key(view)
            for view in config.views
            if {s.name for s in unit.sources} & {*sources_of(config.views, view)}
        ]
        for unit in units
        if unit.is_continuous
    }
    return {**jobs, **following}


def _view(asset: dg.AssetsDefinition, conditional: frozenset[dg.AssetKey], by: str) -> dg.AssetsDefinition:
    condition = view_condition() if asset.key in conditional else None
    return asset.map_asset_specs(
        lambda spec: spec.replace_attributes(
            automation_condition=condition,
            description=f"{spec.description}\n\n{by}",
            metadata={**spec.metadata, "refreshed_by": by},
        )
    )


def _with_tables(config: Config, name: str) -> SourceConfig:
    """Return the source with the tables that its patterns match; only the tables it names if the lake can't be read."""
    try:
        return with_known_tables(config, name)
    except LakeproofError as error:
        _log.warning("sources.%s: the tables that its patterns match can't be read: %s", name, error)
        return config.sources[name]


def _assets(config: Config, source: SourceConfig) -> list[dg.AssetsDefinition]:
    expectations, daily = expectations_asset(config, source), daily_asset(config, source)
    return [
        snapshot_asset(config, source),
        changes_asset(config, source),
        proof_asset(config, source),
        *([expectations] if expectations else []),
        maintenance_asset(config, source),
        slot_asset(source),
        *([daily] if daily else []),
    ]
