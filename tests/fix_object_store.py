"""A real S3 server (moto, a process of its own on a free port), a bucket for each test, and stores in it.

Faults on the way to it are `object_proxy.py`'s.
"""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lakeproof.config.location import LakeLocation, ObjectPlace, StorageConfig
from lakeproof.storage.object_store import ObjectStore

REGION = "eu-central-1"
_START_S = 60.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class S3Server:
    """A server's port, and requests to it that need no client."""

    port: int

    @property
    def endpoint(self) -> str:
        """The server's URL."""
        return f"http://127.0.0.1:{self.port}"

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Send one request; return the status and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        # What moto takes for a signature: it checks none, and reads the region from it.
        signed = f"AWS4-HMAC-SHA256 Credential=lake/20260101/{REGION}/s3/aws4_request, SignedHeaders=host, Signature=x"
        try:
            connection.request(method, path, body, {"Authorization": signed})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def create_bucket(self) -> str:
        """Create a bucket and return its name."""
        name = f"lake-{secrets.token_hex(6)}"
        where = (
            f"<CreateBucketConfiguration><LocationConstraint>{REGION}</LocationConstraint></CreateBucketConfiguration>"
        )
        status, body = self.request("PUT", f"/{name}", where.encode())
        assert status == 200, body
        return name


def storage(endpoint: str, **settings: object) -> StorageConfig:
    """The section `storage` for a server in the tests."""
    return StorageConfig.model_validate({"endpoint": endpoint, "region": REGION, "allow_http": True, **settings})


def object_store(bucket: str, endpoint: str, prefix: str = "data/lake", **settings: object) -> ObjectStore:
    """A store of its own, with its own connections and counter."""
    location = LakeLocation(f"s3://{bucket}/{prefix}", storage(endpoint, **settings))
    place = ObjectPlace.parse(location.url)
    assert place is not None
    return ObjectStore(place, location)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """The run's server; its memory holds all that is put."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.object_server", str(port)],
        cwd=_ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server = S3Server(port)
    deadline = time.monotonic() + _START_S
    try:
        while True:
            assert process.poll() is None, "the S3 server ended"
            try:
                server.request("GET", "/")
                break
            except OSError:
                assert time.monotonic() < deadline, "the S3 server does not answer"
                time.sleep(0.05)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, as a user gives them."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lake")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")


@pytest.fixture
def bucket(s3_server: S3Server, credentials: None) -> str:
    """A new bucket."""
    del credentials
    return s3_server.create_bucket()


@pytest.fixture
def s3_store(s3_server: S3Server, bucket: str) -> ObjectStore:
    """A store in a new bucket."""
    return object_store(bucket, s3_server.endpoint)
