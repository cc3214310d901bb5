"""Views as assets: SQL over current tables, other views and external tables, kept up to date by correcting what differs.

`lakeproof.commands.refresh` computes and corrects a view's rows; `orchestration.schedules` refreshes views by themselves.
"""

import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from assets.support import metadata as md
from assets.support.columns import stored_view_schema
from assets.support.command_call import run_command
from assets.support.keys import SPARK_POOL, Layer, external_key, table_key, view_key
from lakeproof.cli.results import from_json
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import LakeproofError
from lakeproof.events import counted
from lakeproof.lake.delta.log.protocol import column_types
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from resources import Compute

if TYPE_CHECKING:
    from lakeproof.views.round import ViewReport

_log = logging.getLogger("lakeproof.dagster")


def view_asset(config: Config, view: ViewConfig) -> dg.AssetsDefinition:
    """Return the asset of one view; its code version is a hash of its SQL."""

    @dg.asset(
        key=view_key(view.name),
        deps=sorted(set(read_keys(view).values())),
        group_name=Layer.VIEWS.value,
        description=view.description or f"{view.sql_file.name} over current tables, at one cut of each source.",
        kinds={"deltalake", "spark", "sql"},
        owners=list(view.owners),
        code_version=_definition(view),
        pool=SPARK_POOL,
        output_required=False,
        op_tags={"lakeproof/view": view.name},
        metadata={
            "dagster/table_name": f"views.{view.name}",
            "dagster/uri": open_store(config.location).url(LakePaths.view(view.name)),
            "sql_file": dg.MetadataValue.path(str(view.sql_file)),
        },
    )
    def refreshed(context: dg.AssetExecutionContext, compute: Compute) -> Iterator[dg.MaterializeResult[None]]:
        from lakeproof.views.round import ViewReport

        # Maintenance may hold the lock on the views for as long as it takes to merge their files.
        # The views that it reads are brought up first, as one refresh.
        *inputs, result = from_json(list[ViewReport], run_command(context, compute, "refresh", view.name, "--again"))
        for report in inputs:
            if report.stands_still is None:
                context.log_event(view_event(config.location, report))
        if result.stands_still is None:
            yield _result(config.location, result)
        else:
            context.log.warning("nothing was written: %s", result.stands_still)

    return refreshed


def read_keys(view: ViewConfig) -> dict[str, dg.AssetKey]:
    """Return the asset of each name in a view's SQL."""
    keys = {name: table_key(Layer.CURRENT, source, table) for name, (source, table) in view.reads.items()}
    keys |= {name: view_key(other) for name, other in view.views.items()}
    return keys | {name: external_key(table) for name, table in view.external.items()}


def _definition(view: ViewConfig) -> str:
    return hashlib.sha256(view.sql().encode()).hexdigest()[:12]


def stored_columns(lake: LakeLocation, view: str, version: int | None = None) -> dict[str, str]:
    """Return the columns of a view's table with their types; nothing if it was never made or can't be read."""
    try:
        return column_types(open_store(lake).url(LakePaths.view(view)), version)
    except (LakeproofError, OSError) as error:
        _log.warning("views.%s: its columns can't be read: %s", view, error)
        return {}


def _result(lake: LakeLocation, report: "ViewReport") -> dg.MaterializeResult[None]:
    return dg.MaterializeResult(data_version=dg.DataVersion(_version(report)), metadata=_metadata(lake, report))


def view_event(lake: LakeLocation, report: "ViewReport") -> dg.AssetMaterialization:
    """Return the event of a refresh that a run made beside its own assets."""
    return dg.AssetMaterialization(
        view_key(report.view),
        description=f"{counted(report.inserted, 'row')} in, {counted(report.retracted, 'row')} out",
        metadata=_metadata(lake, report),
        tags={"dagster/data_version": _version(report)},
    )


def _version(report: "ViewReport") -> str:
    read = [f"{name}@{position}" for name, (_cut, position) in sorted(report.sources.items())]
    return ",".join([*read, *(f"{place}@{version}" for place, version in sorted(report.external.items()))])


def _metadata(lake: LakeLocation, report: "ViewReport") -> md.Metadata:
    columns = stored_columns(lake, report.view, report.delta_version)
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
            **{"dagster/column_schema": stored_view_schema(columns) if columns else None},
        ),
        md.lsns(**{f"{name}_lsn": position for name, position in positions.items()}),
    )
