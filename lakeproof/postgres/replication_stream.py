"""The replication stream: messages of COPY BOTH in, status updates out.

Receiving bytes belongs to `channel.py`, decoding to `lakeproof.pgoutput`; deciding what may be acknowledged to
`lakeproof.drain.acknowledge`, the only caller of `acknowledge`. One thread owns a stream: libpq's connections are not to be
shared.

Why it pauses. The walsender sends one message per send() and wakes an eager reader for each of them. Letting the socket
fill for 150 µs whenever it was drained makes the server faster.

Why it never blocks. The server must hear from us by the clock: it counts silence, not acknowledgements, and ends a
connection after wal_sender_timeout.

Why it asks. An idle server says nothing, and neither does one behind a proxy that has forgotten the connection: TCP is
content with the proxy. So after half of `silence_timeout_s` the server is asked to answer, as by PostgreSQL's receiver.

Two-phase is never asked for: the option would set a flag of the slot for good.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import final

import psycopg
from psycopg.errors import Diagnostic
from psycopg.sql import SQL, Identifier, Literal
from pydantic import SecretStr

from lakeproof.errors import RECOVER, GapError, InvariantError, LakeproofError, SourceError, TransientError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.decoder import POSTGRES_EPOCH_US
from lakeproof.pgoutput.message_buffer import Wire
from lakeproof.postgres.connection import (
    Connection,
    close_quietly,
    connect_replication,
    rows,
    source_errors,
    translate,
    unconverted,
)
from lakeproof.postgres.connection_channel import LARGE_FETCH_BYTES, STREAM, open_channel
from lakeproof.postgres.connection_libpq import wait_readable
from lakeproof.postgres.replication_slot import in_use, read_slot, slot_problem

# One read fills at most this much before the loop looks at its clock: some 5 ms of a fast stream.
READ_BYTES = 1 << 20


# How long anything is waited for before stop flag and clock are looked at again.
WAIT_S = 0.25


_KEEPALIVE = b"k"
_KEEPALIVE_FORM = struct.Struct(">cqqB")
_STATUS_FORM = struct.Struct(">cQQQqB")

_PAUSE_S = 150e-6
# What is in hand waits this long for more, so that a trickle is not handed over message by message.
_LINGER_S = 0.002
_WAIT_SLICE_S = 1.0
# A server in fast shutdown answers each status with a ping, at full speed: 105,000 in 6 s were seen.
_REPLY_INTERVAL_S = 0.1
_START_RETRY_S = 0.1


@dataclass(slots=True)
class Received:
    """What one `read` brought.

    `keepalive_lsn` is the newest keepalive's end of WAL: it may be confirmed if everything received so far is durable and no
    transaction is open. `flush_wanted` says that the server waits for our position (it is shutting down): flush and
    acknowledge now.
    """

    wire: Wire = field(default_factory=Wire.none)
    keepalive_lsn: Lsn | None = None
    flush_wanted: bool = False


@final
class ReplicationStream:
    """An open START_REPLICATION; made by `open`, usable as a context manager.

    `confirmed` is the newest position told to the server, `server_version` its server_version_num,
    `proto_version` what was agreed on.
    """

    def __init__(
        self,
        conn: Connection,
        start: Lsn,
        proto_version: int,
        status_interval_s: float,
        silence_timeout_s: float = 300.0,
    ) -> None:
        self._conn = conn
        self._channel = open_channel(conn, STREAM, self._on_notice)
        self.server_version = conn.info.server_version
        self.proto_version = proto_version
        self.confirmed = start
        # What statuses say: none until somebody has acknowledged, so that looking at a slot's past does not move it.
        self._told = Lsn.ZERO
        self._status_interval_s = status_interval_s
        self._status_at = time.monotonic()
        self._silence_timeout_s = silence_timeout_s
        self._silent_since: float | None = None
        self._asked_at: float | None = None
        self._reply_wanted = False
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
        *,
        status_interval_s: float = 10.0,
        silence_timeout_s: float = 300.0,
        application_name: str = "lakeproof drain",
        wait_s: float = 0.0,
        streaming: bool = True,
        messages: bool = False,
    ) -> ReplicationStream:
        """Connect and start at `start`: every commit whose end LSN is greater comes.

        With `streaming` large transactions come while they are open; else the server keeps them until they commit. With
        `messages` logical messages come too.

        A slot that is in use is tried again for `wait_s` seconds, then TransientError. Raises GapError where the slot
        is gone or lost, SourceError where it or a publication can't be used.
        """
        deadline = time.monotonic() + wait_s
        while True:
            conn = connect_replication(dsn, application_name)
            try:
                _check_before_start(conn, slot, publications)
                proto = _proto_version(conn.info.server_version)
                stream = cls(conn, start, proto, status_interval_s, silence_timeout_s)
                stream._start(slot, publications, start, streaming=streaming, messages=messages)
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket at once; ending COPY politely would first bring the rest of a large transaction."""
        close_quietly(self._conn)

    def read(self, max_bytes: int, timeout_s: float) -> Received:
        """What has come, at most about `max_bytes` of it; waits up to `timeout_s` seconds for the first message.

        Sends status by the clock while it waits. An error or the end of the stream is raised by the call after the one
        that gave the last messages; whatever transaction is then incomplete will be sent again.
        """
        if self._failure is not None:
            raise self._failure
        received = Received()
        try:
            self._read_into(received, max_bytes, time.monotonic() + timeout_s)
        except psycopg.Error as error:
            self._failure = self._why(error)
        received.wire = self._taken()
        if self._failure is None and self._notice is not None:
            self._failure = LostPublicationError(self._notice)
            received.wire = Wire.none()
        if self._failure is not None and not len(received.wire):
            raise self._failure
        received.flush_wanted = self._pings > 1
        return received

    def acknowledge(self, lsn: Lsn) -> None:
        """Tell the server that everything up to `lsn` is durable here, and remember it for later statuses.

        Raises InvariantError where `lsn` is lower than what was told before, TransientError where the connection is lost.
        """
        if lsn < self.confirmed:
            reason = f"{self.confirmed} was acknowledged already, {lsn} is lower"
            raise InvariantError("replication stream", reason, "report this mistake")
        self.confirmed = self._told = lsn
        self._pings = 0
        self._send_or_fail()

    def tick(self) -> None:
        """Send a status if it is time or the server has asked; to be called at least every second while not reading."""
        if self._send_is_due(time.monotonic()):
            self._send_or_fail()

    def _start(self, slot: str, publications: Sequence[str], start: Lsn, *, streaming: bool, messages: bool) -> None:
        names = SQL(",").join(Identifier(name) for name in publications).as_string(self._conn)
        options = SQL(
            "proto_version {proto}, publication_names {names}, messages {messages}, streaming {streaming}"
        ).format(
            proto=Literal(str(self.proto_version)),
            names=Literal(names),
            messages=Literal("true" if messages else "false"),
            streaming=Literal("on" if streaming else "off"),
        )
        command = SQL("START_REPLICATION SLOT {slot} LOGICAL {lsn} ({options})").format(
            slot=Identifier(slot), lsn=SQL(str(start)), options=options
        )
        try:
            given_up_at = time.monotonic() + self._silence_timeout_s
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
        """Wait for the socket; False where messages are in hand and nothing follows."""
        if fetched:
            time.sleep(_PAUSE_S)
        in_hand = self._channel.size > 0
        longest = _LINGER_S if in_hand else min(left_s, _WAIT_SLICE_S)
        if self._reply_wanted:
            longest = min(longest, _REPLY_INTERVAL_S)
        if wait_readable(self._conn.pgconn.socket, longest, unsent=self._channel.unsent):
            return True
        self._listen(time.monotonic())
        return not in_hand

    def _taken(self) -> Wire:
        try:
            return self._channel.take()
        except LakeproofError as error:
            self._failure = self._failure or error
            return Wire.none()

    def _listen(self, now: float) -> None:
        """Nothing has come: ask for an answer in time, and give up where none comes."""
        half = self._silence_timeout_s / 2
        if self._silent_since is None:
            self._silent_since = now
        elif self._asked_at is None and now - self._silent_since >= half:
            self._asked_at = now
            self._send_status(ask=True)
        elif self._asked_at is not None and now - self._asked_at >= half:
            self._failure = self._silent()
            raise psycopg.OperationalError(self._failure.reason)

    def _silent(self) -> TransientError:
        reason = f"nothing came from the server for {self._silence_timeout_s:g} s, though it was asked to answer"
        return TransientError("replication stream", reason, "connect again")

    def _on_control(self, message: bytes, received: Received) -> None:
        if message[:1] != _KEEPALIVE or len(message) != _KEEPALIVE_FORM.size:
            reason = f"an unknown message {message[:1]!r} of {len(message)} bytes came between the messages"
            self._failure = SourceError("replication stream", reason, "connect to PostgreSQL directly, without a proxy")
            raise psycopg.OperationalError(reason)
        _, end, _, reply = _KEEPALIVE_FORM.unpack(message)
        received.keepalive_lsn = Lsn(end)
        if reply:
            self._reply_wanted = True
            self._pings += 1

    def _send_is_due(self, now: float) -> bool:
        silence_s = now - self._status_at
        return silence_s >= (_REPLY_INTERVAL_S if self._reply_wanted else self._status_interval_s)

    def _send_status(self, *, ask: bool = False) -> None:
        lsn = self._told.value
        clock = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        self._channel.send(_STATUS_FORM.pack(b"r", lsn, lsn, lsn, clock, int(ask)))
        self._status_at = time.monotonic()
        self._reply_wanted = False

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
            # Up to PostgreSQL 17 an error, from 18 on the warning of `_on_notice`: all publications were there at the start.
            return LostPublicationError(error.diag.message_primary)
        if error.sqlstate is None:
            return TransientError("replication stream", str(error).strip().splitlines()[0], "connect again")
        return translate(error, "replication stream")

    def _on_notice(self, diagnostic: Diagnostic) -> None:
        # The server's language may be any; the SQLSTATE tells this warning from others.
        if diagnostic.sqlstate == "55000" and diagnostic.severity_nonlocalized == "WARNING":
            self._notice = diagnostic.message_primary or "a publication was skipped"


def _proto_version(server_version: int) -> int:
    """The highest that the server speaks; two-phase (3) and parallel streaming (4), which it allows, are not asked for."""
    return min(4, max(2, server_version // 10000 - 12))


def _check_before_start(conn: Connection, slot: str, publications: Sequence[str]) -> None:
    state = read_slot(conn, slot)
    if state is None:
        raise GapError(f"slot {slot}", "it does not exist", RECOVER)
    problem = slot_problem(state, conn.info.dbname)
    if problem is not None and state.lost:
        raise GapError(problem.thing, problem.reason, problem.remedy)
    if problem is not None:
        raise problem
    with source_errors("publications"):
        found = {r["pubname"] for r in rows(conn, SQL("SELECT pubname::text FROM pg_catalog.pg_publication"))}
    for name in publications:
        if name not in found:
            # From PostgreSQL 18 on the server would only warn and leave the changes out.
            raise SourceError(f"publication {name}", "it does not exist", "run `lakeproof apply`")
    if not publications:
        raise SourceError("publications", "there is none to read", "run `lakeproof apply`")


class LostPublicationError(SourceError):
    """A publication that was there at the start is none for the server at the slot's place in the WAL."""

    def __init__(self, notice: str) -> None:
        # Made again it is no help: the slot's place in the WAL is before that, where there is none for the server.
        reason = f"{notice}: it was made after the slot's position, and changes from there on would be left out"
        super().__init__("replication stream", reason, RECOVER)
