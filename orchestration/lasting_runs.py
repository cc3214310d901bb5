"""Keeps one run of a job going, for the sensors of drains and of continuous compactions: what they share.

Deciding does not belong here (`orchestration.policies.lasting`), nor what is at the work's place: each sensor asks that.
"""

from __future__ import annotations

from dataclasses import dataclass

import dagster as dg

from jobs.names import SENSOR_TAG
from orchestration.policies import lasting
from orchestration.policies.run import JobRuns
from orchestration.runs import fail_dead, recent_runs
from resources import Settings

# A round hour bounds a run's log and the age of its JVM, and brings new code and settings into use.
LASTING_S = 3600.0
# The daemon's loop takes 5 s; an interval of 5 would make it alternate between 5 and 10.
INTERVAL_S = 4
# If run monitoring is on, Dagster ends a run that outlives this: long after the run's own limit.
_MAX_RUNTIME_S = int(LASTING_S * 1.5)


@dataclass(frozen=True, slots=True)
class LastingJob:
    """A job of which one run lasts: its kind, and the op and options of such a run."""

    kind: lasting.Kind
    name: str
    op: str
    options: dg.Config

    def look(
        self, context: dg.SensorEvaluationContext, settings: Settings, place: lasting.Place | None, now: float
    ) -> lasting.Decision:
        """Return what to do, with its dead runs failed; raises the errors of `lakeproof.errors`."""
        # The lock first: a run that ends in between has noted it by the time its record is read.
        locked = settings.has_live_process(self.name)
        job = JobRuns(recent_runs(context.instance, self.name, SENSOR_TAG), now, locked)
        decision = lasting.decide(self.kind, place, job, LASTING_S)
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
