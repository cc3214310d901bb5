"""A TCP proxy before a server, which cuts, delays, throttles, stalls and truncates what passes.

What a connection suffers is decided by its number alone (`Proxy.faults`), so a seed repeats it as far as bytes go; when
something comes belongs to the threads. TLS and name resolution don't belong here.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from demo.server import EmbeddedPostgres

_CHUNK = 1 << 14
_POLL_S = 0.05


class End(Enum):
    """The end of a connection once its bytes are used up."""

    # Both sides see an orderly end, in the middle of a message as a rule.
    CUT = "cut"
    # Both sides see a reset: what was in flight is lost.
    RESET = "reset"
    # The client sees an end, the server goes on: it notices by itself, or when somebody wants the slot.
    HALF = "half"
    # Nothing passes to the client any more, without an error; what the client sends still arrives.
    STALL = "stall"


@dataclass(frozen=True, slots=True)
class Fault:
    """A connection's faults: `end` after `after_bytes` from the server, each piece late and slow before that."""

    end: End | None = None
    after_bytes: int = 0
    delay_s: float = 0.0
    bytes_per_s: float | None = None


Faults = Callable[[int], Fault | None]


def random_faults(
    seed: int, *, share: float = 0.8, bytes_max: int = 400_000, ends: tuple[End, ...] = tuple(End)
) -> Faults:
    """Faults by the connection's number: `share` of the connections have one, after 1 to `bytes_max` bytes."""

    def chosen(number: int) -> Fault | None:
        chance = random.Random(f"{seed}/{number}")
        if chance.random() >= share:
            return None
        # As many short-lived connections as long-lived ones: handshake, catalog and stream are all hit.
        after = int(bytes_max ** chance.random())
        slow = chance.choice((None, None, None, 200_000.0))
        return Fault(chance.choice(ends), after, delay_s=chance.choice((0.0, 0.0, 0.002, 0.02)), bytes_per_s=slow)

    return chosen


@dataclass
class _Line:
    """A connection's two sockets."""

    client: socket.socket
    server: socket.socket
    fault: Fault | None
    passed: int = 0
    stalled: bool = False
    closed: threading.Event = field(default_factory=threading.Event)

    def close(self, *, reset: bool = False) -> None:
        self.closed.set()
        for end in (self.client, self.server):
            if reset:
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Proxy:
    """Listens on its own port and passes on to `target`; a context manager that leaves no thread behind.

    `faults` and `refusing` may be changed at any time and hold for the connections that come then.
    """

    def __init__(self, target: int, faults: Faults | None = None) -> None:
        self.faults: Faults = faults or (lambda _: None)
        self.refusing = False
        self.connections = 0
        self.ends: list[End] = []
        self._target = target
        self._lines: list[_Line] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_POLL_S)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Proxy:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.cut()
        while self._threads:
            self._threads.pop().join(20)
        self._listener.close()

    def dsn(self, dsn: str) -> str:
        """Return the DSN through this proxy."""
        return make_conninfo("", **{**conninfo_to_dict(dsn), "host": "127.0.0.1", "port": str(self.port)})

    def cut(self, *, reset: bool = False) -> None:
        """End every connection there is."""
        with self._lock:
            lines, self._lines = self._lines, []
        for line in lines:
            line.close(reset=reset)

    def stall(self, stalled: bool = True) -> None:
        """Let nothing more pass to the clients of the connections there are, or go on with it."""
        with self._lock:
            for line in self._lines:
                line.stalled = stalled

    def passed(self) -> list[int]:
        """The bytes that each connection has had from the server."""
        with self._lock:
            return [line.passed for line in self._lines]

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), 5)
            except OSError:
                client.close()
                continue
            with self._lock:
                line = _Line(client, server, self.faults(self.connections))
                self.connections += 1
                self._lines.append(line)
            for end in (client, server):
                end.settimeout(_POLL_S)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._up, line)
            self._start(self._down, line)

    def _up(self, line: _Line) -> None:
        """Pass bytes from the client to the server."""
        with suppress(OSError):
            while (data := _received(line.client, line)) is not None:
                line.server.sendall(data)
        line.close()

    def _down(self, line: _Line) -> None:
        """Pass bytes from the server to the client, with the connection's faults."""
        half = False
        with suppress(OSError):
            while (data := _received(line.server, line)) is not None:
                if half:
                    continue
                over = self._suffer(line, data)
                if over is End.HALF:
                    half = True
                    line.client.shutdown(socket.SHUT_WR)
                elif over is not None:
                    line.close(reset=over is End.RESET)
        line.close()

    def _suffer(self, line: _Line, data: bytes) -> End | None:
        """Pass on what may pass; gives the end that it came to."""
        fault = line.fault
        while line.stalled and not line.closed.is_set():
            time.sleep(_POLL_S)
        if fault is None:
            line.client.sendall(data)
            line.passed += len(data)
            return None
        if fault.delay_s:
            time.sleep(fault.delay_s)
        if fault.bytes_per_s:
            time.sleep(len(data) / fault.bytes_per_s)
        left = fault.after_bytes - line.passed
        over = fault.end if fault.end is not None and len(data) >= left else None
        part = data[: max(0, left)] if over is not None else data
        line.passed += len(part)
        if part:
            line.client.sendall(part)
        if over is not None:
            with self._lock:
                self.ends.append(over)
        if over is End.STALL:
            line.stalled = True
            return None
        return over


def _received(end: socket.socket, line: _Line) -> bytes | None:
    """The next piece; None at the end."""
    while not line.closed.is_set():
        try:
            return end.recv(_CHUNK) or None
        except TimeoutError:
            continue
    return None


@pytest.fixture
def proxy(postgres: EmbeddedPostgres) -> Iterator[Proxy]:
    """A proxy before the run's server, without faults until a test sets some."""
    with Proxy(postgres.port) as result:
        yield result
