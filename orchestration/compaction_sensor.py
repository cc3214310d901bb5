"""The sensor that keeps a continuous compaction running, for a source or a group.

Deciding does not belong here: `orchestration.policies.follow` does that.
"""

import json
import time
from collections.abc import Callable

import dagster as dg

from assets.current import CompactionRun, CompactionUnit
from jobs.names import SENSOR_TAG, bootstrap_job_name, compaction_job_name
from lakeproof.errors import LakeproofError
from orchestration.policies import follow as follow_policy
from orchestration.policies import run as run_policy
from orchestration.runs import fail_dead, recent_runs
from orchestration.start import Start
from resources import Settings

_ON = Start()

# A round hour bounds a run's log and the age of its JVM, and brings new code and settings into use.
FOLLOW_MAX_S = 3600.0
# The daemon's loop takes 5 s; an interval of 5 would make it alternate between 5 and 10.
_INTERVAL_S = 4
_MAX_RUNTIME_S = int(FOLLOW_MAX_S * 1.5)


def compaction_sensor(
    unit: CompactionUnit, clock: Callable[[], float] = time.time, start: Start = _ON
) -> dg.SensorDefinition:
    """Return the sensor `<source or group>_compaction_sensor`."""
    job = compaction_job_name(unit.name)

    @dg.sensor(
        name=f"{job}_sensor",
        job_name=job,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=start.sensor,
        description=(
            f"Keeps one compaction of {unit.name} running, which brings changes into the lake within seconds after they "
            "have landed, and refreshes the views that read them. It looks at the lake's locks and at Dagster's runs."
        ),
    )
    def keep_compacting(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            states = [settings.follow_state(source.name) for source in unit.sources]
            locked = settings.has_live_process(job)
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be read: {error}")
        lake = follow_policy.Lake(
            has_landing=all(state.has_landing for state in states),
            is_followed=any(state.is_followed for state in states),
        )
        runs = recent_runs(context.instance, job, SENSOR_TAG)
        decision = follow_policy.decide(lake, runs, locked, clock(), FOLLOW_MAX_S)
        fail_dead(context.instance, decision.dead)
        for source in unit.sources:
            # Dead runs of its other jobs would fill Dagster's queue, and no schedule of theirs may run for a day.
            other = bootstrap_job_name(source.name)
            others = run_policy.JobRuns(recent_runs(context.instance, other), clock(), settings.has_live_process(other))
            fail_dead(context.instance, run_policy.other_runs(others).dead)
        # For people alone, beside the ticks: nothing is read back.
        cursor = json.dumps({"state": decision.reason})
        if not decision.start:
            return dg.SensorResult(skip_reason=decision.reason, cursor=cursor)
        context.log.info(decision.reason)
        return dg.SensorResult(run_requests=[_request(unit, job)], cursor=cursor)

    return keep_compacting


def _request(unit: CompactionUnit, job: str) -> dg.RunRequest:
    # No run key: a key would mean "never again", not "one at a time".
    config = CompactionRun(until="max_seconds", max_seconds=FOLLOW_MAX_S, report="changed")
    return dg.RunRequest(
        job_name=job,
        run_config=dg.RunConfig(ops={f"compact_{unit.name}": config}),
        # This sensor starts the successor of a failed run; Dagster's retry would be a second one.
        tags={SENSOR_TAG: "true", "dagster/max_runtime": str(_MAX_RUNTIME_S), "dagster/max_retries": "0"},
    )
