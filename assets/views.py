"""Views as assets: SQL over current tables, other views and external tables, kept up to date by correcting what differs."""

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.columns import stored_columns
from assets.support.engine_call import run_command
from assets.support.keys import SPARK_POOL, Layer, read_keys
from assets.support.step import StepRun, asset_step
from lakeproof.cli.results import from_json
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import ViewConfig
from lakeproof.events import counted
from resources import Compute

if TYPE_CHECKING:
    from lakeproof.views.round import ViewReport


def view_asset(catalog: Catalog, view: ViewConfig, refreshed_by: str) -> dg.AssetsDefinition:
    """Return the asset of one view; its code version is a hash of its SQL. `refreshed_by` is a sentence."""
    location = catalog.config.location
    about = view.description or f"{view.sql_file.name} over current tables, at one cut of each source."

    @asset_step(
        f"views__{view.name}",
        [
            catalog.spec(
                Layer.VIEWS.key(view.name),
                f"{about}\n\n{refreshed_by}",
                {"deltalake", "spark", "sql"},
                sorted(set(read_keys(view).values())),
                code_version=hashlib.sha256(view.sql().encode()).hexdigest()[:12],
                metadata={"refreshed_by": refreshed_by},
            )
        ],
        StepRun(pool=SPARK_POOL, tags={"lakeproof/view": view.name}),
    )
    def refreshed(context: dg.AssetExecutionContext, compute: Compute) -> Iterator[dg.MaterializeResult[None]]:
        from lakeproof.views.round import ViewReport

        # Maintenance may hold the lock on the views for as long as it takes to merge their files.
        # The views that it reads are brought up first, as one refresh.
        *inputs, result = from_json(list[ViewReport], run_command(context, compute, "refresh", view.name, "--again"))
        for report in inputs:
            if report.stands_still is None:
                context.log_event(view_event(location, report))
        if result.stands_still is None:
            yield md.result(view_event(location, result))
        else:
            context.log.warning("nothing was written: %s", result.stands_still)

    return refreshed


def view_event(lake: LakeLocation, report: "ViewReport") -> dg.AssetMaterialization:
    """Return the event of a refresh."""
    words = f"{counted(report.inserted, 'row')} in, {counted(report.retracted, 'row')} out"
    return md.event(Layer.VIEWS.key(report.view), _metadata(lake, report), _version(report), words)


def _version(report: "ViewReport") -> str:
    read = [f"{name}@{position}" for name, (_cut, position) in sorted(report.sources.items())]
    return ",".join([*read, *(f"{place}@{version}" for place, version in sorted(report.external.items()))])


def _metadata(lake: LakeLocation, report: "ViewReport") -> md.Metadata:
    positions = {name: position for name, (_cut, position) in sorted(report.sources.items())}
    return md.merged(
        {"inserted": report.inserted, "retracted": report.retracted},
        md.optional(
            cut=report.cut and int(report.cut),
            delta_version=report.delta_version,
            strategy=report.strategy,
            computed_as_a_whole=report.reason,
            changed_rows=report.changed_rows,
            external=", ".join(f"{place} version {version}" for place, version in sorted(report.external.items()))
            or None,
            rows_read=report.rows_read,
            not_applied=report.not_applied,
            **{"dagster/column_schema": stored_columns(lake, report.view, report.delta_version)},
        ),
        md.lsns(**{f"{name}_lsn": position for name, position in positions.items()}),
    )
