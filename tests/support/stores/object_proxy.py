"""An HTTP proxy before an object store, which loses answers, refuses, delays and cuts uploads in half.

What a request suffers is decided by `Proxied.faults`, one after the other; the server behind it is real.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import SplitResult, urlsplit

from tests.support.stores.object_signing import signed

_MOMENT_S = 0.02
_HOLD_S_MAX = 300.0
_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "server", "date"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as the proxy saw it; `kind` is `PUT`, or `PUT?uploadId` with the names of its query."""

    method: str
    path: str
    query: str
    conditional: bool
    agent: str = ""

    @property
    def is_sparks(self) -> bool:
        """True if Spark's file system sends it, and not this project's own client."""
        return "Hadoop" in self.agent

    @property
    def kind(self) -> str:
        """The method, with what its query asks for."""
        names = [part.partition("=")[0] for part in self.query.split("&") if part]
        return "?".join([self.method, *names[-1:]])


@dataclass(frozen=True, slots=True)
class Hold:
    """A request is kept on its way until it is released; `reached` says that it has come."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


@dataclass(slots=True)
class Fault:
    """What the next `times` requests that match suffer.

    `status`: answered so, without the server. `lose`: the server does it, and its answer is lost. `halve`: the server gets
    half of the body, and both connections end. `shorten`: the answer's body is cut in half. `strip`: the server does not see
    the condition. `check_first`: it is checked, and the put is done a moment later without it, as a store without atomic
    conditions does. `delay_s` and `hold` come before everything else; `code` is in the refusal's body.
    """

    matches: Callable[[Request], bool]
    times: int = 1
    status: int | None = None
    code: str = ""
    lose: bool = False
    halve: bool = False
    shorten: bool = False
    strip: bool = False
    check_first: bool = False
    delay_s: float = 0.0
    hold: Hold | None = None


def of_kind(*kinds: str) -> Callable[[Request], bool]:
    """Match requests of these kinds."""
    return lambda request: request.kind in kinds


def putting(ending: str = "") -> Callable[[Request], bool]:
    """Match puts of keys that end so."""
    return lambda request: request.kind == "PUT" and request.path.endswith(ending)


@dataclass
class Proxied:
    """A running proxy: its endpoint, what it saw, and the faults to come."""

    endpoint: str
    seen: list[Request] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault_of(self, request: Request) -> Fault | None:
        """Note the request, and take the next fault that matches it."""
        with self.lock:
            self.seen.append(request)
            for fault in self.faults:
                if fault.times > 0 and fault.matches(request):
                    fault.times -= 1
                    return fault
        return None

    def kinds(self) -> list[str]:
        """The kinds of the requests so far."""
        with self.lock:
            return [request.kind for request in self.seen]


class _Server(ThreadingHTTPServer):
    """Passes on to `target`, as `state` says."""

    daemon_threads = True

    def __init__(self, target: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = target
        self.state = Proxied(f"http://127.0.0.1:{self.server_address[1]}")

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients go away in the middle."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def handle_any(self) -> None:
        """Take one request, with the fault that is its own."""
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        conditional = "If-None-Match" in self.headers or "If-Match" in self.headers
        fault = self.server.state.fault_of(self._request(parts, conditional=conditional))
        if fault is not None:
            time.sleep(fault.delay_s)
            if fault.hold is not None:
                fault.hold.reached.set()
                fault.hold.released.wait(_HOLD_S_MAX)
            if fault.status is not None:
                self._answer(
                    fault.status, [], f"<Error><Code>{fault.code}</Code></Error>".encode() if fault.code else b""
                )
                return
            if fault.halve:
                self._halve(body)
                return
            if fault.check_first and self._forward(b"", "HEAD")[0] == http.HTTPStatus.OK:
                self._answer(http.HTTPStatus.PRECONDITION_FAILED, [], b"")
                return
            if fault.strip or fault.check_first:
                time.sleep(_MOMENT_S if fault.check_first else 0)
                del self.headers["If-None-Match"], self.headers["If-Match"]
        resign = fault is not None and (fault.strip or fault.check_first)
        status, headers, answer = self._forward(body, resign=resign)
        if fault is not None and fault.lose:
            self.close_connection = True
        else:
            self._answer(status, headers, answer, shorten=fault is not None and fault.shorten)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_any  # noqa: N815  the library's names

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _request(self, parts: SplitResult, *, conditional: bool) -> Request:
        return Request(self.command, parts.path, parts.query, conditional, self.headers.get("User-Agent", ""))

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, shorten: bool = False) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in _HOP:
                self.send_header(name, value)
        length = dict(headers).get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if shorten else body)
        self.close_connection = self.close_connection or shorten

    def _forward(
        self, body: bytes, method: str | None = None, *, resign: bool = False
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=20)
        try:
            left_out = {"connection"} | ({"if-none-match", "if-match", "content-length"} if method else set())
            headers = {n: v for n, v in self.headers.items() if n.lower() not in left_out}
            if method or resign:
                url = f"http://{self.headers['Host']}{self.path}"
                headers = signed(method or self.command, url, headers, body)
            connection.request(method or self.command, self.path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()

    def _halve(self, body: bytes) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=20)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            connection.putheader(name, value)
        connection.endheaders(body[: len(body) // 2])
        connection.close()
        self.close_connection = True


@contextmanager
def object_proxy(port: int) -> Iterator[Proxied]:
    """Run a proxy before the server on `port` for the block."""
    server = _Server(port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
