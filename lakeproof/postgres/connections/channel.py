"""Receives the messages of a COPY into one buffer: past libpq, or through it if the connection is encrypted.

The meaning of messages, timeouts and pauses do not belong here (`replication_stream.py`, `copying/blocks.py`).

Why past libpq. It returns one message per call, each in memory of its own, and reads at most 16 kB at a time. That was half
of the cost of a drain and of a snapshot. libpq still connects, authenticates and runs every other statement, and after the
end of the COPY it owns the connection again.

Nothing here blocks: every wait is the caller's.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from typing import final
from weakref import WeakKeyDictionary

import numpy as np
import psycopg
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.sql import SQL

from lakeproof.errors import SourceError
from lakeproof.pgoutput.message_buffer import PADDING_BYTES, MessageBuffer, Octets
from lakeproof.postgres.connections.connect import Connection, rows
from lakeproof.postgres.connections.libpq import (
    ENVELOPE_BYTES,
    MESSAGE_BYTES_MAX,
    end_of_copy,
    start_copy,
    wait_readable,
)
from lakeproof.postgres.connections.protocol import LARGE_FETCH_BYTES, ROOM_BYTES, Channel, CopyProtocol

# The usual limit of one fetch through libpq.
_LIBPQ_FETCH_BYTES = 1 << 17
_SLICE_S = 0.5
_GSS_ENCRYPTED: WeakKeyDictionary[Connection, bool] = WeakKeyDictionary()


def open_channel(
    conn: Connection,
    protocol: CopyProtocol,
    on_notice: Callable[[Diagnostic], None] | None = None,
    *,
    room_bytes: int = ROOM_BYTES,
) -> Channel:
    """Return the fastest channel for this connection; it is full at about `room_bytes`, or with one larger message."""
    if conn.pgconn.ssl_in_use or _is_gss_encrypted(conn):
        return LibpqChannel(conn, protocol, room_bytes)
    return DirectChannel(conn.pgconn.socket, protocol, on_notice, room_bytes)


def _is_gss_encrypted(conn: Connection) -> bool:
    """Ask the server, once for each connection: a snapshot of 10,000 tables copies as often over the same ones."""
    encrypted = _GSS_ENCRYPTED.get(conn)
    if encrypted is None:
        query = SQL("SELECT encrypted FROM pg_catalog.pg_stat_gssapi WHERE pid = pg_catalog.pg_backend_pid()")
        encrypted = _GSS_ENCRYPTED[conn] = any(row["encrypted"] is not False for row in rows(conn, query))
    return encrypted


@final
class DirectChannel:
    """A channel past libpq, which must be idle and unused until the end of the COPY."""

    def __init__(
        self,
        socket: int,
        protocol: CopyProtocol,
        on_notice: Callable[[Diagnostic], None] | None,
        room_bytes: int,
    ) -> None:
        # Imported here, since it imports the compiler: only a process that copies should pay for that.
        from lakeproof.postgres.connections.framing import find_messages, warm_up_framing

        # Before the server begins to send: another thread may be compiling, and only one thread at a time can load a loop.
        warm_up_framing()
        self._find = find_messages
        self._protocol = protocol
        self._on_notice = on_notice
        self._socket = socket
        self._begun = False
        self._asked = False
        self._error: psycopg.Error | None = None
        self._failed: psycopg.Error | None = None
        self._waiting = b""
        self._count = self._scanned = self._filled = 0
        self._least_room_bytes = room_bytes
        self._set_room(np.empty(room_bytes + PADDING_BYTES, np.uint8))
        self.controls: list[bytes] = []
        self.ended = False

    @property
    def idle(self) -> bool:
        return not self._asked

    @property
    def size(self) -> int:
        return self._scanned if self._count else 0

    @property
    def full(self) -> bool:
        return bool(self._count) and self._filled == self._room_bytes

    @property
    def unsent(self) -> bool:
        return bool(self._waiting)

    def start(self, query: bytes, give_up: Callable[[], bool] | None = None) -> None:
        self._asked = True
        self._send(_message(b"Q", query + b"\0"))
        while not self._begun:
            if give_up is not None and give_up():
                raise InterruptedError("asked to stop")
            wait_readable(self._socket, _SLICE_S, unsent=self.unsent)
            try:
                self.fetch()
            except psycopg.Error as error:
                if not self._begun:
                    raise
                # It began, and failed later: whoever reads gets what came before, and then the error.
                self._failed = error
            if self.ended and not self._begun:
                raise psycopg.OperationalError("the server gave an unexpected answer")

    def fetch(self) -> int:
        if self._failed is not None:
            raise self._failed
        if self._waiting:
            self._send(b"")
        if self.full:
            # Also what came with the server's first answer: it has to be taken before there is room again.
            return LARGE_FETCH_BYTES
        if self._filled == self._room_bytes:
            self._make_room()
        count = self._receive(self._octets[self._filled : self._room_bytes])
        if count == 0:
            return 0
        self._filled += count
        self._scan()
        # More may have come than there was room for, and not all of it waits in the socket.
        return max(count, LARGE_FETCH_BYTES) if self._filled == self._room_bytes else count

    def take(self) -> MessageBuffer:
        start, end = self._start[: self._count].copy(), self._end[: self._count].copy()
        rest = self._octets[self._scanned : self._filled]
        if 2 * self._scanned >= self._room_bytes:
            octets = self._octets
            room_bytes = max(self._least_room_bytes, self._message_size(rest))
            self._set_room(np.empty(room_bytes + PADDING_BYTES, np.uint8))
        else:
            # Small pieces are kept for a while: they must not each keep a megabyte.
            octets = np.empty(self._scanned + PADDING_BYTES, np.uint8)
            octets[: self._scanned] = self._octets[: self._scanned]
        self._octets[: len(rest)] = rest
        self._count, self._scanned, self._filled = 0, 0, len(rest)
        return MessageBuffer(octets, start, end)

    def send(self, message: bytes) -> None:
        self._send(_message(b"d", message))

    def _receive(self, octets: Octets) -> int:
        """Fill `octets` with what has come, and return how many bytes that is; 0 if none has."""
        try:
            count = os.readv(self._socket, [octets.data])
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._error or psycopg.OperationalError(f"could not receive data from server: {error}") from None
        if count == 0:
            raise self._error or psycopg.OperationalError("server closed the connection unexpectedly")
        return count

    def _send(self, octets: bytes) -> None:
        """Send what can be sent now; what is left comes first the next time."""
        self._waiting += octets
        try:
            self._waiting = self._waiting[os.write(self._socket, self._waiting) :]
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            raise psycopg.OperationalError(f"could not send data to server: {error}") from None

    def _set_room(self, octets: Octets) -> None:
        self._octets = octets
        self._room_bytes = len(octets) - PADDING_BYTES
        least = ENVELOPE_BYTES + self._protocol.header + 1
        self._start = np.empty(self._room_bytes // least + 1, np.int64)
        self._end = np.empty_like(self._start)

    def _make_room(self) -> None:
        """Make room for the message whose beginning is all that the buffer holds, behind messages already handled."""
        rest = self._octets[self._scanned : self._filled]
        if self._message_size(rest) > self._room_bytes:
            self._set_room(np.empty(self._message_size(rest) + PADDING_BYTES, np.uint8))
        self._octets[: len(rest)] = rest.copy()
        self._scanned, self._filled = 0, len(rest)

    def _message_size(self, rest: Octets) -> int:
        """Return the size of the message that begins here, as far as it is known."""
        if len(rest) < ENVELOPE_BYTES:
            return ENVELOPE_BYTES
        length = int.from_bytes(rest[1:ENVELOPE_BYTES].tobytes(), "big")
        if not ENVELOPE_BYTES - 1 <= length <= MESSAGE_BYTES_MAX:
            raise _unknown(rest[:1].tobytes(), length)
        return 1 + length

    def _scan(self) -> None:
        protocol = self._protocol
        while True:
            self._scanned, self._count, other = self._find(
                self._octets,
                self._scanned,
                self._filled,
                protocol.tag,
                protocol.header,
                self._start,
                self._end,
                self._count,
            )
            if not other:
                return
            size = self._message_size(self._octets[self._scanned : self._filled])
            kind = self._octets[self._scanned : self._scanned + 1].tobytes()
            body = self._octets[self._scanned + ENVELOPE_BYTES : self._scanned + size].tobytes()
            self._scanned += size
            self._take_in(kind, body)

    def _take_in(self, kind: bytes, body: bytes) -> None:
        """Handle a message that is no data."""
        if kind == b"d":
            self.controls.append(body)
        elif kind == b"E":
            self._error = _error(body)
        elif kind == b"N":
            if self._on_notice is not None:
                self._on_notice(Diagnostic(_fields(body)))
        elif kind == self._protocol.response and not self._begun:
            self._begun = True
        elif kind in b"cCZ":
            if kind == b"Z":
                self._asked = False
            if kind == b"Z" and self._error is not None:
                raise self._error
            self.ended = self.ended or (self._error is None and kind in self._protocol.last)
        elif kind not in b"SA":
            raise _unknown(kind, len(body))


@final
class LibpqChannel:
    """A channel through libpq's own buffer, for a connection whose bytes only libpq can read."""

    def __init__(self, conn: Connection, protocol: CopyProtocol, room_bytes: int) -> None:
        self._pgconn = conn.pgconn
        self._protocol = protocol
        self._room_bytes = room_bytes
        self._data = bytearray()
        self._ends: list[int] = []
        self.controls: list[bytes] = []
        self.ended = False
        self.unsent = False

    @property
    def idle(self) -> bool:
        return self.ended or self._pgconn.transaction_status != TransactionStatus.ACTIVE

    @property
    def size(self) -> int:
        return len(self._data)

    @property
    def full(self) -> bool:
        return len(self._data) >= self._room_bytes

    def start(self, query: bytes, give_up: Callable[[], bool] | None = None) -> None:
        start_copy(self._pgconn, query, self._protocol.status, give_up)

    def fetch(self) -> int:
        received = 0
        while not self.ended and received < _LIBPQ_FETCH_BYTES:
            # This reads one TLS record, and a walsender makes one per message: a pause after each would take all the time.
            self._pgconn.consume_input()
            got = self._get()
            received += got
            if got == 0:
                break
        if self.unsent and not self.ended:
            self.unsent = bool(self._pgconn.flush())
        return received

    def _get(self) -> int:
        get, data, keep, tag, header = (
            self._pgconn.get_copy_data,
            self._data,
            self._ends.append,
            self._protocol.tag,
            self._protocol.header,
        )
        received = 0
        count, view = get(1)
        # The only lines that run for each message.
        while count > 0:
            received += count
            if count > header and (tag < 0 or view[0] == tag):
                data += view
                keep(len(data))
            else:
                self.controls.append(bytes(view))
            del view
            count, view = get(1)
        if count < 0:
            end_of_copy(self._pgconn)
            self.ended = True
        return received

    def take(self) -> MessageBuffer:
        end = np.array(self._ends, np.int64)
        start = np.concatenate([np.zeros(min(1, len(end)), np.int64), end[:-1]]) + self._protocol.header
        self._data += bytes(PADDING_BYTES)
        octets = np.frombuffer(self._data, np.uint8)
        self._data, self._ends = bytearray(), []
        return MessageBuffer(octets, start, end)

    def send(self, message: bytes) -> None:
        self._pgconn.put_copy_data(message)
        self.unsent = bool(self._pgconn.flush())


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", 4 + len(body)) + body


def _fields(body: bytes) -> dict[int, bytes | None]:
    """Return the fields of an error or a notice by their letters, which are psycopg's numbers for them."""
    return {field[0]: field[1:] for field in body.split(b"\0") if field}


def _error(body: bytes) -> psycopg.Error:
    fields = _fields(body)
    diagnostic = Diagnostic(fields)
    try:
        kind: type[psycopg.Error] = psycopg.errors.lookup(diagnostic.sqlstate or "")
    except KeyError:
        kind = psycopg.DatabaseError
    return kind(diagnostic.message_primary or "the server gave no reason", info=fields)


def _unknown(kind: bytes, size: int) -> SourceError:
    reason = f"an unknown message {kind!r} of {size} bytes came"
    return SourceError("connection", reason, "connect to PostgreSQL directly, without a proxy")
