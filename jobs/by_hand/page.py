"""Common parts of the jobs by hand: a step as a job, the tables a person names, a confirmation, and a run's page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.bootstrap import snapshot_event
from assets.support import metadata as md
from assets.support.engine_call import failure
from jobs.names import SourceJob, source_tags
from lakeproof.config.mistakes import table_hint
from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import parse_table, table_text
from lakeproof.errors import ConfigError, LakeproofError
from lakeproof.names import TableName

if TYPE_CHECKING:
    from lakeproof.snapshot.run import SnapshotReport


def job_by_hand(
    name: str, tags: Mapping[str, str], description: str, *, op: str, pool: str | None = None
) -> Callable[[Callable[..., None]], dg.JobDefinition]:
    """Return a decorator: the job that is this one step, in one process."""

    def job(step: Callable[..., None]) -> dg.JobDefinition:
        graph = dg.GraphDefinition(name, node_defs=[dg.op(name=op, pool=pool, out=dg.Out(dg.Nothing))(step)])
        return graph.to_job(executor_def=dg.in_process_executor, tags=tags, description=description)

    return job


def source_job(
    source: SourceConfig, kind: SourceJob, description: str, pool: str | None = None
) -> Callable[[Callable[..., None]], dg.JobDefinition]:
    """Return the same for a job of a source."""
    op = f"{kind.value}_{source.name}"
    return job_by_hand(kind.of(source.name), source_tags(kind, source), description, op=op, pool=pool)


class Confirmed(dg.Config):
    """The configuration of a job that destroys something: without the confirmation it shows what it would do."""

    confirm: str = Field(
        default="",
        description="the source's name. Without it, the run shows what it would do and changes nothing",
    )


def is_confirmed(config: Confirmed, source: str) -> bool:
    """Return True if the source's name was given, False if nothing was; raises dagster.Failure for any other text."""
    if config.confirm not in {"", source}:
        reason = f"it is {config.confirm[:80]!r}, and the source's name is {source!r}"
        remedy = f"give {source!r} to change it, or nothing to see what would be done"
        raise failure(ConfigError("confirm", reason, remedy))
    return config.confirm == source


def show(
    context: dg.OpExecutionContext,
    metadata: Mapping[str, object],
    rows: Sequence[Mapping[str, str | int | float | bool | None]] = (),
) -> None:
    """Put the result on the run's page: its values, and a table of what it is about."""
    context.add_output_metadata({**metadata, **md.optional(tables=md.table(rows))})


def not_done(
    context: dg.OpExecutionContext,
    source: str,
    would: str,
    metadata: Mapping[str, object],
    rows: Sequence[Mapping[str, str]] = (),
) -> None:
    """Show what would be done on the run's page; say in its log that nothing was changed, and how to have it done."""
    show(context, {"changed": False, **metadata}, rows)
    context.log.warning("nothing was changed. It would %s. To do it, launch with confirm: %s", would, source)


def chosen_tables(source: SourceConfig, names: Sequence[str], verb: str) -> list[TableName]:
    """Return the tables; raises dagster.Failure if one is not the source's, or none is named."""
    try:
        tables = list(dict.fromkeys(map(parse_table, names)))
        unknown = [table for table in tables if table not in source.tables]
        if unknown:
            every = f"name tables of it: {', '.join(map(table_text, source.tables))}"
            remedy = table_hint(unknown[0], source.tables, every)
            raise ConfigError(f"table {unknown[0]}", f"source {source.name} does not have it", remedy)
        if not tables:
            raise ConfigError("tables", "none is named", f"name the tables to {verb}")
    except LakeproofError as error:
        raise failure(error) from error
    except ValueError as error:
        raise failure(ConfigError("tables", str(error), "write each as schema.table")) from error
    return tables


def copied(
    context: dg.OpExecutionContext, source: SourceConfig, done: SnapshotReport, reason: str
) -> list[dict[str, str | int]]:
    """Write an event for each table that a run has copied, and return the rows that its page shows of them."""
    copies = sorted({**done.tables, **done.kept}.items())
    for table, _ in copies:
        if table in source.tables:
            context.log_event(snapshot_event(source.name, table, done, reason))
    return [{"table": str(table), "rows": copy.rows, "copied at": str(copy.consistent_point)} for table, copy in copies]
