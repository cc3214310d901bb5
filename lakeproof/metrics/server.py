"""Serves metrics and health over HTTP: `/metrics`, `/healthz` and `/readyz`; whatever fails here, the work goes on.

There is no login and no TLS: the address is one of the loopback unless somebody says otherwise, and what is behind it has
names of tables, but no rows.

At a hand-over the predecessor may have the address for a while: it is tried again until the end.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import urlsplit

from prometheus_client.exposition import choose_encoder

from lakeproof.config.section.metrics import host_and_port
from lakeproof.events import Event, Report
from lakeproof.metrics.samples import Registry

# The pause before an address that is taken, or that this machine does not have, is tried again.
RETRY_S = 1.0
# A scrape is one connection, and there may be two or three servers that scrape.
CONNECTIONS_MAX = 16
_REQUEST_TIMEOUT_S = 10.0
_TURN_S = 0.2

WhyNot = Callable[[], "str | None"]


def _well() -> str | None:
    """Return that nothing is wrong."""
    return None


@dataclass(frozen=True, slots=True)
class Served:
    """The answers of a server: the metrics, and the reasons why the process is not ready, or does not work."""

    registry: Registry
    why_not_ready: WhyNot = _well
    why_not_alive: WhyNot = _well


class MetricsServer:
    """Serves while its block runs, in a thread of its own."""

    def __init__(self, address: str, served: Served, report: Report) -> None:
        self._address, self._served, self._report = address, served, report
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lakeproof metrics", daemon=True)

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _work(self) -> None:
        reason: str | None = None
        while not self._ended.is_set():
            try:
                server = _Server(self._address, self._served)
            except OSError as error:
                if reason != error.strerror:
                    reason = error.strerror
                    self._emit("metrics.waits", f"{self._address}: {reason}; trying again until it is free")
                self._ended.wait(RETRY_S)
                continue
            with server:
                self._emit("metrics.listens", f"metrics are at http://{self._address}/metrics")
                server.timeout = _TURN_S
                while not self._ended.is_set():
                    server.handle_request()
            return

    def _emit(self, kind: str, message: str) -> None:
        self._report(Event(kind, message, {"address": self._address}))


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str, served: Served) -> None:
        host, port = host_and_port(address)
        self.served = served
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Bind without asking a name server for the name of this machine, as the base class does."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[0], self.server_address[1]  # type: ignore[assignment]  # an address of IP

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that has gone, or sent nonsense."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_TIMEOUT_S
    server_version, sys_version = "lakeproof", ""
    _PAGES: ClassVar[Mapping[str, str]] = {"/metrics": "_metrics", "/healthz": "_healthz", "/readyz": "_readyz"}

    def do_GET(self) -> None:
        """Answer one request."""
        page = self._PAGES.get(urlsplit(self.path).path)
        if page is None:
            self._answer(404, f"there are {', '.join(self._PAGES)}\n".encode(), "text/plain; charset=utf-8")
        else:
            getattr(self, page)()

    def _metrics(self) -> None:
        encode, content_type = choose_encoder(self.headers.get("Accept") or "")
        self._answer(200, encode(self.server.served.registry.prometheus), content_type)

    def _healthz(self) -> None:
        self._verdict(self.server.served.why_not_alive())

    def _readyz(self) -> None:
        self._verdict(self.server.served.why_not_alive() or self.server.served.why_not_ready())

    def _verdict(self, reason: str | None) -> None:
        document = {"status": "ok"} if reason is None else {"status": "unavailable", "reason": reason}
        self._answer(200 if reason is None else 503, json.dumps(document).encode() + b"\n", "application/json")

    def _answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name for it
        """Keep scrapes out of the log."""
