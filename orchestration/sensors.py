"""The sensors: one per source keeps its drain running; if configured, a second one copies held and new tables.

They observe and act. Decisions do not belong here: `orchestration.policies` has them.
"""

import json
import time
from collections.abc import Callable

import dagster as dg

from assets.bootstrap import SnapshotOptions
from assets.changes import DrainRun
from assets.checks.proof import evaluation
from assets.slots import check_result, unreachable_result
from assets.support.keys import Layer, table_key
from jobs.names import bootstrap_job_name, drain_job_name
from lakeproof.config.model import SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.state.slot import SlotStatus
from orchestration.lasting_runs import INTERVAL_S, LASTING_S, LastingJob
from orchestration.outside_proofs import LastLook, OutsideProofs
from orchestration.policies import copy as copy_policy
from orchestration.policies import lasting, slot_check
from orchestration.policies.run import JobRuns
from orchestration.runs import fail_dead, recent_runs
from orchestration.start import Start
from resources import Settings

_ON = Start()

_HELD_INTERVAL_S = 30


def slot_drain_sensor(
    source: SourceConfig, proofs: OutsideProofs, clock: Callable[[], float] = time.time, start: Start = _ON
) -> dg.SensorDefinition:
    """Return the sensor `<source>_slot_drain_sensor`; `proofs` are the source's."""
    # It ends by its own time, and its successor begins a little earlier.
    options = DrainRun(until="max_seconds", max_seconds=LASTING_S)
    job = LastingJob(lasting.DRAIN, drain_job_name(source.name), f"drain_{source.name}", options)

    @dg.sensor(
        name=f"{source.name}_slot_drain_sensor",
        job_name=job.name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=start.sensor,
        description=(
            f"Keeps one drain of slot {source.slot} running. It asks the server about the slot, the lake's locks about "
            "processes, and then reads Dagster's runs, so it also recovers from runs that died without a word. It updates "
            "the slot's check when the result changes, and when the server has been unreachable for a minute; and it "
            "reports proofs that were made outside of Dagster."
        ),
    )
    def slot_drain_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        now, last = clock(), slot_check.LastReport.from_cursor(context.cursor)
        proved, look = proofs.unreported(context.instance, settings, LastLook.from_cursor(context.cursor), now)
        try:
            slot = settings.slot_status(source.name)
        except LakeproofError as error:
            events, last = _check(last, unreachable_result(source, str(error)), slot_check.UNREACHABLE, now)
            return dg.SensorResult(
                skip_reason=f"the slot can't be read: {error}",
                cursor=_cursor(slot_check.UNREACHABLE, last, look),
                asset_events=[*proved, *events],
            )
        health = check_result(source, slot)
        events, last = _check(last, health, _level(health) if slot.has_landing else slot_check.OK, now)
        decision = job.look(context, settings, _place(source, slot), now)
        return dg.SensorResult(
            run_requests=job.requests(decision),
            skip_reason=None if decision.start else decision.reason,
            cursor=_cursor(decision.reason, last, look),
            asset_events=[*proved, *events],
        )

    return slot_drain_sensor


def _cursor(state: str, last: slot_check.LastReport, look: LastLook) -> str:
    """Return the cursor; `state` is for people alone, beside the ticks."""
    return json.dumps({"state": state, "check": last.to_json(), "proofs": look.to_json()})


def _level(health: dg.AssetCheckResult) -> str:
    return slot_check.OK if health.passed else health.severity.value


def _check(
    last: slot_check.LastReport, health: dg.AssetCheckResult, level: str, now: float
) -> tuple[list[dg.AssetCheckEvaluation], slot_check.LastReport]:
    """Return the check's result as an event of this tick if it must be reported now, and the state to keep."""
    is_due, last = slot_check.decide(last, level, now)
    return [evaluation(health)] if is_due else [], last


def _place(source: SourceConfig, status: SlotStatus) -> lasting.Place | None:
    """Return the policy's view of the slot; None before the first landing. A slot that has disappeared has a gap."""
    if not status.has_landing:
        return None
    reader = None
    if status.state is not None and status.state.active:
        reader = f"slot {source.slot} is read by process {status.state.active_pid or 0}"
    return lasting.Place(reader, None if status.gap is None else str(status.gap))


def held_sensor(
    source: SourceConfig, clock: Callable[[], float] = time.time, start: Start = _ON
) -> dg.SensorDefinition:
    """Return the sensor `<source>_held_sensor`."""
    job = bootstrap_job_name(source.name)

    @dg.sensor(
        name=f"{source.name}_held_sensor",
        job_name=job,
        minimum_interval_seconds=_HELD_INTERVAL_S,
        default_status=start.sensor,
        description=(
            f"Copies the tables of {source.name} that are held until they have a new snapshot, and tables new in the "
            "publication. It reads the lake only. Repeated copies that do not help are spaced further and further apart."
        ),
    )
    def held_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            due = settings.due_copies(source.name)
            snapshot = settings.lake_status(source.name).sources[source.name].snapshot
            locked = settings.has_live_process(job)
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be read: {error}")
        decision = copy_policy.decide(
            due,
            source.tables,
            JobRuns(recent_runs(context.instance, job), clock(), locked),
            source.snapshot.held_pause_s,
            copying=snapshot is not None and bool(snapshot.running),
        )
        fail_dead(context.instance, decision.dead)
        # For people alone, beside the ticks: nothing is read back.
        cursor = json.dumps({"state": decision.reason})
        if not decision.tables:
            return dg.SensorResult(skip_reason=decision.reason, cursor=cursor)
        context.log.info(decision.reason)
        request = dg.RunRequest(
            job_name=job,
            asset_selection=[table_key(Layer.SNAPSHOT, source.name, table) for table in decision.tables],
            run_config=dg.RunConfig(
                ops={
                    f"snapshot_{source.name}": SnapshotOptions(reason=f"automatic: {decision.reason}", copy_again=True)
                }
            ),
        )
        return dg.SensorResult(run_requests=[request], cursor=cursor)

    return held_sensor
