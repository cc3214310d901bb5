"""Rebuilding: current tables are made from their history again, and nothing else is done.

The rows do not belong here (`lakeproof.commands.maintain`).
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.command_call import run_command, table_words
from assets.support.keys import SPARK_POOL
from jobs.by_hand.page import chosen_tables, show, source_job_of
from jobs.names import SourceJob
from lakeproof.cli.results import from_json
from lakeproof.config.model import SourceConfig
from resources import Compute, Settings


class RebuildRun(dg.Config):
    """The tables to rebuild."""

    tables: list[str] = Field(description="current tables to make from their history again: `schema.table`")


def rebuild_job(source: SourceConfig) -> dg.JobDefinition:
    """Return the job that rebuilds current tables of a source."""

    @dg.op(name=f"rebuild_{source.name}", pool=SPARK_POOL, out=dg.Out(dg.Nothing))
    def rebuilt(context: dg.OpExecutionContext, config: RebuildRun, settings: Settings, compute: Compute) -> None:
        from lakeproof.commands.maintain import Maintained

        tables = chosen_tables(source, config.tables, "rebuild")
        words = [*table_words("--rebuild", tables), "--nothing-else"]
        result = from_json(Maintained, run_command(context, compute, "maintain", source.name, *words))
        newest = settings.newest_cut(source.name)
        held = settings.held_tables(source.name)
        done: list[dict[str, str | int | bool]] = [
            {
                "table": str(table),
                "rebuilt": table in result.rebuilt,
                "delta version": newest.tables[table].current_version if newest and table in newest.tables else -1,
                "held": str(held[table].reason) if table in held else "",
            }
            for table in tables
        ]
        position = (
            {} if newest is None else {"cut": int(newest.number), **md.lsns(compacted_through_lsn=newest.position)}
        )
        show(context, {"rebuilt": len(result.rebuilt), **position}, done)

    description = f"Makes current tables of {source.name} from their history again. The source is not asked."
    return source_job_of(rebuilt, SourceJob.REBUILD, source, description)
