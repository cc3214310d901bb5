"""The problems that Dagster and the lake know of now: failed runs, failed checks, held tables, assets that are too old.

Deciding who is notified does not belong here (`policies.alert`). A problem keeps its key as long as it lasts.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import dagster as dg
from dagster import DagsterInstance, DagsterRunStatus, RunsFilter

from assets.checks.whole import CHECK as WHOLE
from assets.support.keys import Layer
from lakeproof.config.section.alerts import AlertsConfig
from orchestration.policies.alert import Problem, Severity
from resources import Settings

# A run that has worked for this long has got over what its predecessor failed of.
_HEALTHY_S = 60.0
# Runs that ended since the last look.
_RUNS_MAX = 200
# Executions of a check among which the newest evaluation is looked for.
_CHECKS_MAX = 10
_KINDS = {Layer.SLOTS.value: "slot", Layer.PROOF.value: "proof", Layer.EXPECTATIONS.value: "expectation"}
_ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE]
_RETRIED = "dagster/will_retry"


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """The newest failed run of each job that has not got over it: job → (run, text); `looked` is the time of the look."""

    runs: Mapping[str, tuple[str, str]]
    looked: float

    def problems(self) -> Iterator[Problem]:
        """Yield one problem for each job."""
        for job, (run_id, text) in self.runs.items():
            yield Problem(f"run/{job}", "run", "error", f"{job} failed", text, f"/runs/{run_id}")


def failed_runs(
    instance: DagsterInstance, jobs: Collection[str], before: FailedRuns, now: float | None = None
) -> FailedRuns:
    """Return the failed runs of these jobs, from those of the look before and the runs that have ended since."""
    now = time.time() if now is None else now
    since = datetime.fromtimestamp(before.looked - 1.0, timezone.utc)
    runs = {job: failed for job, failed in before.runs.items() if job in jobs}
    records = instance.get_run_records(
        RunsFilter(statuses=_ENDED, updated_after=since), limit=_RUNS_MAX, ascending=True
    )
    for record in records:
        run = record.dagster_run
        if run.job_name not in jobs or run.tags.get(_RETRIED) == "true":
            continue
        if run.status is DagsterRunStatus.SUCCESS:
            runs.pop(run.job_name, None)
        else:
            runs[run.job_name] = run.run_id, _reason(instance, run.run_id)
    return FailedRuns({job: failed for job, failed in runs.items() if not _is_over(instance, job, failed[0], now)}, now)


def _is_over(instance: DagsterInstance, job: str, failed: str, now: float) -> bool:
    """True if a later run of the job works; one that goes on for an hour succeeds only then."""
    newest = instance.get_run_records(RunsFilter(job_name=job), limit=1)
    if not newest or newest[0].dagster_run.run_id == failed or newest[0].start_time is None:
        return False
    is_working = newest[0].dagster_run.status is DagsterRunStatus.STARTED
    return is_working and now - newest[0].start_time >= _HEALTHY_S


def _reason(instance: DagsterInstance, run_id: str) -> str:
    """Return the engine's own words, if a step failed with them; other exceptions may quote a row's values."""
    for entry in instance.all_logs(run_id, of_type=dg.DagsterEventType.STEP_FAILURE):
        failure = entry.dagster_event.step_failure_data if entry.dagster_event is not None else None
        if failure is not None and failure.user_failure_data is not None:
            return failure.user_failure_data.description or ""
    return ""


def failed_checks(instance: DagsterInstance, checks: Iterable[dg.AssetCheckKey]) -> Iterator[Problem]:
    """Yield the checks whose newest evaluation did not pass."""
    # The instance's own method asks for one check at a time.
    newest = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    for check, record in newest.items():
        evaluation = newest_evaluation(instance, check, record)
        if evaluation is None or evaluation.passed:
            continue
        severity: Severity = "error" if evaluation.severity is dg.AssetCheckSeverity.ERROR else "warn"
        asset = check.asset_key.to_user_string()
        yield Problem(
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
    """Return a check's newest evaluation, if it was ever evaluated; `record` is its newest execution."""
    return _evaluation(record) or _evaluation_before(instance, check)


def _evaluation(record: Any) -> dg.AssetCheckEvaluation | None:
    """Return the evaluation of an execution; None while it runs, or if it came to none."""
    # The class of such a record has no public name.
    event = None if record.event is None else record.event.dagster_event
    data = None if event is None else event.event_specific_data
    return data if isinstance(data, dg.AssetCheckEvaluation) else None


def _evaluation_before(instance: DagsterInstance, check: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """Return the newest evaluation behind executions without one: a proof that runs says nothing yet."""
    records = instance.event_log_storage.get_asset_check_execution_history(check, limit=_CHECKS_MAX)
    return next((evaluation for record in records if (evaluation := _evaluation(record)) is not None), None)


def stale_assets(instance: DagsterInstance, assets: Sequence[dg.AssetKey]) -> Iterator[Problem]:
    """Yield the assets whose newest event is older than their freshness policy allows."""
    for asset, record in instance.get_freshness_state_records(assets).items():
        state = record.freshness_state.value
        if state in {"FAIL", "WARN"}:
            name = asset.to_user_string()
            severity: Severity = "error" if state == "FAIL" else "warn"
            yield Problem(f"age/{name}", "freshness", severity, f"{name} is too old", "", _page(asset, "overview"))


def held_tables(settings: Settings, sources: Iterable[str]) -> Iterator[Problem]:
    """Yield the tables that stand still in the lake, with reason and remedy."""
    for source in sources:
        for table, held in settings.held_tables(source).items():
            text = f"{held.reason}; {held.remedy}"
            yield Problem(f"held/{source}/{table}", "held", "error", f"{source}: {table} is held", text)


def _page(asset: dg.AssetKey, view: str) -> str:
    return "/assets/" + "/".join(quote(part, safe="") for part in asset.path) + f"?view={view}"


def chosen(problems: Iterable[Problem], alerts: AlertsConfig) -> list[Problem]:
    """Return the problems that the configuration has reported."""
    return [p for p in problems if p.kind in alerts.on and (alerts.least == "warn" or p.severity == "error")]
