"""The jobs of a source that only a person launches, from the launchpad.

The work is in `lakeproof.commands`: `maintain`, `publish`, `recover`, `teardown`. What destroys something shows what it
would do, and does it if it is confirmed.
"""

from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from assets.support import metadata as md
from assets.support.engine_call import run_command, run_engine, table_words
from assets.support.event_log import to_run_page
from assets.support.keys import SPARK_POOL
from jobs.by_hand.page import Confirmed, chosen_tables, copied, is_confirmed, not_done, show, source_job
from jobs.names import SourceJob
from lakeproof.cli.results import from_json
from lakeproof.commands.teardown import plan_teardown, teardown
from lakeproof.config.model import SourceConfig
from lakeproof.events import counted
from resources import Compute, Settings

if TYPE_CHECKING:
    from lakeproof.commands.recover import RecoverPlan


def jobs_by_hand(source: SourceConfig) -> list[dg.JobDefinition]:
    """Return the jobs of one source with at least one table. A repair is a proof with `repair: true`."""
    return [_rebuild_job(source), _recover_job(source), _teardown_job(source), _pause_job(source), _resume_job(source)]


class RebuildRun(dg.Config):
    """The tables to rebuild."""

    tables: list[str] = Field(description="current tables to make from their history again: `schema.table`")


def _rebuild_job(source: SourceConfig) -> dg.JobDefinition:
    @source_job(
        source,
        SourceJob.REBUILD,
        f"Makes current tables of {source.name} from their history again. The source is not asked.",
        SPARK_POOL,
    )
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

    return rebuilt


class RecoverRun(Confirmed):
    """The confirmation, and the one question that a recovery asks."""

    other_system: bool = Field(
        default=False, description="the server may be another one than the lake's: you know that it is the right one"
    )
    abandon_slot: bool = Field(
        default=False, description="drop a slot that is alive, but stuck: the server can't send its stream any further"
    )


def _recover_job(source: SourceConfig) -> dg.JobDefinition:
    @source_job(
        source,
        SourceJob.RECOVER,
        f"Begins anew after slot {source.slot} was lost, or the server was restored: a new incarnation, and a copy of "
        f"every table. Without `confirm: {source.name}` it shows what it would do.",
    )
    def recovered(context: dg.OpExecutionContext, config: RecoverRun, settings: Settings) -> None:
        from lakeproof.commands.recover import plan_recover, recover

        confirmed = is_confirmed(config, source.name)
        plan = run_engine(lambda _stop: plan_recover(settings.config(), source.name, abandon_slot=config.abandon_slot))
        if not confirmed:
            tables = [{"copied": str(table)} for table in plan.tables]
            not_done(context, source.name, _would(plan), _recover_metadata(plan), tables)
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
        show(
            context,
            {"changed": True, **_recover_metadata(plan), **md.lsns(consistent_point=done.consistent_point)},
            rows,
        )

    return recovered


def _recover_metadata(plan: "RecoverPlan") -> md.Metadata:
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


class TeardownRun(Confirmed):
    """The confirmation, and what is to be done about a drain at work."""

    end_drain: bool = Field(
        default=False,
        description="end the connection of the process that reads the slot; else a slot in use is not dropped. Stop "
        "the slot drain sensor first, or it starts the next drain",
    )


def _teardown_job(source: SourceConfig) -> dg.JobDefinition:
    @source_job(
        source,
        SourceJob.TEARDOWN,
        f"Drops slot {source.slot} and the publications that lakeproof made for {source.name} on the server; the lake stays "
        f"as it is. Without `confirm: {source.name}` it shows what it would drop.",
    )
    def torn_down(context: dg.OpExecutionContext, config: TeardownRun, settings: Settings) -> None:
        if not is_confirmed(config, source.name):
            plan = run_engine(lambda _: plan_teardown(settings.config(), source.name, end_drain=config.end_drain))
            metadata = md.optional(
                slot=plan.slot, wal_retained_bytes=plan.retained_bytes, read_by_process=plan.active_pid
            )
            names = {"publications": plan.publications, "not_owned": plan.not_owned, "kept": plan.kept}
            publications = {name: ", ".join(listed) for name, listed in names.items()}
            not_done(context, source.name, plan.would, publications | metadata)
            return
        report = to_run_page(context)
        done = run_engine(lambda _: teardown(settings.config(), source.name, report, end_drain=config.end_drain))
        metadata = md.optional(slot=done.slot, wal_released_bytes=done.released_bytes)
        publications = {"publications": ", ".join(done.publications), "kept": ", ".join(done.kept)}
        show(context, {"changed": True, **metadata, **publications})

    return torn_down


class PauseRun(Confirmed):
    """The tables to pause, and the confirmation: until they are resumed, what is done to them does not reach the lake."""

    tables: list[str] = Field(description="tables to take out of the publication: `schema.table`")


class ResumeRun(dg.Config):
    """The tables to resume."""

    tables: list[str] = Field(
        default=[], description="paused tables to publish and copy again: `schema.table`; without any, all of them"
    )


def _pause_job(source: SourceConfig) -> dg.JobDefinition:
    @source_job(
        source,
        SourceJob.PAUSE,
        f"Takes tables of {source.name} out of the publication until they are resumed: the server sends none of them, "
        f"and the lake keeps them as they are. Without `confirm: {source.name}` it shows what it would do.",
    )
    def paused(context: dg.OpExecutionContext, config: PauseRun, settings: Settings) -> None:
        from lakeproof.commands.publish import pause, plan_pause

        tables, confirmed = chosen_tables(source, config.tables, "pause"), is_confirmed(config, source.name)
        plan = run_engine(lambda _stop: plan_pause(settings.config(), source.name, tables))
        rows = [
            {
                "table": str(table),
                "publications": ", ".join(entry.publication for entry in state.entries),
                "paused since": state.since if confirmed else "",
            }
            for table, state in plan.items()
        ]
        if not confirmed:
            not_done(context, source.name, f"take {', '.join(map(str, tables))} out of the publication", {}, rows)
            return
        report = to_run_page(context)
        done = run_engine(lambda _stop: pause(settings.config(), source.name, tables, report))
        show(context, {"changed": True, "statements": "; ".join(done.statements)}, rows)

    return paused


def _resume_job(source: SourceConfig) -> dg.JobDefinition:
    # It undoes a pause, and asks for no confirmation.
    @source_job(
        source,
        SourceJob.RESUME,
        f"Publishes paused tables of {source.name} as they were, and copies them again.",
    )
    def resumed(context: dg.OpExecutionContext, config: ResumeRun, settings: Settings) -> None:
        from lakeproof.commands.publish import resume

        tables = chosen_tables(source, config.tables, "resume") if config.tables else None
        report = to_run_page(context)
        done = run_engine(lambda stop: resume(settings.config(), source.name, tables, report, stop))
        rows = copied(context, source, done, "resumed after a pause")
        show(context, {"changed": True, **md.lsns(consistent_point=done.consistent_point)}, rows)

    return resumed
