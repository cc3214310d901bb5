"""The sensors: one per source keeps its drain running; where it is asked for, another copies held and new tables.

What is decided belongs to `keeper`, `slot_check` and `recopying`; here it is only seen and done.
"""

import time
from collections.abc import Callable

import dagster as dg

from assets.bootstrap import SnapshotRun
from assets.changes import DrainRun
from assets.slots import result, unseen
from assets.support.keys import Layer, table_key
from jobs.names import KEEPER_TAG, bootstrap_job_name, drain_job_name
from lakeproof.config.model import SourceConfig
from lakeproof.errors import LakeproofError
from orchestration.policies import copy as recopying
from orchestration.policies import drain as keeper
from orchestration.policies import slot_check
from orchestration.runs import fail_dead, recent_runs
from resources import Settings, SlotLook

# A round hour bounds a run's log and brings new code into use.
DRAIN_MAX_S = 3600.0
# The daemon's loop takes 5 s; an interval of 5 would make it alternate between 5 and 10.
_INTERVAL_S = 4
_HELD_INTERVAL_S = 30
# Dagster ends what outlives this, where run monitoring is on: far behind the drain's own limit.
_MAX_RUNTIME_S = int(DRAIN_MAX_S * 1.5)


def slot_drain_sensor(source: SourceConfig, clock: Callable[[], float] = time.time) -> dg.SensorDefinition:
    """`<source>_slot_drain_sensor`."""
    job = drain_job_name(source.name)

    @dg.sensor(
        name=f"{source.name}_slot_drain_sensor",
        job_name=job,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Keeps one drain of slot {source.slot} running: it looks at the slot on the server first and at Dagster's runs "
            "second, so it also recovers from runs that died without saying so. It tells the slot's check what has changed, "
            "also that the server can't be asked for a minute."
        ),
    )
    def slot_drain_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        now, told = clock(), slot_check.Told.from_cursor(context.cursor)
        try:
            look = settings.slot_look(source.name)
        except LakeproofError as error:
            events, told = _check(told, unseen(source, str(error)), slot_check.UNSEEN, now)
            # Forgotten on purpose: a drain that lives through an outage needs its time to connect again.
            return dg.SensorResult(
                skip_reason=f"the slot can't be looked at: {error}",
                cursor=keeper.Memory().to_cursor(check=told.to_json()),
                asset_events=events,
            )
        verdict = result(source, look)
        events, told = _check(told, verdict, _level(verdict) if look.begun else slot_check.OK, now)
        slot = _slot(source, look)
        runs = recent_runs(context.instance, job, KEEPER_TAG)
        memory = keeper.Memory.from_cursor(context.cursor)
        decision = keeper.decide(slot, runs, memory, now, DRAIN_MAX_S)
        fail_dead(context.instance, decision.dead, f"slot {source.slot} had no reader, so this run's process is gone")
        cursor = decision.memory.to_cursor(check=told.to_json())
        if not decision.start:
            return dg.SensorResult(skip_reason=decision.reason, cursor=cursor, asset_events=events)
        context.log.info(decision.reason)
        return dg.SensorResult(run_requests=[_request(source, job)], cursor=cursor, asset_events=events)

    return slot_drain_sensor


def _level(verdict: dg.AssetCheckResult) -> str:
    return slot_check.OK if verdict.passed else verdict.severity.value


def _check(
    told: slot_check.Told, verdict: dg.AssetCheckResult, level: str, now: float
) -> tuple[list[dg.AssetCheckEvaluation], slot_check.Told]:
    """The check's result as an event of the tick if it is to be told now, and what to remember."""
    is_due, told = slot_check.decide(told, level, now)
    if not is_due or verdict.asset_key is None or verdict.check_name is None:
        return [], told
    event = dg.AssetCheckEvaluation(
        asset_key=verdict.asset_key,
        check_name=verdict.check_name,
        passed=verdict.passed,
        metadata=verdict.metadata,
        severity=verdict.severity,
        description=verdict.description,
    )
    return [event], told


def _slot(source: SourceConfig, look: SlotLook) -> keeper.Slot | None:
    """None where nothing has begun; a slot that is gone from under a landing is one with a gap."""
    if not look.begun:
        return None
    holder = (look.state.active_pid or 0) if look.state is not None and look.state.active else None
    return keeper.Slot(source.slot, holder, look.gap)


def _request(source: SourceConfig, job: str) -> dg.RunRequest:
    # No run key: a key would mean "never again", not "one at a time".
    config = DrainRun(until="max_seconds", max_seconds=DRAIN_MAX_S)
    return dg.RunRequest(
        job_name=job,
        run_config=dg.RunConfig(ops={f"drain_{source.name}": config}),
        # The sensor itself starts the successor of a drain that failed; Dagster's retry would be a second one.
        tags={KEEPER_TAG: "true", "dagster/max_runtime": str(_MAX_RUNTIME_S), "dagster/max_retries": "0"},
    )


def held_sensor(source: SourceConfig, clock: Callable[[], float] = time.time) -> dg.SensorDefinition:
    """`<source>_held_sensor`."""
    job = bootstrap_job_name(source.name)

    @dg.sensor(
        name=f"{source.name}_held_sensor",
        job_name=job,
        minimum_interval_seconds=_HELD_INTERVAL_S,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            f"Copies the tables of {source.name} that are held until there is a new snapshot of them, and those that came "
            "into the publication. It looks into the lake alone; a copy that does not help is made again ever more seldom."
        ),
    )
    def held_sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            found = settings.to_copy(source.name)
            snapshot = settings.in_lake(source.name).sources[source.name].snapshot
            working = settings.is_working(job)
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be looked at: {error}")
        decision = recopying.decide(
            found,
            source.tables,
            recent_runs(context.instance, job),
            clock(),
            source.snapshot.held_pause_s,
            working=working,
            copying=snapshot is not None and bool(snapshot.running),
        )
        fail_dead(context.instance, decision.dead)
        if not decision.tables:
            return dg.SensorResult(skip_reason=decision.reason)
        context.log.info(decision.reason)
        request = dg.RunRequest(
            job_name=job,
            asset_selection=[table_key(Layer.SNAPSHOT, source.name, table) for table in decision.tables],
            run_config=dg.RunConfig(
                ops={f"snapshot_{source.name}": SnapshotRun(reason=f"by itself: {decision.reason}", again=True)}
            ),
        )
        return dg.SensorResult(run_requests=[request])

    return held_sensor
