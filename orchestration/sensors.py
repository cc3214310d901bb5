"""The sensors: those that keep one run going, of a drain and of a continuous compaction, and one that copies held tables.

They observe and act. Decisions do not belong here: `orchestration.policies` has them.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import dagster as dg

from assets.bootstrap import SnapshotOptions
from assets.changes import DrainRun
from assets.checks.proof import evaluation
from assets.current import CompactionRun, CompactionUnit
from assets.slots import slot_check_result
from assets.support.keys import Layer, table_key
from jobs.names import SENSOR_TAG, SourceJob
from lakeproof.config.model import SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.state.due_copies import recopy
from lakeproof.state.slot import SlotStatus
from orchestration.outside_proofs import OutsideProofs
from orchestration.policies import copy as copy_policy
from orchestration.policies import lasting, slot_check
from orchestration.runs import fail_dead, run_in_the_way, runs_of
from resources import Settings

_HELD_INTERVAL_S = 30
# A round hour bounds a run's log and the age of its JVM, and brings new code and settings into use.
LASTING_S = 3600.0
# A tick costs Dagster 0.2 s of CPU whatever it finds. The daemon's loop takes 5 s: 15 would alternate between 15 and 20.
INTERVAL_S = 14
# If run monitoring is on, Dagster ends a run that outlives this: long after the run's own limit.
_MAX_RUNTIME_S = int(LASTING_S * 1.5)


@dataclass(frozen=True, slots=True)
class LastingJob:
    """A job of which one run lasts: its kind, and the op and options of such a run."""

    kind: lasting.LastingKind
    name: str
    op: str
    options: dg.Config

    def look(
        self, context: dg.SensorEvaluationContext, settings: Settings, place: lasting.Workplace | None, now: float
    ) -> lasting.Decision:
        """Return what to do, with its dead runs failed; raises the errors of `lakeproof.errors`."""
        job = runs_of(context.instance, settings, self.name, now, SENSOR_TAG)
        decision = lasting.decide_run(self.kind, place, job, LASTING_S)
        fail_dead(context.instance, decision.dead)
        if decision.start:
            context.log.info(decision.reason)
        return decision

    def requests(self, decision: lasting.Decision) -> list[dg.RunRequest]:
        """Return the run to start, if any."""
        if not decision.start:
            return []
        # No run key: a key would mean "never again", not "one at a time".
        request = dg.RunRequest(
            job_name=self.name,
            run_config=dg.RunConfig(ops={self.op: self.options}),
            # The sensor starts the successor of a failed run; Dagster's retry would be a second one.
            tags={SENSOR_TAG: "true", "dagster/max_runtime": str(_MAX_RUNTIME_S), "dagster/max_retries": "0"},
        )
        return [request]


def slot_drain_sensor(
    source: SourceConfig, proofs: OutsideProofs, clock: Callable[[], float] = time.time, start: str = "RUNNING"
) -> dg.SensorDefinition:
    """Return the sensor `<source>_slot_drain_sensor`; `proofs` are the source's."""
    # It ends by its own time, and its successor begins a little earlier.
    options = DrainRun(until="max_seconds", max_seconds=LASTING_S)
    job = LastingJob(lasting.DRAIN, SourceJob.DRAIN.of(source.name), f"drain_{source.name}", options)

    @dg.sensor(
        name=f"{source.name}_slot_drain_sensor",
        job_name=job.name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus(start),
        description=(
            f"Keeps one drain of slot {source.slot} running. It asks the server about the slot, the lake's locks about "
            "processes, and then reads Dagster's runs, so it also recovers from runs that died without a word. It "
            "reports the slot's check at its first look, when the result changes, and when the server has been unreachable "
            "for a minute; and it reports proofs that were made outside of Dagster."
        ),
    )
    def slot_drain_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        now, before = clock(), slot_check.SlotCursor.from_text(context.cursor)
        proved, newest = proofs.unreported(context.instance, settings, before.proof)
        decision = None
        try:
            slot = settings.slot_status(source.name)
        except LakeproofError as error:
            level, reason = slot_check.UNREACHABLE, f"the slot can't be read: {error}"
            health = slot_check_result(source, str(error))
        else:
            health = slot_check_result(source, slot)
            seen = slot_check.OK if health.passed else health.severity.value
            level = seen if slot.has_landing else before.check.level
            decision = job.look(context, settings, _place(source, slot), now)
            reason = decision.reason
        is_due, check = slot_check.decide_report(before.check, level, now)
        return dg.SensorResult(
            run_requests=[] if decision is None else job.requests(decision),
            skip_reason=None if decision is not None and decision.start else reason,
            cursor=slot_check.SlotCursor(level if decision is None else reason, check, newest).text(),
            asset_events=[*proved, *([evaluation(health)] if is_due else [])],
        )

    return slot_drain_sensor


def _place(source: SourceConfig, status: SlotStatus) -> lasting.Workplace | None:
    """Return the policy's view of the slot; None before the first landing. A slot that has disappeared has a gap."""
    if not status.has_landing:
        return None
    reader = None
    if status.state is not None and status.state.active:
        reader = f"slot {source.slot} is read by process {status.state.active_pid or 0}"
    return lasting.Workplace(reader, None if status.gap is None else str(status.gap))


def compaction_sensor(
    unit: CompactionUnit, clock: Callable[[], float] = time.time, start: str = "RUNNING"
) -> dg.SensorDefinition:
    """Return the sensor `<source or group>_compaction_sensor`."""
    options = CompactionRun(until="max_seconds", max_seconds=LASTING_S, report="changed")
    job = LastingJob(lasting.COMPACTION, SourceJob.COMPACTION.of(unit.name), f"compact_{unit.name}", options)

    @dg.sensor(
        name=f"{job.name}_sensor",
        job_name=job.name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=dg.DefaultSensorStatus(start),
        description=(
            f"Keeps one compaction of {unit.name} running, which brings changes into the lake within seconds after they "
            "have landed, and refreshes the views that read them. It looks at the lake's locks and at Dagster's runs."
        ),
    )
    def keep_compacting(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            decision = job.look(context, settings, _landings(settings, unit), clock())
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be read: {error}")
        for source in unit.sources:
            # Dead runs of its other jobs would fill Dagster's queue, and no schedule of theirs may run for a day.
            other = SourceJob.BOOTSTRAP.of(source.name)
            run_in_the_way(context.instance, runs_of(context.instance, settings, other, clock()))
        return dg.SensorResult(
            run_requests=job.requests(decision),
            skip_reason=None if decision.start else decision.reason,
            # For people alone, beside the ticks: nothing is read back.
            cursor=json.dumps({"state": decision.reason}),
        )

    return keep_compacting


def _landings(settings: Settings, unit: CompactionUnit) -> lasting.Workplace | None:
    """Return the policy's view of the landings; None before all of them have begun."""
    states = [settings.follow_state(source.name) for source in unit.sources]
    if not all(state.has_landing for state in states):
        return None
    is_followed = any(state.is_followed for state in states)
    return lasting.Workplace("a process follows the landing" if is_followed else None)


def held_sensor(source: SourceConfig, start: str = "RUNNING") -> dg.SensorDefinition:
    """Return the sensor `<source>_held_sensor`."""
    job = SourceJob.BOOTSTRAP.of(source.name)

    @dg.sensor(
        name=f"{source.name}_held_sensor",
        job_name=job,
        minimum_interval_seconds=_HELD_INTERVAL_S,
        default_status=dg.DefaultSensorStatus(start),
        description=(
            f"Copies the tables of {source.name} that are held until they have a new snapshot, and tables new in the "
            "publication. It reads the lake only. Repeated copies that do not help are spaced further and further apart."
        ),
    )
    def held_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            due = recopy(settings.config(), source.name, datetime.now(timezone.utc))
            snapshot = settings.lake_status(source.name).sources[source.name].snapshot
            runs = runs_of(context.instance, settings, job, time.time())
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be read: {error}")
        decision = copy_policy.decide_copy(
            due,
            source.tables,
            runs,
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
