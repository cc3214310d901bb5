"""Commands as runs of a task on Databricks: the task is the user's, its parameters are the command's words.

What all platforms have in common does not belong here (`polling`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lakeproof.config.compute import DatabricksConfig
from lakeproof.errors import ConfigError, TransientError
from resources.compute.launchers import Ending, Job
from resources.compute.polling import GoneError, PlatformJob, imported, killed, not_started, patiently, shown

_THING = "compute.databricks"
_TASK = "lakeproof"
_KINDS = ("spark_python_task", "python_wheel_task")
_ENDED = {"TERMINATED", "INTERNAL_ERROR", "SKIPPED"}
_CANCELLED = {"CANCELED", "UPSTREAM_CANCELED", "TIMEDOUT"}
_LINES = 5


@dataclass(frozen=True, slots=True)
class DatabricksLauncher:
    """Submits a run for each command; credentials come from the environment, a profile or the machine's identity."""

    config: DatabricksConfig

    def start(self, words: Sequence[str]) -> Job:
        """As the protocol; raises TransientError if Databricks does not answer."""
        task = task_with(Path(self.config.task), words)
        sdk = imported("databricks.sdk", "databricks")
        jobs = imported("databricks.sdk.service.jobs", "databricks")
        core = imported("databricks.sdk.core", "databricks")
        try:
            # The client's own retries would keep the run from asking its command to stop for five minutes.
            settings = core.Config(profile=self.config.profile, http_timeout_seconds=30, retry_timeout_seconds=10)
            workspace = sdk.WorkspaceClient(config=settings)
        except ValueError as error:
            remedy = "set DATABRICKS_HOST and credentials, or compute.databricks.profile"
            raise ConfigError(_THING, shown(error), remedy) from None
        request: dict[str, Any] = {
            "run_name": "lakeproof",
            "tasks": [jobs.SubmitTask.from_dict(task)],
            # Makes a repeated request the same run.
            "idempotency_token": secrets.token_hex(16),
        }
        run = _Run(workspace, int(patiently(lambda: _call(workspace.jobs.submit, is_there=False, **request)).run_id))
        return PlatformJob(f"run {run.number}", run.ending, run.cancel, page=run.page())


@dataclass(slots=True)
class _Run:
    workspace: Any
    number: int
    has_run: bool = False

    def page(self) -> str:
        """Return the URL of the run's page; nothing if Databricks does not say it now."""
        try:
            return _call(self.workspace.jobs.get_run, self.number).run_page_url or ""
        except (ConfigError, TransientError):
            return ""

    def ending(self) -> Ending | None:
        run = _call(self.workspace.jobs.get_run, self.number, is_there=True)
        state = run.state
        life = None if state is None or state.life_cycle_state is None else state.life_cycle_state.value
        self.has_run = self.has_run or life == "RUNNING"
        if life not in _ENDED:
            return None
        result = state.result_state.value if state.result_state else life
        if result == "SUCCESS":
            return Ending("ended as SUCCESS")
        details = None if run.status is None else run.status.termination_details
        code = None if details is None or details.code is None else details.code.value
        message = shown((None if details is None else details.message) or state.state_message or "")
        why = ": ".join(part for part in (code or result, message) if part)
        if result in _CANCELLED:
            return killed(why)
        if result == "FAILED" and code in (None, "RUN_EXECUTION_ERROR"):
            return Ending("failed", self._output(run), why)
        return killed(why) if self.has_run else not_started(why)

    def cancel(self) -> None:
        _call(self.workspace.jobs.cancel_run, self.number)

    def _output(self, run: Any) -> tuple[str, ...]:
        """Return why the task has failed, and the last lines that it has written."""
        lines: list[str] = []
        for task in run.tasks or []:
            try:
                output = _call(self.workspace.jobs.get_run_output, task.run_id)
            except (ConfigError, TransientError):
                continue
            lines += [shown(output.error)] if output.error else []
            lines += [shown(line) for line in (output.logs or "").splitlines() if line.strip()][-_LINES:]
        return tuple(lines)


def task_with(file: Path, words: Sequence[str]) -> dict[str, Any]:
    """Return the task in `file` with `words` as its parameters; raises ConfigError if there is none."""
    try:
        task = dict(yaml.safe_load(file.read_text(encoding="utf-8")))
        (kind,) = (name for name in _KINDS if task.get(name))
        task[kind] = {**task[kind], "parameters": list(words)}
    except OSError as error:
        raise ConfigError(f"{_THING}.task", f"{file} can't be read ({error.strerror})", "name a task's file") from None
    except (yaml.YAMLError, ValueError, TypeError):
        remedy = f"give it one of {', '.join(_KINDS)}, and a cluster"
        raise ConfigError(f"{_THING}.task", f"{file} is no task that takes parameters", remedy) from None
    return {**task, "task_key": _TASK}


def _call(operation: Any, *arguments: Any, is_there: bool = False, **options: Any) -> Any:
    """Call the API; `is_there`: it is about a run that was there, and may be gone."""
    errors = imported("databricks.sdk.errors", "databricks")
    try:
        return operation(*arguments, **options)
    except (
        errors.InternalError,
        errors.TemporarilyUnavailable,
        errors.TooManyRequests,
        errors.DeadlineExceeded,
    ) as error:
        raise TransientError(_THING, shown(error), "try again") from None
    except errors.DatabricksError as error:
        # An unknown run is no missing resource there, but a wrong parameter.
        if is_there and isinstance(error, errors.NotFound | errors.InvalidParameterValue):
            raise GoneError(_THING, shown(error), "see the workspace") from None
        remedy = "see the task's file, and what Dagster's account may do"
        raise ConfigError(_THING, f"{shown(error)} ({error.error_code})", remedy) from None
    except (OSError, TimeoutError) as error:
        raise TransientError(_THING, f"Databricks does not answer ({shown(error)})", "try again") from None
