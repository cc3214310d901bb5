"""Retention and maintenance of a source as an asset: what a run deleted and optimized, in files and bytes.

Deciding what is deleted does not belong here (`lakeproof.commands.maintain`); the configuration has the retention times.
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_engine_in_turn
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, maintenance_key
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.sizes import lake_sizes
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.table_names import parse_table
from lakeproof.storage.open import open_store
from resources import LakeSpark, Settings


class MaintenanceRun(dg.Config):
    """Extra work that a person may request; the schedule requests none."""

    rebuild: list[str] = Field(default=[], description="current tables to rebuild from their history, `schema.table`")
    restore: list[str] = Field(default=[], description="tables whose archived history to bring back, `schema.table`")


def maintenance_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the asset that applies the retention to the lake of one source."""
    uri = open_store(config.location).url(source.name)

    @dg.asset(
        key=maintenance_key(source.name),
        group_name=Layer.MAINTENANCE.value,
        kinds={"deltalake", "spark"},
        description=f"The files that the retention of {source.name} deleted, and the tables whose small files were merged.",
        metadata={"dagster/table_name": f"maintenance.{source.name}", "dagster/uri": uri},
    )
    def maintained(
        context: dg.AssetExecutionContext, config: MaintenanceRun, settings: Settings, lake_spark: LakeSpark
    ) -> dg.MaterializeResult[None]:
        report = to_run_log(context.log.info)
        rebuild, restore = ([parse_table(name) for name in names] for names in (config.rebuild, config.restore))
        result = run_engine_in_turn(
            lambda stop: maintain(
                settings.config(), source.name, lake_spark.session, report, MaintenanceRequest(rebuild, restore), stop
            )
        )
        sizes = lake_sizes(settings.config(), source.name)
        freed = {f"{kind}_bytes": space.bytes for kind, space in result.freed.items()}
        return dg.MaterializeResult(
            metadata=md.merged(
                {"files_removed": result.files, "bytes_removed": result.bytes, "cycles": len(result.cycles), **freed},
                {
                    "kept_cuts": sizes.cuts,
                    "landing_size_bytes": sizes.landing.bytes,
                    "snapshots_size_bytes": sizes.snapshots.bytes,
                    "current_size_bytes": sizes.current.bytes,
                    "current_files": sizes.current.files,
                    "history_size_bytes": sizes.history.bytes,
                    "history_files": sizes.history.files,
                    "counted_again_bytes": sizes.counted_again,
                },
                {
                    "optimized": ", ".join(map(str, result.optimized)),
                    "trimmed": ", ".join(map(str, result.trimmed)),
                    "views_optimized": ", ".join(result.views),
                    "damaged": "\n".join(f"{thing}: {reason}" for thing, reason in result.damaged.items()),
                },
            )
        )

    return maintained
