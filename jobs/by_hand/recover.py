"""Recovering: a new incarnation of a source whose slot and landing do not meet any more.

Its steps do not belong here (`lakeproof.commands.recover`). Without a confirmation the run shows the plan: why the landing
can't go on, which slots would go, what would be copied.
"""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_engine
from assets.support.event_log import to_run_page
from jobs.by_hand.page import Confirmed, copied, is_confirmed, not_done, show, source_job_of
from jobs.names import SourceJob
from lakeproof.config.model import SourceConfig
from lakeproof.events import counted
from resources import Settings

if TYPE_CHECKING:
    from lakeproof.commands.recover import RecoverPlan


class RecoverRun(Confirmed):
    """The confirmation, and the one question that a recovery asks."""

    other_system: bool = Field(
        default=False, description="the server may be another one than the lake's: you know that it is the right one"
    )
    abandon_slot: bool = Field(
        default=False, description="drop a slot that is alive, but stuck: the server can't send its stream any further"
    )


def recover_job(source: SourceConfig) -> dg.JobDefinition:
    """Return the job that recovers a source."""

    @dg.op(name=f"recover_{source.name}", out=dg.Out(dg.Nothing))
    def recovered(context: dg.OpExecutionContext, config: RecoverRun, settings: Settings) -> None:
        from lakeproof.commands.recover import plan_recover, recover

        confirmed = is_confirmed(config, source.name)
        plan = run_engine(lambda _stop: plan_recover(settings.config(), source.name, abandon_slot=config.abandon_slot))
        if not confirmed:
            show(context, {"changed": False, **_plan(plan)}, [{"copied": str(table)} for table in plan.tables])
            not_done(context, source.name, _would(plan))
            return
        report = to_run_page(context)
        done = run_engine(
            lambda stop: recover(
                settings.config(),
                source.name,
                report,
                stop,
                other_system=config.other_system,
                abandon_slot=config.abandon_slot,
            )
        )
        rows = copied(context, source, done, f"recovered: {plan.reason}")
        show(context, {"changed": True, **_plan(plan), **md.lsns(consistent_point=done.consistent_point)}, rows)

    return source_job_of(
        recovered,
        SourceJob.RECOVER,
        source,
        f"Begins anew after slot {source.slot} was lost, or the server was restored: a new incarnation, and a copy of "
        f"every table. Without `confirm: {source.name}` it shows what it would do.",
    )


def _plan(plan: "RecoverPlan") -> md.Metadata:
    return md.merged(
        {
            "reason": plan.reason,
            "incarnation": int(plan.incarnation),
            "follows_incarnation": int(plan.follows),
            "goes_on_with_a_killed_one": plan.resumes,
            "slot": plan.slot,
            "slot_is_kept": plan.keeps_slot,
            "slot_is_abandoned": plan.abandons,
            "slots_dropped": ", ".join(plan.drops),
            "copied_tables": len(plan.tables),
        },
        md.lsns(landing_end_lsn=plan.end_lsn),
        md.optional(other_system=plan.moved),
    )


def _would(plan: "RecoverPlan") -> str:
    drops = f"drop slot {', '.join(plan.drops)}, " if plan.drops else ""
    begins = "go on with" if plan.resumes else "begin"
    tables = counted(len(plan.tables), "table")
    return f"{drops}{begins} incarnation {plan.incarnation} and copy {tables}, since {plan.reason}"
