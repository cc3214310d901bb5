"""Rebuilding: current tables are made from their history again, and nothing else is done.

The rows do not belong here (`lakeproof.commands.maintain`).
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.command_call import run_command, table_words
from assets.support.engine_call import failure
from assets.support.specs import SPARK_POOL
from jobs.by_hand.confirmed import show
from jobs.names import rebuild_job_name, run_tags
from lakeproof.cli.read_results import from_json
from lakeproof.config.mistakes import nearest
from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import parse_table, write_table
from lakeproof.errors import ConfigError, LakeproofError
from lakeproof.names import TableName
from resources import Compute, Settings


class RebuildRun(dg.Config):
    """The tables to rebuild."""

    tables: list[str] = Field(description="current tables to make from their history again: `schema.table`")


def rebuild_job(source: SourceConfig) -> dg.JobDefinition:
    """Return the job that rebuilds current tables of a source."""
    job = rebuild_job_name(source.name)

    @dg.op(name=f"rebuild_{source.name}", pool=SPARK_POOL, out=dg.Out(dg.Nothing))
    def rebuilt(context: dg.OpExecutionContext, config: RebuildRun, settings: Settings, compute: Compute) -> None:
        from lakeproof.commands.maintain import Maintained

        tables = _chosen(source, config.tables)
        words = [*table_words("--rebuild", tables), "--nothing-else"]
        result = from_json(Maintained, run_command(context, compute, "maintain", source.name, *words))
        newest = settings.newest_cut(source.name)
        held = settings.held_tables(source.name)
        done = [
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

    @dg.job(
        name=job,
        executor_def=dg.in_process_executor,
        tags=run_tags("rebuild", source=source.name, slot=source.slot),
        description=f"Makes current tables of {source.name} from their history again. The source is not asked.",
    )
    def rebuild() -> None:
        rebuilt()

    return rebuild


def _chosen(source: SourceConfig, names: list[str]) -> list[TableName]:
    """Return the tables; raises dagster.Failure if one is not the source's, or none is named."""
    try:
        tables = list(dict.fromkeys(map(parse_table, names)))
        unknown = [table for table in tables if table not in source.tables]
        if unknown:
            near = nearest(str(unknown[0]), map(str, source.tables))
            remedy = (
                f"did you mean {near}?" if near else f"name tables of it: {', '.join(map(write_table, source.tables))}"
            )
            raise ConfigError(f"table {unknown[0]}", f"source {source.name} does not have it", remedy)
        if not tables:
            raise ConfigError("tables", "none is named", "name the tables to rebuild")
    except LakeproofError as error:
        raise failure(error) from error
    except ValueError as error:
        raise failure(ConfigError("tables", str(error), "write each as schema.table")) from error
    return tables
