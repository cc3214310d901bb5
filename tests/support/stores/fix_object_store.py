"""A real S3 server (moto, or versitygw in full runs; a process of its own), a bucket for each test, and stores in it.

Faults on the way to it are `object_proxy.py`'s.
"""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.server import free_port
from lakeproof.config.location import LakeLocation, ObjectPlace, StorageConfig
from lakeproof.storage.object.lock import LOCK_TIMES, LockTimes
from lakeproof.storage.object.store import ObjectStore
from scripts.fetch.s3_gateway import executable
from tests.support.stores.object_proxy import Proxied, object_proxy
from tests.support.stores.object_signing import ACCESS, REGION, SECRET, signed

_START_S = 60.0
_ROOT = Path(__file__).resolve().parents[3]


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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, signed(method, f"{self.endpoint}{path}", {}, body))
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


def object_store(
    bucket: str, endpoint: str, prefix: str = "data/lake", lock_times: LockTimes = LOCK_TIMES, **settings: object
) -> ObjectStore:
    """A store of its own, with its own connections and counter."""
    location = LakeLocation(f"s3://{bucket}/{prefix}", storage(endpoint, **settings))
    place = ObjectPlace.parse(location.url)
    assert place is not None
    return ObjectStore(place, location, lock_times)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that names a server or a store in one has moto, and versitygw in a full run."""
    if "s3_kind" in metafunc.fixturenames:
        kinds = ["moto", pytest.param("versitygw", marks=pytest.mark.full)]
        metafunc.parametrize("s3_kind", kinds, indirect=True)


@contextmanager
def _running(command: list[str], port: int) -> Iterator[S3Server]:
    """A server until the end of the block."""
    process = subprocess.Popen(
        command,
        cwd=_ROOT,
        env={**os.environ, "S3_GATEWAY_ACCESS": ACCESS, "S3_GATEWAY_SECRET": SECRET},
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


@pytest.fixture(scope="session")
def moto_server() -> Iterator[S3Server]:
    """The run's server; its memory holds all that is put."""
    port = free_port()
    with _running(
        [sys.executable, "-W", "ignore", "-m", "tests.support.stores.object_server", str(port)], port
    ) as server:
        yield server


@pytest.fixture(scope="session")
def versitygw_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The full run's second server; it checks signatures, and keeps what is put in a folder."""
    gateway, port = executable(), free_port()
    if not gateway.exists():
        pytest.skip("there is no second S3 server: run scripts/fetch/s3_gateway.py, which needs Go")
    with _running([str(gateway), str(tmp_path_factory.mktemp("versitygw")), str(port), REGION], port) as server:
        yield server


@pytest.fixture
def s3_kind(request: pytest.FixtureRequest) -> str:
    """The server's name: the parameter, or that of the test's parameters which names one."""
    given = getattr(getattr(request.node, "callspec", None), "params", {}).values()
    return str(getattr(request, "param", "versitygw" if "versitygw" in given else "moto"))


@pytest.fixture
def s3_server(request: pytest.FixtureRequest, s3_kind: str) -> S3Server:
    """The test's server."""
    server: S3Server = request.getfixturevalue(f"{s3_kind}_server")
    return server


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, as a user gives them."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def bucket(s3_server: S3Server, credentials: None) -> str:
    """A new bucket."""
    del credentials
    return s3_server.create_bucket()


@pytest.fixture
def s3_store(s3_server: S3Server, bucket: str) -> ObjectStore:
    """A store in a new bucket."""
    return object_store(bucket, s3_server.endpoint)


@pytest.fixture
def proxied(s3_server: S3Server) -> Iterator[Proxied]:
    """A proxy before the server, without faults until a test adds some."""
    with object_proxy(s3_server.port) as state:
        yield state
