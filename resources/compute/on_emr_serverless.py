"""Commands as job runs of EMR Serverless: `spark-submit` of lakeproof's `__main__.py` with the command's words.

What all platforms have in common does not belong here (`polling`).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lakeproof.config.compute import EmrServerlessConfig
from lakeproof.errors import ConfigError, TransientError
from resources.compute.launchers import Ending, Job
from resources.compute.polling import GoneError, PlatformJob, imported, killed, not_started, patiently, shown

_THING = "compute.emr_serverless"
_NOT_OURS = {"InternalServerException", "ThrottlingException", "TooManyRequestsException", "ServiceUnavailable"}


@dataclass(frozen=True, slots=True)
class EmrServerlessLauncher:
    """Starts a job run for each command; credentials come from AWS's usual places."""

    config: EmrServerlessConfig

    def start(self, words: Sequence[str]) -> Job:
        """As the protocol; raises TransientError if AWS does not answer."""
        boto3 = imported("boto3", "emr_serverless")
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        # A question that hangs would keep the run from asking its command to stop.
        settings = Config(connect_timeout=10, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 2})
        try:
            client = boto3.client("emr-serverless", region_name=self.config.region, config=settings)
        except BotoCoreError as error:
            raise ConfigError(_THING, shown(error), "set compute.emr_serverless.region, or AWS_REGION") from None
        application = self.config.application
        submit = {"entryPoint": self.config.entry_point, "entryPointArguments": list(words)}
        if self.config.submit:
            submit["sparkSubmitParameters"] = self.config.submit
        request = {
            "applicationId": application,
            # Makes a repeated request the same run.
            "clientToken": secrets.token_hex(16),
            "executionRoleArn": self.config.role,
            "jobDriver": {"sparkSubmit": submit},
            "name": "lakeproof",
        }
        started = patiently(lambda: _call(client.start_job_run, **request))
        run = _Run(client, application, started["jobRunId"])
        return PlatformJob(f"job run {run.number} of application {application}", run.ending, run.cancel)


@dataclass(slots=True)
class _Run:
    client: Any
    application: str
    number: str
    has_run: bool = False

    def ending(self) -> Ending | None:
        run = _call(self.client.get_job_run, applicationId=self.application, jobRunId=self.number)["jobRun"]
        state, why = run["state"], shown(run.get("stateDetails") or run["state"])
        self.has_run = self.has_run or state == "RUNNING" or "startedAt" in run
        if state == "SUCCESS":
            return Ending("ended")
        if state == "CANCELLED":
            return killed(why)
        if state == "FAILED":
            return Ending("failed", why=why) if self.has_run else not_started(why)
        return None

    def cancel(self) -> None:
        _call(self.client.cancel_job_run, applicationId=self.application, jobRunId=self.number)


def _call(operation: Any, **arguments: Any) -> Any:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        return operation(**arguments)
    except ClientError as error:
        answer = error.response.get("Error", {})
        code, status = answer.get("Code", ""), error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        reason = f"{shown(answer.get('Message') or code)} ({code})"
        if code in _NOT_OURS or status >= 500:
            raise TransientError(_THING, reason, "try again") from None
        if code == "ResourceNotFoundException":
            raise GoneError(_THING, reason, "see the application's id") from None
        remedy = "see the application's id and role, and what Dagster's account may do (emr-serverless:StartJobRun)"
        raise ConfigError(_THING, reason, remedy) from None
    except BotoCoreError as error:
        if "Credentials" in type(error).__name__:
            raise ConfigError(_THING, shown(error), "give Dagster's process AWS credentials or a role") from None
        raise TransientError(_THING, f"AWS does not answer ({shown(error)})", "try again") from None
