"""Assembles the location from a configuration: every asset, check, job, sensor, schedule and resource meets here.

This needs no server, Spark or secret. Of the lake it reads only the list of tables that the configuration's patterns match.
Choosing the configuration file does not belong here (`location.py`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial

import dagster as dg

from assets.bootstrap import snapshot_asset
from assets.catalog import Catalog
from assets.changes import changes_asset
from assets.checks.expectations import expectations_asset
from assets.checks.proof import proof_asset
from assets.current import CompactionUnit, compaction_asset, compaction_units
from assets.daily import daily_asset
from assets.maintenance import maintenance_asset
from assets.outside import UNKNOWN, external_specs, postgres_specs
from assets.slots import slot_asset
from assets.support.keys import Layer, layer_keys
from assets.views import view_asset
from jobs.by_hand.replace import replace_jobs
from jobs.by_hand.source import jobs_by_hand
from jobs.names import VIEWS_REFRESH, SourceJob
from jobs.source import Job, compaction_job, source_jobs, views_refresh_job
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.view_graph import readers_of, sources_of
from lakeproof.errors import ConfigError, LakeproofError
from lakeproof.state.known_tables import with_known_tables
from orchestration.alerts import ALERTS, alert_sensor, watched_by_alerts
from orchestration.outside_proofs import OutsideProofs
from orchestration.runs import OLD_RUNS, LastingJobs, old_runs_sensor
from orchestration.schedules import refreshed_by, schedules
from orchestration.sensors import compaction_sensor, held_sensor, slot_drain_sensor
from resources.fixed import location_resources

_log = logging.getLogger("lakeproof.dagster")
# Decides if sensors and schedules are on when nobody has switched them in the UI, which wins.
START = "LAKEPROOF_START"


def build(file: Config, only: Sequence[str] | None = None, job: str | None = None) -> dg.Definitions:
    """Return the location of a configuration, or `only` what belongs to some of its sources, or what a run of a `job` needs.

    Of a source without known tables, one asset says what to do. Patterns, and sources that list nothing, have the tables
    that the lake knows: a table that was added later is shown when the location is reloaded. A run of a job that is not
    named here, as of assets that a person has selected, needs all of it.
    """
    file = file if only is None else narrowed(file, only)
    config = file.model_copy(update={"sources": {name: _with_tables(file, name) for name in file.sources}})
    sources = [source for source in config.sources.values() if source.tables]
    units = compaction_units(config)
    resources = location_resources(str(config.path), elsewhere=config.compute is not None)
    scheduled = [
        *(each for source in sources for each in source_jobs(config, source)),
        *map(compaction_job, units),
        *views_refresh_job(config),
    ]
    by_hand: list[Job | dg.JobDefinition] = [
        *(each for source in sources for each in jobs_by_hand(source)),
        *replace_jobs(config),
    ]
    own = [each for each in (*scheduled, *by_hand) if each.name == job]
    if own:
        chosen = [make() for jobs, make in _families(Catalog(config, is_shown=False), sources, units) if job in jobs]
        return dg.Definitions(assets=[asset for asset in chosen if asset], jobs=own, resources=resources)
    for source in config.sources.values():
        if not source.tables:
            _log.warning("sources.%s: %s", source.name, UNKNOWN)
    catalog, start = Catalog(config), start_of(config)
    assets = [asset for _, make in _families(catalog, sources, units) if (asset := make())]
    # A person who launches a job sees its end.
    names = watched_by_alerts(config, [each.name for each in scheduled], assets)
    part = sorted(only or ())
    return dg.Definitions(
        assets=[*postgres_specs(catalog), *external_specs(catalog), *assets],
        jobs=[*scheduled, *by_hand],
        sensors=[
            *(slot_drain_sensor(source, OutsideProofs.of(config, source), start=start) for source in sources),
            *(compaction_sensor(unit, start=start) for unit in units if unit.is_continuous),
            *(held_sensor(source, start=start) for source in sources if source.snapshot.held == "copy"),
            *alert_sensor(config, names, start=start, name="_".join([ALERTS, *part])),
            *old_runs_sensor(config, _lasting(config, sources, units), start=start, name="_".join([OLD_RUNS, *part])),
        ],
        schedules=schedules(config, start),
        resources=resources,
        metadata={"configuration": dg.MetadataValue.path(str(config.path))},
    )


# The jobs whose runs need an asset of several tables, and what makes it.
Family = tuple[Collection[str], Callable[[], dg.AssetsDefinition | None]]


def _families(catalog: Catalog, sources: Sequence[SourceConfig], units: Sequence[CompactionUnit]) -> Iterator[Family]:
    """Yield every asset that runs, unmade, each with the jobs that select it."""
    for source in sources:
        name = source.name
        yield {SourceJob.BOOTSTRAP.of(name)}, partial(snapshot_asset, catalog, source)
        yield {SourceJob.DRAIN.of(name)}, partial(changes_asset, catalog, source)
        yield {SourceJob.VERIFICATION.of(name)}, partial(proof_asset, catalog, source)
        yield {SourceJob.VERIFICATION.of(name)}, partial(expectations_asset, catalog, source)
        yield {SourceJob.MAINTENANCE.of(name)}, partial(maintenance_asset, catalog, source)
        yield {SourceJob.SLOT.of(name)}, partial(slot_asset, catalog, source)
        yield {SourceJob.DAILY.of(name)}, partial(daily_asset, catalog, source)
    for unit in units:
        yield {SourceJob.COMPACTION.of(unit.name)}, partial(compaction_asset, catalog, unit)
    for view in catalog.config.views.values():
        yield {VIEWS_REFRESH}, partial(view_asset, catalog, view, refreshed_by(catalog.config, view.name))


def _lasting(config: Config, sources: Sequence[SourceConfig], units: Sequence[CompactionUnit]) -> LastingJobs:
    """Return the jobs that sensors keep going, each with the assets and views whose events its runs have."""
    jobs: dict[str, Collection[dg.AssetKey]] = {
        SourceJob.DRAIN.of(source.name): layer_keys(source, Layer.CHANGES) for source in sources
    }
    for unit in units:
        if unit.is_continuous:
            tables = [key for source in unit.sources for key in layer_keys(source, Layer.HISTORY, Layer.CURRENT)]
            views = readers_of(config.views, [source.name for source in unit.sources])
            jobs[SourceJob.COMPACTION.of(unit.name)] = [*tables, *(Layer.VIEWS.key(view.name) for view in views)]
    return jobs


def start_of(config: Config, environ: Mapping[str, str] = os.environ) -> str:
    """Return Dagster's name of the default status; the environment's comes first. Raises ConfigError for any other word."""
    word = environ.get(START) or config.dagster.start
    if word not in {"running", "stopped"}:
        raise ConfigError(f"the environment variable {START}", f"it is {word[:40]!r}", "set it to running or stopped")
    return word.upper()


def _with_tables(config: Config, name: str) -> SourceConfig:
    """Return the source with the tables that its patterns match; only the tables it names if the lake can't be read."""
    try:
        return with_known_tables(config, name)
    except LakeproofError as error:
        _log.warning("sources.%s: the tables that its patterns match can't be read: %s", name, error)
        return config.sources[name]


def narrowed(config: Config, names: Sequence[str]) -> Config:
    """Return the configuration with these sources, and with the views and groups that have no other.

    Raises ConfigError for a name that is no source, and for a group of which only a part is named: it is compacted as one.
    """
    sources = {name: config.source(name) for name in names}
    for group, members in config.groups.items():
        if not set(members) <= sources.keys() and not sources.keys().isdisjoint(members):
            missing = ", ".join(sorted(set(members) - sources.keys()))
            reason = f"only a part of it is named, without {missing}"
            raise ConfigError(f"group {group}", reason, "name all of its sources")
    groups = {group: members for group, members in config.groups.items() if set(members) <= sources.keys()}
    views = {name: view for name, view in config.views.items() if set(sources_of(config.views, name)) <= sources.keys()}
    return config.model_copy(update={"sources": sources, "views": views, "groups": groups})
