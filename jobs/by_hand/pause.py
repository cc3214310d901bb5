"""Pausing tables for a mass migration, and resuming them with a new copy; the source's other tables go on.

Publishing and copying do not belong here (`lakeproof.commands.publish`). Without a confirmation the run that pauses shows
what would leave which publication; resuming undoes it, and asks for none.
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_page
from jobs.by_hand.page import Confirmed, chosen_tables, copied, is_confirmed, not_done, show, source_job_of
from jobs.names import SourceJob
from lakeproof.config.model import SourceConfig
from resources import Settings


class PauseRun(Confirmed):
    """The tables to pause, and the confirmation: until they are resumed, what is done to them does not reach the lake."""

    tables: list[str] = Field(description="tables to take out of the publication: `schema.table`")


class ResumeRun(dg.Config):
    """The tables to resume."""

    tables: list[str] = Field(
        default=[], description="paused tables to publish and copy again: `schema.table`; without any, all of them"
    )


def pause_jobs(source: SourceConfig) -> list[dg.JobDefinition]:
    """Return the jobs that pause tables of a source, and resume them."""
    return [_pause_job(source), _resume_job(source)]


def _pause_job(source: SourceConfig) -> dg.JobDefinition:
    @dg.op(name=f"pause_{source.name}", out=dg.Out(dg.Nothing))
    def paused(context: dg.OpExecutionContext, config: PauseRun, settings: Settings) -> None:
        from lakeproof.commands.publish import pause, plan_pause

        tables, confirmed = chosen_tables(source, config.tables, "pause"), is_confirmed(config, source.name)
        plan = run_engine(lambda _stop: plan_pause(settings.config(), source.name, tables))
        rows = [
            {
                "table": str(table),
                "publications": ", ".join(entry.publication for entry in state.entries),
                "paused since": state.since,
            }
            for table, state in plan.items()
        ]
        if not confirmed:
            show(context, {"changed": False}, [row | {"paused since": ""} for row in rows])
            not_done(context, source.name, f"take {', '.join(map(str, tables))} out of the publication")
            return
        report = to_run_page(context)
        done = run_engine(lambda _stop: pause(settings.config(), source.name, tables, report))
        show(context, {"changed": True, "statements": "; ".join(done.statements)}, rows)

    return source_job_of(
        paused,
        SourceJob.PAUSE,
        source,
        f"Takes tables of {source.name} out of the publication until they are resumed: the server sends none of them, "
        f"and the lake keeps them as they are. Without `confirm: {source.name}` it shows what it would do.",
    )


def _resume_job(source: SourceConfig) -> dg.JobDefinition:
    @dg.op(name=f"resume_{source.name}", out=dg.Out(dg.Nothing))
    def resumed(context: dg.OpExecutionContext, config: ResumeRun, settings: Settings) -> None:
        from lakeproof.commands.publish import resume

        tables = chosen_tables(source, config.tables, "resume") if config.tables else None
        report = to_run_page(context)
        done = run_engine(lambda stop: resume(settings.config(), source.name, tables, report, stop))
        rows = copied(context, source, done, "resumed after a pause")
        show(context, {"changed": True, **md.lsns(consistent_point=done.consistent_point)}, rows)

    description = f"Publishes paused tables of {source.name} as they were, and copies them again."
    return source_job_of(resumed, SourceJob.RESUME, source, description)
