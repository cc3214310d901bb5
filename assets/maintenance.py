"""Retention and maintenance of a source as an asset: what a run removed and put together, in files and bytes.

What goes when belongs to `lakeproof.commands.maintain`, the ages to the configuration.
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import call_in_turn
from assets.support.event_log import to_run_log
from assets.support.keys import Layer, maintenance_key
from lakeproof.commands.maintain import maintain
from lakeproof.commands.sizes import lake_sizes
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.table_names import parse_table
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from resources import LakeSpark, Settings


class MaintenanceRun(dg.Config):
    """What a person may ask of a run besides; the schedule asks nothing."""

    rebuild: list[str] = Field(default=[], description="current tables to be made from their history, `schema.table`")
    restore: list[str] = Field(default=[], description="tables whose archived history is brought back")


def maintenance_asset(config: Config, source: SourceConfig) -> dg.AssetsDefinition:
    """The lake of one source, kept as its retention says."""
    place = open_store(config.lake).url(LakePaths(config.lake, source.name).source)

    @dg.asset(
        key=maintenance_key(source.name),
        group_name=Layer.MAINTENANCE.value,
        kinds={"deltalake", "spark"},
        description=f"What the retention of {source.name} removed, and which tables' small files were put together.",
        metadata={"dagster/table_name": f"maintenance.{source.name}", "dagster/uri": place},
    )
    def upkeep(
        context: dg.AssetExecutionContext, config: MaintenanceRun, settings: Settings, lake_spark: LakeSpark
    ) -> dg.MaterializeResult[None]:
        report = to_run_log(context.log.info)
        rebuild, restore = ([parse_table(name) for name in names] for names in (config.rebuild, config.restore))
        done = call_in_turn(
            lambda stop: maintain(
                settings.config(), source.name, lake_spark.session, report, rebuild=rebuild, restore=restore, stop=stop
            )
        )
        sizes = lake_sizes(settings.config(), source.name)
        of = {f"{what}_bytes": part.bytes for what, part in done.freed.items()}
        return dg.MaterializeResult(
            metadata=md.merged(
                {"files_removed": done.files, "bytes_removed": done.bytes, "cycles": len(done.cycles), **of},
                {
                    "kept_cuts": sizes.cuts,
                    "landing_size_bytes": sizes.landing.bytes,
                    "current_size_bytes": sizes.current.bytes,
                    "current_files": sizes.current.files,
                    "history_size_bytes": sizes.history.bytes,
                    "history_files": sizes.history.files,
                },
                {
                    "optimized": ", ".join(map(str, done.optimized)),
                    "trimmed": ", ".join(map(str, done.trimmed)),
                    "views_optimized": ", ".join(done.views),
                    "damaged": "\n".join(f"{thing}: {why}" for thing, why in done.damaged.items()),
                },
            )
        )

    return upkeep
