"""Makes obstore's client of a place: S3, Google's store or Azure's, with the configured way to it.

Credentials are the library's to find: the environment, a web identity, a container's or a machine's role. An AWS profile is
read here: static keys, or what its `credential_process` prints, as `aws configure export-credentials --format process` does
for single sign-on and assumed roles. The files are read whenever credentials are needed, so new ones are taken over.
"""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore, GCSStore, S3Store

from lakeproof.config.location import ObjectPlace, StorageConfig
from lakeproof.errors import ConfigError

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Credential

_CONNECT_TIMEOUT = timedelta(seconds=5)
# Static keys may be replaced in their file at any time: so often it is read again.
REREAD_S = 60.0
_PROCESS_TIMEOUT_S = 60.0


def make_client(place: ObjectPlace, storage: StorageConfig, *, repeats: bool = False) -> ObjectStore:
    """Return a client whose keys are below the place's prefix. `repeats`: it repeats failed requests itself."""
    common: dict[str, Any] = {
        "prefix": place.prefix or None,
        "client_options": {
            "allow_http": storage.allow_http,
            "connect_timeout": _CONNECT_TIMEOUT,
            "timeout": timedelta(seconds=storage.timeout_s),
        },
        "retry_config": {
            "max_retries": 10 if repeats else 0,
            "retry_timeout": timedelta(seconds=storage.retry_s),
            "backoff": {"max_backoff": timedelta(seconds=5)},
        },
    }
    if place.scheme == "gs":
        return GCSStore(place.bucket, config=_given({"base_url": storage.endpoint}), **common)
    if place.scheme == "az":
        account = storage.account or place.account
        config = _given({"account_name": account, "endpoint": storage.endpoint})
        return AzureStore(place.bucket, config=config, **common)
    given: dict[str, Any] = {
        "endpoint": storage.endpoint,
        "region": storage.region,
        "virtual_hosted_style_request": storage.virtual_hosted or None,
        # A bulk deletion hides what was refused in an answer of 200.
        "disable_bulk_delete": True,
    }
    if storage.profile is not None:
        credentials = ProfileCredentials(storage.profile)
        # Asked once here: the library would not repeat the reason.
        credentials()
        common["credential_provider"] = credentials
    return S3Store(place.bucket, config=_given(given), **common)


def spark_url(place: ObjectPlace, storage: StorageConfig) -> str:
    """Return the URL under which Spark finds the place."""
    root = {"s3": "s3a", "gs": "gs", "az": "abfss"}[place.scheme] + f"://{place.bucket}"
    if place.scheme == "az":
        account = storage.account or place.account
        root += f"@{account}.dfs.core.windows.net" if account else ""
    return f"{root}/{place.prefix}" if place.prefix else root


def _given(values: dict[str, Any]) -> Any:
    return {name: value for name, value in values.items() if value is not None}


class ProfileCredentials:
    """Gives the credentials of one profile to the library; raises ConfigError if it has none."""

    def __init__(self, profile: str) -> None:
        self._profile = profile

    def __call__(self) -> S3Credential:
        """Return the credentials, and until when the library may keep them."""
        section = {
            **self._section("AWS_CONFIG_FILE", "config"),
            **self._section("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        }
        if "aws_access_key_id" in section and "aws_secret_access_key" in section:
            return {
                "access_key_id": section["aws_access_key_id"],
                "secret_access_key": section["aws_secret_access_key"],
                "token": section.get("aws_session_token"),
                "expires_at": datetime.now(timezone.utc) + timedelta(seconds=REREAD_S),
            }
        if "credential_process" in section:
            return self._of_process(section["credential_process"])
        raise self._error(
            "it has neither keys nor a credential_process" if section else "there is no such profile",
            "add it to the AWS files; for single sign-on or a role: `credential_process = aws configure"
            " export-credentials --profile OTHER --format process`",
        )

    def _section(self, variable: str, name: str) -> dict[str, str]:
        file = Path(os.environ.get(variable) or Path.home() / ".aws" / name)
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError):
            raise self._error(f"{file} can't be read as an AWS file", "correct it") from None
        for section in (f"profile {self._profile}", self._profile):
            if parser.has_section(section):
                return dict(parser.items(section))
        return {}

    def _of_process(self, command: str) -> S3Credential:
        try:
            done = subprocess.run(shlex.split(command), capture_output=True, check=True, timeout=_PROCESS_TIMEOUT_S)
            answer: dict[str, Any] = json.loads(done.stdout)
            expires = answer.get("Expiration")
            return {
                "access_key_id": answer["AccessKeyId"],
                "secret_access_key": answer["SecretAccessKey"],
                "token": answer.get("SessionToken"),
                "expires_at": datetime.fromisoformat(expires.replace("Z", "+00:00"))
                if expires
                else datetime.now(timezone.utc) + timedelta(seconds=REREAD_S),
            }
        except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError, AttributeError) as error:
            # Its output may be a secret.
            raise self._error(f"its credential_process failed ({type(error).__name__})", "run it by hand") from None

    def _error(self, reason: str, remedy: str) -> ConfigError:
        return ConfigError(f"storage.profile {self._profile}", reason, remedy)
