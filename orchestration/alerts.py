"""The sensor that notifies people of problems, and of their end: one for the whole location, if `alerts` names a way.

It looks at what Dagster and the lake know: failed runs and checks, held tables, assets that are too old. A problem keeps its
key as long as it lasts. `policies.alert` chooses the messages, `resources.messages` sends them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from assets.slots import WHOLE
from assets.support.keys import Layer
from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from orchestration.policies import alert as alert_policy
from orchestration.policies.alert import AlertMemory, AlertState
from orchestration.policies.lasting import HEALTHY_S
from resources import Settings
from resources.messages import Alert, AlertSeverity, notifiers

ALERTS = "alert_sensor"
_INTERVAL_S = 28
# A cursor is a text in Dagster's database: of more problems, these are reported.
_PROBLEMS_MAX = 500
# Requests of one tick by each way: a tick ends within 60 s, also if nobody answers.
_REQUESTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Watched:
    """The names of what the sensor looks at in Dagster."""

    jobs: frozenset[str]
    checks: tuple[dg.AssetCheckKey, ...]
    assets: tuple[dg.AssetKey, ...]
    sources: tuple[str, ...]


def watched_by_alerts(config: Config, jobs: Sequence[str], assets: Sequence[dg.AssetsDefinition]) -> Watched:
    """Return what belongs to the location of a configuration."""
    return Watched(
        frozenset(jobs),
        tuple(check for asset in assets for check in asset.check_keys),
        tuple(spec.key for asset in assets for spec in asset.specs if spec.freshness_policy is not None),
        tuple(source.name for source in config.sources.values() if source.tables),
    )


def alert_sensor(
    config: Config, names: Watched, clock: Callable[[], float] = time.time, start: str = "RUNNING", name: str = ALERTS
) -> list[dg.SensorDefinition]:
    """Return the sensor, none if nobody is to be notified."""
    if not config.alerts.is_on:
        return []

    @dg.sensor(
        name=name,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=dg.DefaultSensorStatus(start),
        description=(
            "Notifies people, by the ways that `alerts` names, of failed runs, held tables, slots, proofs, expectations and "
            "assets that are too old: once, again while it lasts, and when it is over."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        alerts, now = settings.config().alerts, clock()
        state = AlertState.from_cursor(context.cursor, now)
        runs = _failed_runs(context.instance, names.jobs, state, now)
        every = [
            *(
                Alert(f"run/{job}", "run", "error", f"{job} failed", text, f"/runs/{run}")
                for job, (run, text) in runs.items()
            ),
            *failed_checks(context.instance, names.checks),
            *stale_assets(context.instance, names.assets),
            *_held_tables(settings, names.sources, context.log),
        ]
        chosen = [p for p in every if p.kind in alerts.on and (alerts.least == "warn" or p.severity == "error")]
        problems = sorted(chosen, key=lambda problem: (problem.severity, problem.key))
        memories = {}
        for way in notifiers(alerts):
            memory = alert_policy.look(state.ways.get(way.name, AlertMemory()), problems, now)
            messages = alert_policy.due_messages(memory, problems[:_PROBLEMS_MAX], now, alerts.repeat_s)
            parts = [messages[first : first + way.takes] for first in range(0, len(messages), way.takes)]
            for part in parts[: max(0, min(alerts.per_hour - len(memory.sent), _REQUESTS_MAX))]:
                try:
                    way.send(part)
                except LakeproofError as error:
                    # They are due again at the next tick.
                    context.log.warning("%d messages were not sent: %s", len(part), error)
                    break
                memory = alert_policy.sent(memory, part, now)
            memories[way.name] = memory
        reason = f"{len(problems)} known problems" if problems else "nothing is wrong"
        return dg.SensorResult(skip_reason=reason, cursor=AlertState(memories, runs, now).cursor())

    return [sensor]


# Runs that are read at a time, of those that ended since the last look: a daemon may have been away for a night.
_PAGE = 200
# Executions of a check among which the newest evaluation is looked for.
_CHECKS_MAX = 10
_KINDS = {Layer.SLOTS.value: "slot", Layer.PROOF.value: "proof", Layer.EXPECTATIONS.value: "expectation"}
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
_RETRIED = "dagster/will_retry"


def _failed_runs(
    instance: DagsterInstance, jobs: Collection[str], state: AlertState, now: float
) -> dict[str, tuple[str, str]]:
    """Return the failed runs of these jobs, from those of the look before and the runs that have ended since."""
    since = datetime.fromtimestamp(state.looked - 1.0, timezone.utc)
    ended, last = RunsFilter(statuses=_ENDED, updated_after=since), None
    newest: dict[str, dg.DagsterRun] = {}
    while page := instance.get_run_records(ended, limit=_PAGE, cursor=last, ascending=True):
        runs = [record.dagster_run for record in page]
        newest |= {run.job_name: run for run in runs if run.job_name in jobs and run.tags.get(_RETRIED) != "true"}
        last = runs[-1].run_id
    failed = {job: before for job, before in state.runs.items() if job in jobs and job not in newest}
    failures = {job: run.run_id for job, run in newest.items() if run.status is DagsterRunStatus.FAILURE}
    failed |= {job: (run_id, _reason(instance, run_id)) for job, run_id in failures.items()}
    return {job: of for job, of in failed.items() if not _is_over(instance, job, of[0], now)}


def _is_over(instance: DagsterInstance, job: str, failed: str, now: float) -> bool:
    """True if a later run of the job works; one that goes on for an hour succeeds only then."""
    newest = instance.get_run_records(RunsFilter(job_name=job), limit=1)
    if not newest or newest[0].dagster_run.run_id == failed or newest[0].start_time is None:
        return False
    is_working = newest[0].dagster_run.status is DagsterRunStatus.STARTED
    return is_working and now - newest[0].start_time >= HEALTHY_S


def _reason(instance: DagsterInstance, run_id: str) -> str:
    """Return the engine's own words, if a step failed with them; other exceptions may quote a row's values."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        failure = entry.dagster_event.step_failure_data if entry.dagster_event is not None else None
        if failure is not None and failure.user_failure_data is not None:
            return failure.user_failure_data.description or ""
    return ""


def failed_checks(instance: DagsterInstance, checks: Iterable[dg.AssetCheckKey]) -> Iterator[Alert]:
    """Yield the checks whose newest evaluation did not pass."""
    # The instance's own method asks for one check at a time.
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    for check, record in newest.items():
        evaluation = newest_evaluation(instance, check, record)
        if evaluation is None or evaluation.passed:
            continue
        severity: AlertSeverity = "error" if evaluation.severity is dg.AssetCheckSeverity.ERROR else "warn"
        asset = check.asset_key.to_user_string()
        yield Alert(
            f"check/{asset}/{check.name}",
            "lacking" if check.name == WHOLE else _KINDS.get(check.asset_key.path[0], "expectation"),
            severity,
            f"{asset}: {check.name}",
            evaluation.description or "",
            _page(check.asset_key, "checks"),
        )


def newest_evaluation(
    instance: DagsterInstance, check: dg.AssetCheckKey, record: Any
) -> dg.AssetCheckEvaluation | None:
    """Return a check's newest evaluation, if it was ever evaluated; `record` is its newest execution.

    A proof that runs says nothing yet: then it is that of an execution before.
    """
    newest = _evaluation(record)
    if newest is None:
        before = instance.event_log_storage.get_asset_check_execution_history(check, limit=_CHECKS_MAX)
        newest = next((evaluation for each in before if (evaluation := _evaluation(each)) is not None), None)
    return newest


def _evaluation(record: Any) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation of an execution, whose class has no public name; None while it runs, or if it came to none."""
    event = None if record.event is None else record.event.dagster_event
    data = None if event is None else event.event_specific_data
    return data if isinstance(data, dg.AssetCheckEvaluation) else None


def stale_assets(instance: DagsterInstance, assets: Sequence[dg.AssetKey]) -> Iterator[Alert]:
    """Yield the assets whose newest event is older than their freshness policy allows."""
    for asset, record in instance.get_freshness_state_records(assets).items():
        state = record.freshness_state.value
        if state in {"FAIL", "WARN"}:
            name = asset.to_user_string()
            severity: AlertSeverity = "error" if state == "FAIL" else "warn"
            yield Alert(f"age/{name}", "freshness", severity, f"{name} is too old", "", _page(asset, "overview"))


def _held_tables(settings: Settings, sources: Iterable[str], log: logging.Logger) -> Iterator[Alert]:
    """Yield the tables that stand still in the lake, with reason and remedy."""
    for source in sources:
        try:
            every = settings.held_tables(source)
        except (LakeproofError, OSError) as error:
            log.warning("the lake of %s can't be read: %s", source, error)
            continue
        for table, held in every.items():
            text = f"{held.reason}; {held.remedy}"
            yield Alert(f"held/{source}/{table}", "held", "error", f"{source}: {table} is held", text)


def _page(asset: dg.AssetKey, view: str) -> str:
    return "/assets/" + "/".join(quote(part, safe="") for part in asset.path) + f"?view={view}"
