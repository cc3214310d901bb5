"""Assembles the location from a configuration: every asset, check, job, sensor, schedule and resource meets here.

This needs no server, Spark or secret. Of the lake it reads only the list of tables that the configuration's patterns match.
Choosing the configuration file does not belong here (`find_config`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg

from assets.bootstrap import snapshot_asset
from assets.catalog import Catalog
from assets.changes import changes_asset
from assets.checks.expectations import expectations_asset
from assets.checks.proof import proof_asset
from assets.current import compaction_asset, compaction_units
from assets.maintenance import maintenance_asset
from assets.postgres import UNKNOWN, postgres_specs
from assets.slots import slot_asset
from assets.views import view_asset
from jobs.source import compaction_job, source_jobs
from jobs.views import views_refresh_job
from lakeproof.commands.known_tables import with_known_tables
from lakeproof.config.load import load
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from orchestration.compaction_sensor import compaction_sensor
from orchestration.find_config import HINT
from orchestration.schedules import schedules
from orchestration.sensors import held_sensor, slot_drain_sensor
from resources import Compute, Settings

_log = logging.getLogger("lakeproof.dagster")


def location(path: Path | None) -> dg.Definitions:
    """Return the location of a configuration file; without a file, an empty location that says what to do.

    Raises ConfigError, with every mistake, for a file that is wrong or missing: Dagster shows it in place of the location.
    """
    if path is None:
        _log.warning("this location is empty: %s", HINT)
        return dg.Definitions(metadata={"configuration": dg.MetadataValue.text(f"none; {HINT}")})
    return build(load(path))


def build(file: Config) -> dg.Definitions:
    """Return the location of a configuration. Of a source without known tables, one asset says what to do.

    Patterns, and sources that list nothing, have the tables that the lake knows: a table that was added later is shown when
    the location is reloaded.
    """
    config = file.model_copy(update={"sources": {name: _with_tables(file, name) for name in file.sources}})
    sources = [source for source in config.sources.values() if source.tables]
    for source in config.sources.values():
        if not source.tables:
            _log.warning("sources.%s: %s", source.name, UNKNOWN)
    catalog, units = Catalog(config), compaction_units(config)
    views_job = views_refresh_job(config)
    path = str(config.path)
    return dg.Definitions(
        assets=[
            *map(catalog.complete, postgres_specs(config)),
            *(catalog.show(asset) for source in sources for asset in _assets(config, source)),
            *(catalog.show(compaction_asset(config, unit)) for unit in units),
            *(catalog.show(view_asset(config, view)) for view in config.views.values()),
        ],
        jobs=[
            *(job for source in sources for job in source_jobs(config, source)),
            *(compaction_job(unit) for unit in units),
            *([views_job] if views_job else []),
        ],
        sensors=[
            *(slot_drain_sensor(source) for source in sources),
            *(compaction_sensor(unit) for unit in units if unit.is_continuous),
            *(held_sensor(source) for source in sources if source.snapshot.held == "copy"),
        ],
        schedules=schedules(config),
        resources={"settings": Settings(config_path=path), "compute": Compute(config_path=path)},
        metadata={"configuration": dg.MetadataValue.path(path)},
    )


def _with_tables(config: Config, name: str) -> SourceConfig:
    """Return the source with the tables that its patterns match; only the tables it names if the lake can't be read."""
    try:
        return with_known_tables(config, name)
    except LakeproofError as error:
        _log.warning("sources.%s: the tables that its patterns match can't be read: %s", name, error)
        return config.sources[name]


def _assets(config: Config, source: SourceConfig) -> list[dg.AssetsDefinition]:
    expectations = expectations_asset(config, source)
    return [
        snapshot_asset(config, source),
        changes_asset(config, source),
        proof_asset(config, source),
        *([expectations] if expectations else []),
        maintenance_asset(config, source),
        slot_asset(source),
    ]
