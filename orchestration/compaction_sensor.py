"""The sensor that keeps a continuous compaction running, for a source or a group.

Deciding does not belong here: `orchestration.policies.lasting` does that.
"""

import json
import time
from collections.abc import Callable

import dagster as dg

from assets.current import CompactionRun, CompactionUnit
from jobs.names import bootstrap_job_name, compaction_job_name
from lakeproof.errors import LakeproofError
from orchestration.lasting_runs import INTERVAL_S, LASTING_S, LastingJob
from orchestration.policies import lasting
from orchestration.policies import run as run_policy
from orchestration.runs import fail_dead, recent_runs
from orchestration.start import Start
from resources import Settings

_ON = Start()


def compaction_sensor(
    unit: CompactionUnit, clock: Callable[[], float] = time.time, start: Start = _ON
) -> dg.SensorDefinition:
    """Return the sensor `<source or group>_compaction_sensor`."""
    options = CompactionRun(until="max_seconds", max_seconds=LASTING_S, report="changed")
    job = LastingJob(lasting.COMPACTION, compaction_job_name(unit.name), f"compact_{unit.name}", options)

    @dg.sensor(
        name=f"{job.name}_sensor",
        job_name=job.name,
        minimum_interval_seconds=INTERVAL_S,
        default_status=start.sensor,
        description=(
            f"Keeps one compaction of {unit.name} running, which brings changes into the lake within seconds after they "
            "have landed, and refreshes the views that read them. It looks at the lake's locks and at Dagster's runs."
        ),
    )
    def keep_compacting(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        try:
            decision = job.look(context, settings, _place(settings, unit), clock())
        except LakeproofError as error:
            return dg.SensorResult(skip_reason=f"the lake can't be read: {error}")
        for source in unit.sources:
            # Dead runs of its other jobs would fill Dagster's queue, and no schedule of theirs may run for a day.
            other = bootstrap_job_name(source.name)
            others = run_policy.JobRuns(recent_runs(context.instance, other), clock(), settings.has_live_process(other))
            fail_dead(context.instance, run_policy.other_runs(others).dead)
        return dg.SensorResult(
            run_requests=job.requests(decision),
            skip_reason=None if decision.start else decision.reason,
            # For people alone, beside the ticks: nothing is read back.
            cursor=json.dumps({"state": decision.reason}),
        )

    return keep_compacting


def _place(settings: Settings, unit: CompactionUnit) -> lasting.Place | None:
    """Return the policy's view of the landings; None before all of them have begun."""
    states = [settings.follow_state(source.name) for source in unit.sources]
    if not all(state.has_landing for state in states):
        return None
    is_followed = any(state.is_followed for state in states)
    return lasting.Place("a process follows the landing" if is_followed else None)
