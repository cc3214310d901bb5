"""A real server that speaks as Azure's store, if it is on this machine, and stores in it.

S3 servers are `fix_object_store.py`'s. The project does not install this one; where it comes from is in the reason.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate

import pytest

from lakeproof.config.location import LakeLocation, ObjectPlace, StorageConfig
from lakeproof.storage.object_store import ObjectStore

_START_S = 90.0
_HOST = "127.0.0.1"
# The account and the key that Azurite's manual publishes; they open nothing else.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API = "2023-11-03"


@dataclass(frozen=True)
class CloudServer:
    """A running server: its URL's scheme, port and endpoint, and how a bucket is made there."""

    scheme: str
    port: int
    endpoint: str
    create: Callable[[int, str], None]

    def location(self) -> LakeLocation:
        """A lake in a new bucket."""
        name = f"lake-{secrets.token_hex(6)}"
        self.create(self.port, name)
        storage = StorageConfig(endpoint=self.endpoint, account=ACCOUNT, allow_http=True, retry_s=5)
        return LakeLocation(f"{self.scheme}://{name}/data/lake", storage)


def store_in(location: LakeLocation) -> ObjectStore:
    """A store of its own, with its own connections and counter."""
    place = ObjectPlace.parse(location.url)
    assert place is not None
    return ObjectStore(place, location)


def _request(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection(_HOST, port, timeout=20)
    try:
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _create_container(port: int, name: str) -> None:
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
    named = "".join(f"{key}:{value}\n" for key, value in headers.items())
    text = f"PUT{chr(10) * 12}{named}/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(_KEY), text.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    assert _request(port, "PUT", f"/{ACCOUNT}/{name}?restype=container", b"", headers) == http.HTTPStatus.CREATED


@contextmanager
def _running(command: list[str], port: int, path: str) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + _START_S
    try:
        while True:
            assert process.poll() is None, f"{command[0]} ended"
            try:
                _request(port, "GET", path, b"", {})
                break
            except OSError:
                assert time.monotonic() < deadline, f"{command[0]} does not answer"
                time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _found(variable: str, name: str, source: str) -> str:
    given = os.environ.get(variable) or shutil.which(name)
    if not given:
        pytest.skip(f"there is no {name}: {source}, then set {variable} or PATH")
    return given


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as free:
        return int(free.getsockname()[1])


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """Microsoft's emulator of Azure's blobs."""
    program = _found("LAKEPROOF_AZURITE", "azurite-blob", "npm install azurite")
    port, folder = _free_port(), tmp_path_factory.mktemp("azurite")
    options = ["--blobHost", _HOST, "--blobPort", str(port), "--location", str(folder), "--silent"]
    with _running([program, *options, "--skipApiVersionCheck"], port, "/"):
        yield CloudServer("az", port, f"http://{_HOST}:{port}/{ACCOUNT}", _create_container)


@pytest.fixture
def cloud_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials in the environment, as a user gives them."""
    for name in [n for n in os.environ if n.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _KEY)


@pytest.fixture
def azure_store(azurite: CloudServer, cloud_credentials: None) -> ObjectStore:
    """A store in a new container."""
    del cloud_credentials
    return store_in(azurite.location())
