"""Servers that speak as Azure's and as Google's store, with stores in them.

S3 servers are `fix_object_store.py`'s. Azure's is Microsoft's emulator, if it is on this machine: the project does not
install it; where it comes from is in the reason. Google's is `gcs_server.py`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate

import pytest

from demo.server import free_port
from lakeproof.config.location import LakeLocation, ObjectPlace, StorageConfig
from lakeproof.storage.object.store import ObjectStore

_START_S = 90.0
_HOST = "127.0.0.1"
# The account and the key that Azurite's manual publishes; they open nothing else.
ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API = "2023-11-03"
CLOUDS = ("google", "azurite")


@dataclass(frozen=True)
class CloudServer:
    """A running server: its URL's scheme, port and endpoint, how a bucket is made there, and delta-rs's options for it."""

    scheme: str
    port: int
    endpoint: str
    create: Callable[[int, str], None]
    reader_options: Mapping[str, str]
    account: str | None = None

    def location(self) -> LakeLocation:
        """A lake in a new bucket."""
        name = f"lake-{secrets.token_hex(6)}"
        self.create(self.port, name)
        storage = StorageConfig(endpoint=self.endpoint, account=self.account, allow_http=True, retry_s=5)
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


def _create_bucket(port: int, name: str) -> None:
    assert _request(port, "PUT", f"/{name}", b"", {}) == http.HTTPStatus.OK


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


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """Microsoft's emulator of Azure's blobs."""
    program = _found("LAKEPROOF_AZURITE", "azurite-blob", "npm install azurite")
    port, folder = free_port(), tmp_path_factory.mktemp("azurite")
    options = ["--blobHost", _HOST, "--blobPort", str(port), "--location", str(folder), "--silent"]
    endpoint = f"http://{_HOST}:{port}/{ACCOUNT}"
    readers = {
        "azure_storage_account_name": ACCOUNT,
        "azure_storage_account_key": _KEY,
        "azure_storage_endpoint": endpoint,
    }
    with _running([program, *options, "--skipApiVersionCheck"], port, "/"):
        yield CloudServer("az", port, endpoint, _create_container, {**readers, "allow_http": "true"}, ACCOUNT)


@pytest.fixture(scope="session")
def google(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudServer]:
    """A server that speaks as Google's; whoever asks needs no signature."""
    port = free_port()
    endpoint = f"http://{_HOST}:{port}"
    account = {
        "gcs_base_url": endpoint,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    file = tmp_path_factory.mktemp("google") / "account.json"
    file.write_text(json.dumps(account), "utf-8")
    with _running([sys.executable, "-m", "tests.support.stores.gcs_server", str(port)], port, "/"):
        yield CloudServer(
            "gs", port, endpoint, _create_bucket, {"google_service_account": str(file), "allow_http": "true"}
        )


@pytest.fixture
def cloud(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> CloudServer:
    """The server that one of the test's parameters names, with credentials in the environment, as a user gives them."""
    (kind,) = [kind for kind in request.node.callspec.params.values() if kind in CLOUDS]
    server: CloudServer = request.getfixturevalue(kind)
    for name in [n for n in os.environ if n.startswith(("AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    if server.scheme == "az":
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", _KEY)
    else:
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT", server.reader_options["google_service_account"])
    return server


@pytest.fixture
def cloud_store(cloud: CloudServer) -> ObjectStore:
    """A store in a new bucket."""
    return store_in(cloud.location())
