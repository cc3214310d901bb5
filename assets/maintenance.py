"""Retention and maintenance of a source as an asset: what a run deleted and optimized, in files and bytes."""

import dagster as dg
from pydantic import Field

from assets.catalog import Catalog
from assets.support import metadata as md
from assets.support.engine_call import run_command, table_words
from assets.support.keys import SPARK_POOL, Layer
from assets.support.step import StepRun, asset_step
from lakeproof.cli.results import from_json
from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import parse_table
from resources import Compute, Settings


class MaintenanceRun(dg.Config):
    """Extra work that a person may request; the schedule requests none."""

    rebuild: list[str] = Field(default=[], description="current tables to rebuild from their history, `schema.table`")
    restore: list[str] = Field(default=[], description="tables whose archived history to bring back, `schema.table`")


def maintenance_asset(catalog: Catalog, source: SourceConfig) -> dg.AssetsDefinition:
    """Return the asset that applies the retention to the lake of one source."""

    @asset_step(
        f"maintenance__{source.name}",
        [
            catalog.spec(
                Layer.MAINTENANCE.key(source.name),
                f"The files that the retention of {source.name} deleted, and the tables whose small files were merged.",
                {"deltalake", "spark"},
            )
        ],
        # Last in a run of everything. It is about the source's whole lake, so no table leads to it: a line from each of
        # thousands would show nothing, and each job with them is made when the location loads.
        StepRun(pool=SPARK_POOL, tags={"dagster/priority": "-10"}),
    )
    def maintained(
        context: dg.AssetExecutionContext, config: MaintenanceRun, settings: Settings, compute: Compute
    ) -> dg.MaterializeResult[None]:
        from lakeproof.commands.maintain import Maintained, lake_sizes

        rebuild, restore = ([parse_table(name) for name in names] for names in (config.rebuild, config.restore))
        extra = [*table_words("--rebuild", rebuild), *table_words("--restore", restore)]
        result = from_json(Maintained, run_command(context, compute, "maintain", source.name, *extra))
        sizes, cut = lake_sizes(settings.config(), source.name), settings.newest_cut(source.name)
        freed = {f"{kind}_bytes": space.bytes for kind, space in result.freed.items()}
        return dg.MaterializeResult(
            metadata=md.merged(
                md.lsns(compacted_through_lsn=None if cut is None else cut.position),
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
