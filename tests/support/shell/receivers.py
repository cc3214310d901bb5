"""Servers that receive what is sent to people: HTTP POSTs and mail, on sockets of the loopback address."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Posts:
    """The documents POSTed: path, headers and document. `status` is the answer."""

    port: int = 0
    status: int = 202
    received: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    def documents(self, path: str) -> list[Any]:
        """The documents that came to a path."""
        return [document for to, _, document in self.received if to == path]


@contextmanager
def http_receiver() -> Iterator[Posts]:
    """An HTTP server that keeps every POST."""
    posts = Posts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if posts.status < 300:
                posts.received.append((self.path, dict(self.headers), json.loads(body)))
            self.send_response(posts.status)
            if posts.status == 302:
                self.send_header("Location", f"http://127.0.0.1:{posts.port}/elsewhere")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    posts.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield posts
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Mails:
    """The mails that came, as text."""

    port: int = 0
    received: list[str] = field(default_factory=list)


@contextmanager
def smtp_receiver() -> Iterator[Mails]:
    """A mail server that takes everything and knows no TLS."""
    mails = Mails()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 ready\r\n")
            while line := self.rfile.readline():
                word = line.split()[0].upper() if line.split() else b""
                if word == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    mails.received.append(b"".join(iter(self.rfile.readline, b".\r\n")).decode())
                self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
                if word == b"QUIT":
                    return

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    mails.port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield mails
    finally:
        server.shutdown()
        server.server_close()
