"""Makes obstore's client of a place: S3, Google's store or Azure's, with the configured way to it.

Requests do not belong here (`requests.py`). Credentials are the library's to find: the environment, a web identity, a
container's or a machine's role; an AWS profile is read by `aws_profile.py`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from obstore.store import AzureStore, GCSStore, S3Store

from lakeproof.config.location import ObjectPlace, StorageConfig
from lakeproof.storage.object.aws_profile import ProfileCredentials

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_CONNECT_TIMEOUT = timedelta(seconds=5)


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
