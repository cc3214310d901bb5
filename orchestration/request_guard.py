"""Refuses requests to Dagster's web server that another web page makes in the operator's browser, and asks for a password.

What is served is Dagster's; starting the server belongs to `webserver.py`.

Dagster runs mutations from a plain GET and looks at neither Origin nor Host. So an image tag on any page could stop a
sensor of a UI on the loopback address, and a name that resolves to that address could read answers (DNS rebinding).

    Host                not one of the expected names      → 403
    Origin              another host's                     → 403
    Sec-Fetch-Site      another site's                     → 403, unless it opens one of the UI's pages
    GET /graphql?query  and the browser says nothing       → 403: a form or an image tag of an old browser
    Authorization       missing or wrong, if a password is set → 401
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lakeproof.errors import manual

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_OWN_SITE = ("same-origin", "none")
# A path with one of these acts or gives data, below whatever prefix; every other is the page of the UI itself.
_NO_PAGES = ("/graphql", "/report_", "/download_", "/logs/", "/notebook", "/dagit/notebook")
# Versions, and no more: what a health check asks for.
_WITHOUT_LOGIN = ("/server_info",)
_CLOSED_BY_POLICY = 1008


class RequestGuard:
    """ASGI middleware: `hosts` are the names that a browser may use (without port), `login` is (user, password) or None."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str], login: tuple[str, str] | None = None) -> None:
        self._app = app
        self._hosts = frozenset(host.lower() for host in hosts)
        self._login = login

    def _may_enter(self, scope: Scope, headers: Mapping[str, str]) -> bool:
        if self._login is None or scope["path"] in _WITHOUT_LOGIN:
            return True
        return _is_login(headers.get("authorization", ""), self._login)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        reason = refusal(scope, headers, self._hosts)
        status, more = 403, {}
        if reason is None and not self._may_enter(scope, headers):
            reason, status, more = (
                "a user and a password are needed",
                401,
                {"WWW-Authenticate": 'Basic realm="Dagster"'},
            )
        if reason is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _CLOSED_BY_POLICY, "reason": reason})
        else:
            await PlainTextResponse(f"{reason}\n", status, headers=more)(scope, receive, send)


def refusal(scope: Scope, headers: Mapping[str, str], hosts: frozenset[str]) -> str | None:
    """Return why a request is refused, or None; header names are in lower case."""
    host = headers.get("host", "").lower()
    if _name(host) not in hosts:
        return f"this name is not one of the UI's own; see {manual('lakeproof in Dagster', 'Who may reach the UI')}"
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host:
        return "another web page asked for this"
    site = headers.get("sec-fetch-site")
    if site is None:
        by_address = scope["type"] == "http" and scope["method"] == "GET" and "/graphql" in scope["path"]
        return "a query is sent with POST" if by_address and scope.get("query_string") else None
    return None if site in _OWN_SITE or _opens_a_page(scope, headers) else "another web page asked for this"


def _opens_a_page(scope: Scope, headers: Mapping[str, str]) -> bool:
    """True if a link on another page was followed to a page of the UI, in a tab of its own."""
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
        and not any(place in scope["path"] for place in _NO_PAGES)
    )


def _name(host: str) -> str:
    """Return a Host header without its port; an IPv6 address keeps its brackets."""
    return host if host.endswith("]") else host.rpartition(":")[0] or host


def _is_login(authorization: str, login: tuple[str, str]) -> bool:
    scheme, _, text = authorization.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        given = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(given, ":".join(login).encode())
