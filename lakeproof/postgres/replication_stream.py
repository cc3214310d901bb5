"""The replication stream: messages of COPY BOTH in, status updates out.

Receiving bytes (`connections/channel.py`), decoding them (`lakeproof.pgoutput`) and deciding what may be acknowledged
(`lakeproof.drain.acknowledge`, the only caller of `acknowledge`) do not belong here. One thread owns a stream: libpq's
connections must not be shared.

Why it pauses. The walsender sends one message per send() and wakes an eager reader for each of them. Letting the socket
fill for 150 µs whenever it was drained makes the server faster.

Why it never blocks. The server must get a status by the clock: it counts silence, not acknowledgements, and ends a
connection after wal_sender_timeout.

Why it asks. An idle server sends nothing, and neither does one behind a proxy that has forgotten the connection: TCP is
content with the proxy. So after half of `silence_timeout_s` the server is asked to answer, as PostgreSQL's receiver does.

What it reports. A status has three positions, which pg_stat_replication shows as write, flush and replay with their lags:
what has come, what is durable, and what is in the newest cut. They are never in another order, whatever the caller says:
flush is what was acknowledged, write is never behind it, and replay never ahead. PostgreSQL moves the slot by flush alone.

Two-phase is never asked for: the option would set a flag of the slot for good.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import final

import psycopg
from psycopg.errors import Diagnostic
from psycopg.sql import SQL, Identifier, Literal
from pydantic import SecretStr

from lakeproof.errors import RECOVER, GapError, InvariantError, LakeproofError, SourceError, TransientError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.connections.channel import open_channel
from lakeproof.postgres.connections.connect import (
    Connection,
    close_quietly,
    connect_replication,
    translate,
    unconverted,
)
from lakeproof.postgres.connections.libpq import wait_readable
from lakeproof.postgres.connections.protocol import LARGE_FETCH_BYTES, STREAM
from lakeproof.postgres.replication_slot import check_before_start, in_use
from lakeproof.values.commit_times import number_of

# The limit of one read before the loop checks its clock: some 5 ms of a fast stream.
READ_BYTES = 1 << 20
# The longest wait before the stop flag and the clock are checked again.
WAIT_S = 0.25

_KEEPALIVE = b"k"
_KEEPALIVE_FORM = struct.Struct(">cqqB")
_STATUS_FORM = struct.Struct(">cQQQqB")

_PAUSE_S = 150e-6
# Received messages wait this long for more, so that a trickle is not handed over message by message.
_LINGER_S = 0.002
_WAIT_SLICE_S = 1.0
# A server in fast shutdown answers each status with a ping, at full speed: 105,000 in 6 s were measured.
_REPLY_INTERVAL_S = 0.1
# What has come, or is in a cut, is reported this soon: the server measures its lags by it.
_NOTED_INTERVAL_S = 1.0
_START_RETRY_S = 0.1
_LAST_READ_S = 1.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    With `streaming`, large transactions come while they are open; else the server keeps them until they commit. With
    `messages`, logical messages come too. A slot in use is tried again for `wait_s` seconds.
    """

    status_interval_s: float = 10.0
    silence_timeout_s: float = 300.0
    application_name: str = "lakeproof drain"
    wait_s: float = 0.0
    streaming: bool = True
    messages: bool = False


@dataclass(slots=True)
class Received:
    """The result of one `read`.

    `keepalive_lsn` is the newest keepalive's end of WAL: it may be confirmed if everything received so far is durable and no
    transaction is open. `flush_requested`: the server waits for our position (it is shutting down), so flush and acknowledge
    now.
    """

    buffer: MessageBuffer = field(default_factory=MessageBuffer.none)
    keepalive_lsn: Lsn | None = None
    flush_requested: bool = False


@final
class ReplicationStream:
    """An open START_REPLICATION, opened by `open`; a context manager. `confirmed` is the newest position that was sent."""

    def __init__(self, conn: Connection, start: Lsn, options: StreamOptions) -> None:
        self._conn = conn
        self._options = options
        self._channel = open_channel(conn, STREAM, self._on_notice)
        self.confirmed = start
        # The position in statuses: zero until somebody has acknowledged, so that reading a slot's past does not move it.
        self._reported = Lsn.ZERO
        self._noted = self._sent = (Lsn.ZERO, Lsn.ZERO)
        self._status_at = time.monotonic()
        self._silent_since: float | None = None
        self._asked_at: float | None = None
        self._reply_requested = False
        self._pings = 0
        self._notice: str | None = None
        self._failure: LakeproofError | None = None
        conn.add_notice_handler(self._on_notice)

    @classmethod
    def open(
        cls,
        dsn: SecretStr,
        slot: str,
        publications: Sequence[str],
        start: Lsn,
        options: StreamOptions | None = None,
    ) -> ReplicationStream:
        """Connect and start at `start`: every commit with a greater end LSN comes.

        Raises TransientError if the slot is in use for longer than the options allow, GapError if it is gone or lost,
        SourceError if it or a publication can't be used.
        """
        options = options or StreamOptions()
        deadline = time.monotonic() + options.wait_s
        while True:
            conn = connect_replication(dsn, options.application_name)
            try:
                check_before_start(conn, slot, publications)
                stream = cls(conn, start, options)
                stream._start(slot, publications, start)
            except psycopg.errors.ObjectInUse:
                try:
                    error = in_use(conn, slot)
                finally:
                    close_quietly(conn)
                if time.monotonic() >= deadline:
                    raise error from None
                time.sleep(_START_RETRY_S)
            except BaseException:
                close_quietly(conn)
                raise
            else:
                return stream

    def __enter__(self) -> ReplicationStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket; ending COPY politely would first bring the rest of a large transaction.

        The kernel resets a connection that is closed with unread bytes, and the server forgets what it has not read of it,
        the last acknowledgement. So it may get to its end first, for `_LAST_READ_S` at most.
        """
        if self._failure is None:
            with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self._conn.fileno())) as sent:
                sent.shutdown(socket.SHUT_WR)
                until = time.monotonic() + _LAST_READ_S
                while wait_readable(sent.fileno(), max(until - time.monotonic(), 0.0)) and sent.recv(LARGE_FETCH_BYTES):
                    pass
        close_quietly(self._conn)

    def read(self, max_bytes: int, timeout_s: float) -> Received:
        """Return what has come, at most about `max_bytes`; wait up to `timeout_s` seconds for the first message.

        Sends status by the clock while it waits. An error or the end of the stream is raised by the call after the one that
        returned the last messages; a transaction that is incomplete then will be sent again.
        """
        if self._failure is not None:
            raise self._failure
        received = Received()
        try:
            self._read_into(received, max_bytes, time.monotonic() + timeout_s)
        except psycopg.Error as error:
            self._failure = self._why(error)
        received.buffer = self._taken()
        if self._failure is None and self._notice is not None:
            self._failure = LostPublicationError(self._notice)
            received.buffer = MessageBuffer.none()
        if self._failure is not None and not len(received.buffer):
            raise self._failure
        received.flush_requested = self._pings > 1
        return received

    def acknowledge(self, lsn: Lsn) -> None:
        """Report to the server that everything up to `lsn` is durable here, and remember that for later statuses.

        Raises InvariantError if `lsn` is lower than an earlier one, TransientError if the connection is lost.
        """
        if lsn < self.confirmed:
            reason = f"{self.confirmed} was acknowledged already, {lsn} is lower"
            raise InvariantError("replication stream", reason, "report this mistake")
        self.confirmed = self._reported = lsn
        self._pings = 0
        self._send_or_fail()

    def note(self, *, received: Lsn, applied: Lsn | None) -> None:
        """Take what later statuses report beside the durable position; `applied` is None if nobody knows it."""
        self._noted = received, applied or Lsn.ZERO

    def tick(self) -> None:
        """Send a status if it is time or the server has asked; call this at least every second while not reading."""
        if self._send_is_due(time.monotonic()):
            self._send_or_fail()

    def _start(self, slot: str, publications: Sequence[str], start: Lsn) -> None:
        names = SQL(",").join(Identifier(name) for name in publications).as_string(self._conn)
        options = SQL(
            "proto_version {proto}, publication_names {names}, messages {messages}, streaming {streaming}"
        ).format(
            proto=Literal(str(_newest_protocol(self._conn.info.server_version))),
            names=Literal(names),
            messages=Literal("true" if self._options.messages else "false"),
            streaming=Literal("on" if self._options.streaming else "off"),
        )
        command = SQL("START_REPLICATION SLOT {slot} LOGICAL {lsn} ({options})").format(
            slot=Identifier(slot), lsn=SQL(str(start)), options=options
        )
        try:
            given_up_at = time.monotonic() + self._options.silence_timeout_s
            give_up = lambda: time.monotonic() > given_up_at  # noqa: E731  one line beside its deadline
            text = command.as_bytes(self._conn)
            with unconverted(self._conn):
                self._channel.start(text, give_up)
        except InterruptedError:
            raise self._silent() from None
        except psycopg.errors.ObjectInUse:
            raise
        except psycopg.Error as error:
            if error.sqlstate in ("42704", "55000"):
                reason = f"the server refused to start: {error.diag.message_primary}"
                raise GapError(f"slot {slot}", reason, RECOVER) from None
            raise translate(error, f"slot {slot}") from None

    def _read_into(self, received: Received, max_bytes: int, deadline: float) -> None:
        channel = self._channel
        while True:
            fetched = channel.fetch()
            if fetched:
                self._silent_since = self._asked_at = None
            for message in channel.controls:
                self._on_control(message, received)
            channel.controls.clear()
            if channel.ended:
                self._failure = TransientError(
                    "replication stream", "the server ended it (it is shutting down)", "connect again"
                )
                break
            now = time.monotonic()
            if self._send_is_due(now):
                self._send_status()
            if channel.size >= max_bytes or channel.full or now >= deadline:
                break
            if fetched < LARGE_FETCH_BYTES and not self._wait(deadline - now, fetched):
                break

    def _wait(self, left_s: float, fetched: int) -> bool:
        """Wait for the socket; False if messages were received and no more follow."""
        if fetched:
            time.sleep(_PAUSE_S)
        in_hand = self._channel.size > 0
        longest = _LINGER_S if in_hand else min(left_s, _WAIT_SLICE_S)
        if self._reply_requested:
            longest = min(longest, _REPLY_INTERVAL_S)
        if wait_readable(self._conn.pgconn.socket, longest, unsent=self._channel.unsent):
            return True
        self._listen(time.monotonic())
        return not in_hand

    def _taken(self) -> MessageBuffer:
        try:
            return self._channel.take()
        except LakeproofError as error:
            self._failure = self._failure or error
            return MessageBuffer.none()

    def _listen(self, now: float) -> None:
        """Handle silence: ask for an answer in time, and give up if none comes."""
        half = self._options.silence_timeout_s / 2
        if self._silent_since is None:
            self._silent_since = now
        elif self._asked_at is None and now - self._silent_since >= half:
            self._asked_at = now
            self._send_status(ask=True)
        elif self._asked_at is not None and now - self._asked_at >= half:
            self._failure = self._silent()
            raise psycopg.OperationalError(self._failure.reason)

    def _silent(self) -> TransientError:
        reason = (
            f"nothing came from the server for {self._options.silence_timeout_s:g} s, though it was asked to answer"
        )
        return TransientError("replication stream", reason, "connect again")

    def _on_control(self, message: bytes, received: Received) -> None:
        if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_FORM.size:
            reason = f"an unknown message {message[:1]!r} of {len(message)} bytes came between the messages"
            self._failure = SourceError("replication stream", reason, "connect to PostgreSQL directly, without a proxy")
            raise psycopg.OperationalError(reason)
        _, end, _, reply = _KEEPALIVE_FORM.unpack(message)
        received.keepalive_lsn = Lsn(end)
        if reply:
            self._reply_requested = True
            self._pings += 1

    def _send_is_due(self, now: float) -> bool:
        interval_s = self._options.status_interval_s
        if self._reply_requested:
            interval_s = _REPLY_INTERVAL_S
        elif self._noted != self._sent:
            interval_s = min(_NOTED_INTERVAL_S, interval_s)
        return now - self._status_at >= interval_s

    def _send_status(self, *, ask: bool = False) -> None:
        durable = self._reported.value
        received, applied = (position.value for position in self._noted)
        # Zero until somebody has acknowledged, all of them: "not known".
        received = max(received, durable) if durable else 0
        clock = number_of(time.time_ns() // 1000)
        self._channel.send(_STATUS_FORM.pack(b"r", received, durable, min(applied, durable), clock, int(ask)))
        self._status_at, self._sent = time.monotonic(), self._noted
        self._reply_requested = False

    def _send_or_fail(self) -> None:
        try:
            self._send_status()
        except psycopg.Error as error:
            raise self._why(error) from None

    def _why(self, error: psycopg.Error) -> LakeproofError:
        if self._failure is not None:
            return self._failure
        if error.sqlstate == "55000":
            reason = f"the slot can't be read any more: {error.diag.message_primary}"
            return GapError("replication stream", reason, RECOVER)
        if error.sqlstate == "42704" and error.diag.message_primary:
            # An error up to PostgreSQL 17, the warning of `_on_notice` from 18 on: all publications existed at the start.
            return LostPublicationError(error.diag.message_primary)
        if error.sqlstate is None:
            return TransientError("replication stream", str(error).strip().splitlines()[0], "connect again")
        failure = translate(error, "replication stream")
        if isinstance(failure, SourceError):
            return StreamFailedError(failure.thing, failure.reason, failure.remedy)
        return failure

    def _on_notice(self, diagnostic: Diagnostic) -> None:
        # The server may use any language; the SQLSTATE separates this warning from others.
        if diagnostic.sqlstate == "55000" and diagnostic.severity_nonlocalized == "WARNING":
            self._notice = diagnostic.message_primary or "a publication was skipped"


class StreamFailedError(SourceError):
    """The server ended the stream by an error of its own, which it meets while it decodes its log."""


class LostPublicationError(StreamFailedError):
    """A publication that existed at the start does not exist at the slot's place in the WAL."""

    def __init__(self, notice: str) -> None:
        # Creating it again does not help: the slot's place in the WAL is before that, so the server finds none there.
        reason = f"{notice}: it was created after the slot's position, and changes from there on would be left out"
        super().__init__("replication stream", reason, RECOVER)


def _newest_protocol(server_version: int) -> int:
    """Return the server's highest version; two-phase (3) and parallel streaming (4), which it allows, are not asked for."""
    return min(4, max(2, server_version // 10000 - 12))
