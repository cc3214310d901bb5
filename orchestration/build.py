"""Assembles the location from a configuration: every asset, check, job, sensor, schedule and resource meets here.

This needs no server, Spark or secret. Of the lake it reads only the list of tables that the configuration's patterns match.
Choosing the configuration file does not belong here (`find_config`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
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
from jobs.names import (
    VIEWS_REFRESH,
    bootstrap_job_name,
    compaction_job_name,
    daily_job_name,
    drain_job_name,
    maintenance_job_name,
    repair_job_name,
    slot_job_name,
    verification_job_name,
)
from jobs.source import compaction_job, source_jobs
from jobs.views import views_refresh_job
from lakeproof.config.model import Config, SourceConfig, ViewConfig
from lakeproof.config.view_graph import sources_of
from lakeproof.errors import LakeproofError
from lakeproof.state.known_tables import with_known_tables
from orchestration.alert_sensor import NAME as ALERTS
from orchestration.alert_sensor import alert_sensor, watched
from orchestration.narrow import narrowed
from orchestration.old_runs import NAME as OLD_RUNS
from orchestration.old_runs import Lasting, old_runs_sensor
from orchestration.outside_proofs import outside_proofs
from orchestration.schedules import schedules
from orchestration.sensors import compaction_sensor, held_sensor, slot_drain_sensor
from orchestration.start import start_of
from orchestration.view_conditions import conditional_views, refreshed_by, view_condition, view_condition_sensor
from resources.fixed import location_resources

_log = logging.getLogger("lakeproof.dagster")


def build(file: Config, only: Sequence[str] | None = None, job: str | None = None) -> dg.Definitions:
    """Return the location of a configuration, or `only` what belongs to some of its sources, or what a run of a `job` needs.

    Of a source without known tables, one asset says what to do. Patterns, and sources that list nothing, have the tables
    that the lake knows: a table that was added later is shown when the location is reloaded. A run of a job that is not
    named here, as of assets that a person has selected, needs all of it.
    """
    file = file if only is None else narrowed(file, only)
    config = file.model_copy(update={"sources": {name: _with_tables(file, name) for name in file.sources}})
    sources = [source for source in config.sources.values() if source.tables]
    units, views_job, resources = compaction_units(config), views_refresh_job(config), _resources(str(config.path))
    scheduled = [
        *(each for source in sources for each in source_jobs(config, source)),
        *(compaction_job(unit) for unit in units),
        *([views_job] if views_job else []),
    ]
    by_hand = [*(each for source in sources for each in jobs_by_hand(source)), *replace_jobs(config)]
    own = [each for each in (*scheduled, *by_hand) if each.name == job]
    if own:
        chosen = [make() for jobs, make in _families(config, sources, units) if job in jobs]
        return dg.Definitions(assets=[asset for asset in chosen if asset], jobs=own, resources=resources)
    for source in config.sources.values():
        if not source.tables:
            _log.warning("sources.%s: %s", source.name, UNKNOWN)
    catalog, start = Catalog(config), start_of(config)
    assets = [catalog.show(asset) for _, make in _families(config, sources, units) if (asset := make())]
    # A person who launches a job sees its end.
    names = watched(config, [each.name for each in scheduled], assets)
    part = sorted(only or ())
    return dg.Definitions(
        assets=[*map(catalog.complete, [*postgres_specs(config), *external_specs(config)]), *assets],
        jobs=[*scheduled, *by_hand],
        sensors=[
            *(slot_drain_sensor(source, outside_proofs(config, source), start=start) for source in sources),
            *(compaction_sensor(unit, start=start) for unit in units if unit.is_continuous),
            *(held_sensor(source, start=start) for source in sources if source.snapshot.held == "copy"),
            *view_condition_sensor(config, start),
            *alert_sensor(config, names, start=start, name="_".join([ALERTS, *part])),
            *old_runs_sensor(config, _lasting(config, sources, units), start=start, name="_".join([OLD_RUNS, *part])),
        ],
        schedules=schedules(config, start),
        resources=resources,
        metadata={"configuration": dg.MetadataValue.path(str(config.path))},
    )


# The jobs whose runs need an asset of several tables, and what makes it.
Family = tuple[Collection[str], Callable[[], dg.AssetsDefinition | None]]


def _families(config: Config, sources: Sequence[SourceConfig], units: Sequence[CompactionUnit]) -> Iterator[Family]:
    """Yield every asset that runs, unmade, each with the jobs that select it."""
    for source in sources:
        name = source.name
        yield {bootstrap_job_name(name)}, partial(snapshot_asset, config, source)
        yield {drain_job_name(name)}, partial(changes_asset, config, source)
        yield {verification_job_name(name), repair_job_name(name)}, partial(proof_asset, config, source)
        yield {verification_job_name(name)}, partial(expectations_asset, config, source)
        yield {maintenance_job_name(name)}, partial(maintenance_asset, config, source)
        yield {slot_job_name(name)}, partial(slot_asset, source)
        yield {daily_job_name(name)}, partial(daily_asset, config, source)
    for unit in units:
        yield {compaction_job_name(unit.name)}, partial(compaction_asset, config, unit)
    conditional = conditional_views(config)
    for view in config.views.values():
        yield {VIEWS_REFRESH}, partial(_view, config, view, conditional)


@cache
def _resources(path: str) -> dict[str, Any]:
    """Return the resources of a configuration: the same objects for each component, or Dagster would not merge them."""
    return location_resources(path)


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


def _view(config: Config, view: ViewConfig, conditional: frozenset[dg.AssetKey]) -> dg.AssetsDefinition:
    asset, by = view_asset(config, view), refreshed_by(config, view.name)
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
