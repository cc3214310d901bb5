"""The place of a lake and the way to its store: the URL with the section `storage`, as one value.

Opening a store does not belong here (`lakeproof.storage.open`), nor do credentials: the environment, a profile or the
machine's role has them.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from lakeproof.config.section import Model
from lakeproof.config.values import Seconds, Text

# Each scheme that is read, and the one that stands for it.
SCHEMES = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "azure": "az",
    "abfs": "az",
    "abfss": "az",
}
SUPPORTED = "a local folder, a file:// URL, or s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"
URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# Words in a key that make it a secret's.
_SECRET = re.compile(r"secret|password|token|sas|credential|(access|account|api|private)_?key", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """True if a value under this key of `storage` would be a secret."""
    return _SECRET.search(key) is not None


def _endpoint(value: str) -> str:
    parts = urlsplit(value)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("must be a URL without a user, a password or a query: secrets do not stand in this file")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL: https://host:port")
    return value.rstrip("/")


def _word(value: str) -> str:
    if not _WORD.fullmatch(value):
        raise ValueError("must be a name: letters, digits, dots, - and _")
    return value


class StorageConfig(Model):
    """The way to an object store; without effect for a lake in a folder."""

    endpoint: Annotated[Text, AfterValidator(_endpoint)] | None = None
    """The URL of an S3-compatible server, of an Azure account, or of a server that speaks like Google's store; none:
    the cloud's own."""
    region: Annotated[Text, AfterValidator(_word)] | None = None
    """The bucket's region (S3); none: as `AWS_REGION` says."""
    profile: Annotated[Text, AfterValidator(_word)] | None = None
    """A profile in the AWS files, with static keys or a `credential_process`; none: the environment's variables, or the
    role of the machine or container."""
    account: Annotated[Text, AfterValidator(_word)] | None = None
    """The storage account (Azure); none: as `AZURE_STORAGE_ACCOUNT_NAME` says."""
    virtual_hosted: bool = False
    """The bucket stands in the endpoint's host name (S3)."""
    allow_http: bool = False
    """An endpoint without TLS is allowed: bytes and requests can be read."""
    retry_s: Seconds = Field(20.0, ge=0, le=600)
    """A request that the store refuses for the moment is repeated for this long, in seconds."""
    timeout_s: Seconds = Field(30.0, ge=1, le=600)
    """One request takes at most this long, in seconds."""

    @model_validator(mode="after")
    def _http_is_allowed(self) -> StorageConfig:
        if self.endpoint is not None and self.endpoint.startswith("http://") and not self.allow_http:
            raise ValueError("has an endpoint with http://, so it needs allow_http: true")
        return self


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """A place in an object store: `scheme` is s3, gs or az; `account` is Azure's, if the URL names it."""

    scheme: str
    bucket: str
    prefix: str
    account: str | None = None

    @classmethod
    def parse(cls, url: str) -> ObjectPlace | None:
        """Return the place of an object store's URL, None for anything else; raise ValueError, as a phrase, if wrong."""
        match = URL.match(url)
        scheme = None if match is None else SCHEMES.get(match[1].lower())
        if scheme is None:
            return None
        parts = urlsplit(url)
        if parts.password or parts.query or parts.fragment or (parts.username and scheme != "az"):
            raise ValueError("must not carry a user, a password or a query")
        container, account = parts.hostname or "", None
        if parts.username:
            # abfss://container@account.dfs.core.windows.net/prefix
            container, account = parts.username, container.split(".")[0]
        if not _BUCKET.fullmatch(container) or parts.port is not None:
            raise ValueError(f"must name a bucket: {scheme}://bucket/prefix (a server's address is storage.endpoint)")
        prefix = parts.path.strip("/")
        if any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
            raise ValueError("has an empty part, . or .. in its prefix")
        return cls(scheme, container, prefix, account)

    def __str__(self) -> str:
        """Return the URL in its usual form."""
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")


def absolute(path: str, folder: Path) -> str:
    """Return a path of the configuration, relative to its `folder`, in full; raises ValueError, as a phrase, for `~`."""
    if path.startswith("~"):
        raise ValueError("begins with ~, which is not expanded; write the whole path")
    return os.path.normpath(folder / path)


def absolute_place(text: str, folder: Path) -> str:
    """Return a folder in full, or a URL as it is; raises ValueError, as a phrase, for a place that is not supported."""
    if ObjectPlace.parse(text) is not None:
        return text.rstrip("/")
    scheme = URL.match(text)
    if scheme and scheme[1].lower() != "file":
        raise ValueError(f"is at {scheme[1]}://, which is not supported; name {SUPPORTED}")
    return text.rstrip("/") if scheme else absolute(text, folder)


@dataclass(frozen=True, slots=True)
class LakeLocation:
    """A lake's (or an archive's) folder or URL, and how an object store is reached."""

    url: str
    storage: StorageConfig = field(default_factory=StorageConfig)

    @classmethod
    def of(cls, place: LakeLocation | str | Path) -> LakeLocation:
        """Return the location that `place` is, or that it names, reached as the environment says."""
        return place if isinstance(place, LakeLocation) else cls(str(place))

    def __str__(self) -> str:
        return self.url
