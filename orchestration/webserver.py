"""Dagster's web server behind the request guard: `python -m orchestration.webserver`, arguments as `dagster-webserver`.

Dagster runs mutations from a plain GET and checks neither Origin nor Host. So an image tag on any page could stop a sensor
of a UI on the loopback address, and a host name that resolves to that address could read answers (DNS rebinding). The guard
refuses requests that another web page makes in the operator's browser, and asks for a password; the pages are Dagster's.

    Host                not one of the expected names      → 403
    Origin              another host's                     → 403
    Sec-Fetch-Site      another site's                     → 403, unless it opens one of the UI's pages
    GET /graphql?query  without Sec-Fetch-Site             → 403: a form or an image tag in an old browser
    Authorization       missing or wrong, if a password is set → 401

LAKEPROOF_UI_HOSTS: host names by which browsers may reach it, separated by commas, besides those of the loopback address.
LAKEPROOF_UI_LOGIN_FILE: a file with one line `user:password`, required by HTTP basic authentication.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dagster_webserver.cli import main
from dagster_webserver.webserver import DagsterWebserver
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lakeproof.errors import manual

HOSTS = "LAKEPROOF_UI_HOSTS"
LOGIN_FILE = "LAKEPROOF_UI_LOGIN_FILE"


def guard() -> Middleware:
    """Return the middleware as the environment configures it; raises ValueError if the file has no login."""
    names = {name.strip() for name in os.environ.get(HOSTS, "").split(",")} - {""}
    file = os.environ.get(LOGIN_FILE)
    login = None if file is None else read_login(Path(file))
    return Middleware(RequestGuard, hosts=LOOPBACK_HOSTS | names, login=login)


def read_login(file: Path) -> tuple[str, str]:
    """Return user and password; raises ValueError naming the file."""
    user, colon, password = file.read_text(encoding="utf-8").rstrip("\r\n").partition(":")
    if not (user and colon and password):
        raise ValueError(f"{file}: it is not one line user:password; write it like that, readable by this user alone")
    return user, password


def serve() -> None:
    """Run the server; ends with status 2 and one line on stderr if the login can't be read."""
    try:
        outermost = guard()
    except (OSError, ValueError) as error:
        sys.stderr.write(f"lakeproof: {error}\n")
        sys.exit(2)
    original: Any = DagsterWebserver.build_middleware

    def build_middleware(self: DagsterWebserver[Any, Any]) -> list[Middleware]:
        return [outermost, *original(self)]

    # Dagster has no setting for this; every app it creates uses the middleware of this method.
    DagsterWebserver.build_middleware = build_middleware  # type: ignore[method-assign]  # on purpose
    main()  # type: ignore[no-untyped-call]  # Click's command has no types


LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_OWN_SITE = ("same-origin", "none")
# A path that contains one of these acts or returns data, whatever its prefix; every other path is a page of the UI.
_NO_PAGES = ("/graphql", "/report_", "/download_", "/logs/", "/notebook", "/dagit/notebook")
# Returns version numbers only; health checks ask for it.
_WITHOUT_LOGIN = ("/server_info",)
_CLOSED_BY_POLICY = 1008


class RequestGuard:
    """ASGI middleware: `hosts` are the names that a browser may use (without port), `login` is (user, password) or None."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], login: tuple[str, str] | None = None) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._login = login

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        reason = request_refusal(scope, headers, self._hosts)
        status, extra = 403, {}
        is_open = scope["path"] in _WITHOUT_LOGIN
        if reason is None and not is_open and not _is_login(headers.get("authorization", ""), self._login):
            reason, status = "a user and a password are needed", 401
            extra = {"WWW-Authenticate": 'Basic realm="Dagster"'}
        if reason is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _CLOSED_BY_POLICY, "reason": reason})
        else:
            await PlainTextResponse(f"{reason}\n", status, headers=extra)(scope, receive, send)


def request_refusal(scope: Scope, headers: Mapping[str, str], hosts: frozenset[str]) -> str | None:
    """Return the reason to refuse a request, or None; header names are in lower case."""
    host = headers.get("host", "").lower()
    if _name(host) not in hosts:
        return (
            f"this host name is not one of the UI's names; see {manual('lakeproof in Dagster', 'Who may reach the UI')}"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host:
        return "another web page made this request"
    site = headers.get("sec-fetch-site")
    if site is None:
        in_url = scope["type"] == "http" and scope["method"] == "GET" and "/graphql" in scope["path"]
        return "send the query with POST" if in_url and scope.get("query_string") else None
    return None if site in _OWN_SITE or _opens_a_page(scope, headers) else "another web page made this request"


def _opens_a_page(scope: Scope, headers: Mapping[str, str]) -> bool:
    """True if a link on another page was followed to a page of the UI, in its own tab."""
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and not any(part in scope["path"] for part in _NO_PAGES)
    )


def _name(host: str) -> str:
    """Return a Host header without its port; an IPv6 address keeps its brackets."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _is_login(authorization: str, login: tuple[str, str] | None) -> bool:
    if login is None:
        return True
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        credentials = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(credentials, ":".join(login).encode())


if __name__ == "__main__":
    serve()
