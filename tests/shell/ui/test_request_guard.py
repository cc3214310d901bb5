"""Requests to Dagster's web server: the UI and this machine may send them; other pages in the same browser may not."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from starlette.types import Message, Receive, Scope, Send

from demo.server import free_port
from orchestration.webserver import LOOPBACK_HOSTS, RequestGuard, read_login
from tests.support.ingest.fix_drain import wait_until
from tests.support.shell.sample import write_sample

ROOT = Path(__file__).resolve().parents[3]
_STOP = "/graphql?query=mutation%20%7BstopRunningSchedule%7D"
_PAGE = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
_ORIGIN = {"origin": "http://127.0.0.1:3000"}
_EVIL = {"origin": "https://evil.example"}


async def _served(scope: Scope, _: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.accept"})
    else:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"served"})


def _sent(kind: str, method: str, url: str, headers: Mapping[str, str], login: tuple[str, str] | None) -> list[Message]:
    """Return what the guard sends for one request."""
    path, _, query = url.partition("?")
    raw = [(name.encode(), value.encode()) for name, value in {"host": "127.0.0.1:3000", **headers}.items()]
    scope = {"type": kind, "method": method, "path": path, "query_string": query.encode(), "headers": raw}
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": f"{kind}.disconnect"}

    asyncio.run(RequestGuard(_served, LOOPBACK_HOSTS, login)(scope, receive, send))
    return sent


def _ask(
    method: str, url: str, headers: Mapping[str, str], login: tuple[str, str] | None = None
) -> tuple[int, bytes, dict[bytes, bytes]]:
    """Status, body and headers of the answer."""
    start, body = _sent("http", method, url, headers, login)
    return start["status"], body["body"], dict(start["headers"])


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", _STOP, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}),
        ("GET", _STOP, _PAGE),
        ("GET", _STOP, {}),
        ("GET", f"/behind/a/prefix{_STOP}", _PAGE),
        ("GET", f"/behind/a/prefix{_STOP}", {}),
        ("POST", "/graphql", {**_EVIL, "sec-fetch-site": "cross-site"}),
        ("POST", "/graphql", _EVIL),
        ("POST", "/graphql", {"origin": "null"}),
        ("POST", "/graphql", {"origin": "http://127.0.0.1:8080"}),
        ("POST", "/report_asset_materialization/x", {"sec-fetch-site": "same-site"}),
        ("GET", "/download_debug/1", _PAGE),
        ("GET", "/", {"host": "rebind.evil.example"}),
        ("GET", "/", {"host": "127.0.0.1.evil.example:3000"}),
        ("GET", "/", {"host": ""}),
    ],
)
def test_what_another_page_asks_for_is_refused(method: str, path: str, headers: Mapping[str, str]) -> None:
    """The request comes by an image, a form, a script, or a name that resolves to this machine."""
    status, body, _ = _ask(method, path, headers)
    assert (status, b"served" in body) == (403, False)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/locations", {"sec-fetch-site": "none", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}),
        ("GET", "/runs/1", _PAGE),
        ("GET", "/server_info", {}),
        ("POST", "/graphql", {**_ORIGIN, "sec-fetch-site": "same-origin"}),
        ("POST", "/graphql", {}),
        ("GET", "/graphql", {}),
        ("GET", _STOP, {"sec-fetch-site": "same-origin"}),
        ("GET", "/", {"host": "LOCALHOST:3000"}),
        ("GET", "/", {"host": "[::1]:3000"}),
    ],
)
def test_the_ui_and_tools_of_this_machine_are_served(method: str, path: str, headers: Mapping[str, str]) -> None:
    """A link to one of its pages may stand anywhere."""
    assert _ask(method, path, headers)[:2] == (200, b"served")


def test_a_subscription_of_another_page_is_refused() -> None:
    """Browsers let any page open a WebSocket to any host."""
    assert [m["type"] for m in _sent("websocket", "GET", "/graphql", _EVIL, None)] == ["websocket.close"]
    assert [m["type"] for m in _sent("websocket", "GET", "/graphql", _ORIGIN, None)] == ["websocket.accept"]


@pytest.mark.parametrize("given", [None, "Basic", "Basic !", "Bearer x", "Basic " + base64.b64encode(b"a:c").decode()])
def test_without_the_password_nothing_is_served(given: str | None) -> None:
    """A request without the password, or with a wrong one, is refused."""
    status, _, headers = _ask("GET", "/", {} if given is None else {"authorization": given}, ("a", "b"))
    assert status == 401
    assert headers[b"www-authenticate"].startswith(b"Basic")


def test_a_health_check_needs_no_password() -> None:
    """The answer has the versions that run, and nothing else."""
    assert _ask("GET", "/server_info", {}, ("a", "b"))[0] == 200
    assert _ask("GET", "/server_info/x", {}, ("a", "b"))[0] == 401


def test_with_the_password_the_ui_is_served() -> None:
    """The password may have a colon and letters beyond ASCII."""
    login = ("ann", "b:ö")
    token = base64.b64encode(":".join(login).encode()).decode()
    assert _ask("GET", "/", {"authorization": f"Basic {token}"}, login)[:2] == (200, b"served")


@pytest.mark.parametrize("text", ["", "user", "user:", ":password"])
def test_a_login_file_without_a_login_is_refused(tmp_path: Path, text: str) -> None:
    """Rather than to serve everybody."""
    file = tmp_path / "login"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="user:password"):
        read_login(file)


def _status(url: str, **headers: str) -> int:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=named), timeout=60) as answer:  # noqa: S310  our own server
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_dagsters_own_server_stands_behind_the_guard(tmp_path: Path) -> None:
    """An image tag that stops a sensor, tried on the real web server."""
    port = free_port()
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(tmp_path),
        "LAKEPROOF_CONFIG": str(write_sample(tmp_path)),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-W", "ignore", "-m", "orchestration.webserver", "-w", str(ROOT / "workspace.yaml")]
    server = subprocess.Popen([*command, "-p", str(port), "--empty-workspace"], env=environment, cwd=tmp_path)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _status(f"{url}/server_info") == 200, timeout_s=240)
        assert _status(f"{url}/", sec_fetch_site="none") == 200
        image = {"sec_fetch_site": "cross-site", "sec_fetch_mode": "no-cors", "sec_fetch_dest": "image"}
        assert _status(url + _STOP, **image) == 403
        assert _status(f"{url}/server_info", host="rebind.evil.example") == 403
    finally:
        server.terminate()
        server.wait(120)
