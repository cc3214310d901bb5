"""Dagster as its UI uses it: runs are launched into processes of their own, and what is shown is asked for over GraphQL.

What is asserted of it belongs to the tests. Dagster's own helpers for its tests, which have no public name, are used here
and nowhere else.
"""

from __future__ import annotations

import logging
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.test_utils import create_test_daemon_workspace_context, freeze_time
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster._daemon.freshness import FreshnessDaemon
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration
from dagster._daemon.sensor import execute_sensor_iteration
from dagster_graphql.test.utils import execute_dagster_graphql

_ROOT = Path(__file__).parents[3]
# A proof beside other tests has taken a quarter of an hour.
_TIMEOUT_S = 2400.0
_SERVER_S = 240.0
_ENDED = (dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
_LAUNCH = """\
mutation($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
  }
}
"""
_BACKFILL = """\
mutation($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
  }
}
"""
_SHOWN = """\
query($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) {
    ... on AssetNode {
      assetChecksOrError {
        ... on AssetChecks {
          checks { name executionForLatestMaterialization { status evaluation { severity description } } }
        }
      }
    }
  }
}
"""
_TERMINATE = "mutation($run: String!) { terminateRun(runId: $run) { __typename } }"
_REPOSITORIES = "{ repositoriesOrError { ... on RepositoryConnection { nodes { name location { name } } } } }"


@dataclass(frozen=True, slots=True)
class Dagster:
    """An instance with a code server, which starts a process for each run."""

    instance: dg.DagsterInstance
    workspace: WorkspaceProcessContext

    def ask(self, query: str, variables: Mapping[str, Any] | None = None) -> Any:
        """The data of a GraphQL answer."""
        answer = execute_dagster_graphql(self.workspace.create_request_context(), query, variables)
        assert not answer.errors, answer.errors
        return answer.data

    def launch(
        self,
        job: str,
        assets: Sequence[str] | None = None,
        timeout_s: float = _TIMEOUT_S,
        ops: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> dg.DagsterRun:
        """Launch a run of the job, or of some of its assets, and wait for its end."""
        return self.ended(self.start(job, assets, ops), timeout_s)

    def start(
        self,
        job: str,
        assets: Sequence[str] | None = None,
        ops: Mapping[str, Mapping[str, Any]] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Launch a run of the job, or of some of its assets, and return its id; `ops` is the launchpad's configuration."""
        (repository,) = self.ask(_REPOSITORIES)["repositoriesOrError"]["nodes"]
        selector = {
            "repositoryName": repository["name"],
            "repositoryLocationName": repository["location"]["name"],
            "jobName": job,
            "assetSelection": None if assets is None else [{"path": key.split("/")} for key in assets],
        }
        params: dict[str, Any] = {"selector": selector, "mode": "default"}
        if ops is not None:
            params["runConfigData"] = {"ops": {op: {"config": dict(config)} for op, config in ops.items()}}
        if tags is not None:
            params["executionMetadata"] = {"tags": [{"key": key, "value": value} for key, value in tags.items()]}
        launched = self.ask(_LAUNCH, {"params": params})["launchRun"]
        assert launched["__typename"] == "LaunchRunSuccess", launched
        return str(launched["run"]["runId"])

    def ended(self, run_id: str, timeout_s: float = _TIMEOUT_S) -> dg.DagsterRun:
        """Wait for the end of a run."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            run = self.instance.get_run_by_id(run_id)
            if run is not None and run.status in _ENDED:
                return run
            time.sleep(0.5)
        raise AssertionError(f"run {run_id} has not ended")

    def backfill(self, assets: Sequence[str], days: Sequence[str], timeout_s: float = 900) -> list[dg.DagsterRun]:
        """Launch a backfill as the UI does, do the daemon's part of it, and return its runs when they have ended."""
        params = {"assetSelection": [{"path": key.split("/")} for key in assets], "partitionNames": list(days)}
        launched = self.ask(_BACKFILL, {"params": params})["launchPartitionBackfill"]
        assert launched["__typename"] == "LaunchBackfillSuccess", launched
        backfill_id, deadline = launched["backfillId"], time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            list(execute_backfill_iteration(self.workspace, logging.getLogger("backfill")))
            backfill = self.instance.get_backfill(backfill_id)
            if backfill is not None and backfill.status.value.startswith(("COMPLETED", "FAILED")):
                return list(self.instance.get_runs(dg.RunsFilter(tags={"dagster/backfill": backfill_id})))
            time.sleep(1)
        raise AssertionError(f"backfill {backfill_id} has not ended")

    def terminate(self, run_id: str) -> str:
        """Terminate a run as the UI does, and return the answer's type."""
        return str(self.ask(_TERMINATE, {"run": run_id})["terminateRun"]["__typename"])

    def process_of(self, run_id: str) -> int:
        """The process of a run, as Dagster has noted it."""
        for entry in self.instance.all_logs(run_id, of_type=dg.DagsterEventType.ENGINE_EVENT):
            data = entry.dagster_event.engine_event_data if entry.dagster_event is not None else None
            if data is not None and "pid" in data.metadata:
                return int(str(data.metadata["pid"].value))
        raise AssertionError(f"run {run_id} has no process")

    def monitor(self) -> None:
        """Let Dagster's daemon look at the runs in progress, as it does if `run_monitoring` is on."""
        list(execute_run_monitoring_iteration(self.workspace, logging.getLogger("monitoring")))

    def look_at_sensors(self) -> None:
        """Let Dagster's daemon evaluate every sensor that is due, and start the runs that they ask for."""
        list(execute_sensor_iteration(self.workspace, logging.getLogger("sensors"), None, None))

    def look_at_ages(self, now_s: float) -> None:
        """Let Dagster's daemon compare the ages of assets with their policies, as if it were `now_s`."""
        self.workspace.refresh_workspace()
        with freeze_time(now_s):
            list(FreshnessDaemon().run_iteration(self.workspace))

    def shown(self, asset: str) -> dict[str, str]:
        """The colours of the checks on the asset's page: green, red, yellow, grey if it was not evaluated, or words."""
        actual = self.ask(_SHOWN, {"key": {"path": asset.split("/")}})["assetNodeOrError"]["assetChecksOrError"][
            "checks"
        ]
        return {check["name"]: _colour(check["executionForLatestMaterialization"]) for check in actual}


def _colour(execution: Mapping[str, Any] | None) -> str:
    if execution is None:
        return "grey"
    status = str(execution["status"])
    if status == "SUCCEEDED":
        return "green"
    if status == "FAILED":
        return "red" if execution["evaluation"]["severity"] == "ERROR" else "yellow"
    return status


def _wait_for_servers(registry: Any) -> None:
    """Wait for the code server's end: else its process is collected while it still runs, at some later test."""
    deadline = time.monotonic() + _SERVER_S
    while True:
        try:
            # It waits 30 s; a server whose run was ended has taken longer on a busy machine.
            registry.wait_for_processes()
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise
        else:
            return


@contextmanager
def dagster(folder: Path, config: Path) -> Iterator[Dagster]:
    """Dagster on a configuration file, without daemon: nothing runs that is not launched."""
    at_once = {"run_coordinator": {"module": "dagster._core.run_coordinator", "class": "DefaultRunCoordinator"}}
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPROOF_CONFIG", str(config))
        patch.setenv("PYTHONPATH", str(_ROOT))
        patch.setenv("DAGSTER_DISABLE_TELEMETRY", "1")
        with (
            ExitStack() as stack,
            dg.DagsterInstance.local_temp(str(folder), overrides=at_once) as instance,
            create_test_daemon_workspace_context(
                WorkspaceFileTarget([str(_ROOT / "workspace.yaml")]), instance
            ) as workspace,
        ):
            # After a test that failed, too: else another one fails for the servers that it left.
            stack.callback(_wait_for_servers, workspace._grpc_server_registry)
            yield Dagster(instance, workspace)
