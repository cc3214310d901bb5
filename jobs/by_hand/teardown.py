"""Tearing down: the source's slot and publications are dropped; the lake stays.

Dropping does not belong here (`lakeproof.commands.teardown`). Without a confirmation the run shows what would go.
"""

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_page
from jobs.by_hand.page import Confirmed, is_confirmed, not_done, show, source_job_of
from jobs.names import SourceJob
from lakeproof.commands.teardown import TeardownPlan, plan_teardown, teardown
from lakeproof.config.model import SourceConfig
from resources import Settings


class TeardownRun(Confirmed):
    """The confirmation, and what is to be done about a drain at work."""

    end_drain: bool = Field(
        default=False,
        description="end the connection of the process that reads the slot; else a slot in use is not dropped. Stop "
        "the slot drain sensor first, or it starts the next drain",
    )


def teardown_job(source: SourceConfig) -> dg.JobDefinition:
    """Return the job that drops what a source has on its server."""

    @dg.op(name=f"teardown_{source.name}", out=dg.Out(dg.Nothing))
    def torn_down(context: dg.OpExecutionContext, config: TeardownRun, settings: Settings) -> None:
        if not is_confirmed(config, source.name):
            plan = run_engine(lambda _stop: plan_teardown(settings.config(), source.name))
            show(context, {"changed": False, **_plan(plan)})
            not_done(context, source.name, plan.would)
            return
        report = to_run_page(context)
        done = run_engine(lambda _: teardown(settings.config(), source.name, report, end_drain=config.end_drain))
        metadata = md.optional(slot=done.slot, wal_released_bytes=done.released_bytes)
        show(context, {"changed": True, **metadata, "publications": ", ".join(done.publications)})

    return source_job_of(
        torn_down,
        SourceJob.TEARDOWN,
        source,
        f"Drops slot {source.slot} and the publication of {source.name} on the server; the lake stays as it is. Without "
        f"`confirm: {source.name}` it shows what it would drop.",
    )


def _plan(plan: TeardownPlan) -> md.Metadata:
    return md.merged(
        {"publications": ", ".join(plan.publications), "not_owned": ", ".join(plan.not_owned)},
        md.optional(slot=plan.slot, wal_retained_bytes=plan.retained_bytes, read_by_process=plan.active_pid),
    )
