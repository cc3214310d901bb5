"""A COPY's bytes, cut anywhere, become its messages: random ones over a pair of sockets, and what is none of PostgreSQL's.

What a real server sends, and the road through libpq, are in tests/edges/drain/test_encrypted_connection.py.
"""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.errors import Diagnostic

from lakeproof.errors import SourceError
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.postgres.connections.channel import DirectChannel
from lakeproof.postgres.connections.protocol import ROWS, STREAM, CopyProtocol

_BEGUN = {b"W": b"W" + struct.pack(">Ibh", 7, 0, 0), b"H": b"H" + struct.pack(">Ibh", 7, 0, 0)}


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Ours and the server's."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def _channel(
    ours: socket.socket, form: CopyProtocol, hear: Callable[[Diagnostic], None] | None, room_bytes: int
) -> DirectChannel:
    return DirectChannel(ours.fileno(), form, hear, room_bytes)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", 4 + len(body)) + body


@pytest.mark.parametrize("seed", range(150))
def test_messages_come_back_from_any_pieces(seed: int, ends: tuple[socket.socket, socket.socket]) -> None:
    """Messages of any size come through buffers of any size, mixed with others; a message once taken never changes."""
    rng = random.Random(seed)
    form = rng.choice([STREAM, ROWS])
    header = b"w" + bytes(24) if form is STREAM else b""
    notices: list[str | None] = []
    reported: list[str] = []

    def hear(diagnostic: Diagnostic) -> None:
        notices.append(diagnostic.message_primary)

    channel = _channel(ends[0], form, hear, rng.choice([1, 7, 40, 100, 1000, 5000]))
    ends[1].sendall(_BEGUN[form.response])
    channel.start(b"COPY")
    expected, controls, octets = [], [], b""
    for number in range(rng.choice([5, 80])):
        chance = rng.random()
        if chance < 0.1:
            octets += _message(b"S", b"x\0" + b"y" * rng.choice([0, 3, 300]) + b"\0")
        elif chance < 0.2:
            reported.append(f"notice {number}")
            octets += _message(b"N", b"SNOTICE\0M" + reported[-1].encode() + b"\0\0")
        elif chance < 0.3 and form is STREAM:
            controls.append(b"k" + bytes(17))
            octets += _message(b"d", controls[-1])
        else:
            expected.append(rng.randbytes(rng.choice([1, 2, 5, 30, 200, 3000])))
            octets += _message(b"d", header + expected[-1])
    kept: list[tuple[MessageBuffer, list[bytes]]] = []
    heard: list[bytes] = []
    octets += _message(b"c", b"") + _message(b"C", b"COPY 1\0") + _message(b"Z", b"I")
    while octets:
        size = rng.choice([1, 3, 17, 200, 5000])
        ends[1].sendall(octets[:size])
        octets = octets[size:]
        while not channel.ended and channel.fetch():
            heard += channel.controls
            channel.controls.clear()
            if channel.full or rng.random() < 0.2:
                taken = channel.take()
                kept.append((taken, list(taken)))
    taken = channel.take()
    kept.append((taken, list(taken)))
    assert channel.ended
    assert all(list(wire) == before for wire, before in kept)
    assert [message for _, messages in kept for message in messages] == expected
    assert (heard, notices) == (controls, reported)


@pytest.mark.parametrize("octets", [_message(b"?", b"x"), b"d\0\0\0\3", b"d\x7f\xff\xff\xff", b"E\xff\xff\xff\xff"])
def test_what_is_no_message_is_refused_by_name(octets: bytes, ends: tuple[socket.socket, socket.socket]) -> None:
    """An unknown kind, and lengths that can't be."""
    channel = _channel(ends[0], STREAM, None, 1000)
    ends[1].sendall(_BEGUN[b"W"])
    channel.start(b"COPY")
    ends[1].sendall(octets)
    with pytest.raises(SourceError, match="an unknown message"):
        channel.fetch()


def test_an_error_is_the_servers_with_its_fields(ends: tuple[socket.socket, socket.socket]) -> None:
    """The connection can be used afterwards, if the server says so."""
    channel = _channel(ends[0], ROWS, None, 1000)
    ends[1].sendall(_message(b"E", b"SERROR\0VERROR\0C22012\0Mdivision by zero\0\0") + _message(b"Z", b"I"))
    with pytest.raises(psycopg.errors.DivisionByZero, match="division by zero") as raised:
        channel.start(b"COPY")
    assert (raised.value.sqlstate, raised.value.diag.message_primary) == ("22012", "division by zero")
    assert channel.idle


def test_a_connection_that_ends_is_no_end_of_the_copy(ends: tuple[socket.socket, socket.socket]) -> None:
    """The messages before it can still be taken."""
    channel = _channel(ends[0], ROWS, None, 1000)
    ends[1].sendall(_BEGUN[b"H"] + _message(b"d", b"1\n"))
    channel.start(b"COPY")
    ends[1].recv(100)
    ends[1].close()
    with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
        _fetch_on(channel)
    assert (list(channel.take()), channel.ended, channel.idle) == ([b"1\n"], False, False)


def _fetch_on(channel: DirectChannel) -> None:
    for _ in range(10):
        channel.fetch()
