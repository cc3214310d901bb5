"""The roads on which bytes come bring the same: from the socket in the clear, and through libpq under TLS."""

from __future__ import annotations

import select
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr

from lakeproof.errors import TransientError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.messages import StreamStart
from lakeproof.postgres.connections.channel import DirectChannel, LibpqChannel
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.connections.protocol import ROOM_BYTES
from lakeproof.postgres.copying.blocks import copy_blocks
from lakeproof.postgres.replication_stream import ReplicationStream, StreamOptions
from tests.support.servers.fix_postgres import Database
from tests.support.servers.slots import create_slot

_ROADS = {"disable": DirectChannel, "require": LibpqChannel}


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return the certificate of a server, made for this run."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl makes the server's certificate; it is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = [program, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", folder / "key", "-out", folder / "crt"], check=True, capture_output=True)
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    result.load_cert_chain(folder / "crt", folder / "key")
    return result


@pytest.fixture
def dsns(database: Database, context: ssl.SSLContext) -> Iterator[dict[str, SecretStr]]:
    """The server itself, and behind a proxy that speaks TLS: the embedded server is built without it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener, context, database.server.port), daemon=True).start()
        parts = {**conninfo_to_dict(database.dsn), "port": listener.getsockname()[1], "sslmode": "require"}
        yield {"disable": database.secret, "require": SecretStr(make_conninfo(**parts))}


def _serve(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_forward, args=(client, context, port), daemon=True).start()


def _forward(client: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """Answer SSLRequest as the server would, then hand on everything."""
    with suppress(OSError):
        client.recv(8, socket.MSG_WAITALL)
        client.sendall(b"S")
        with (
            context.wrap_socket(client, server_side=True) as secure,
            socket.create_connection(("127.0.0.1", port)) as up,
        ):
            while True:
                ready = [secure] if secure.pending() else select.select([secure, up], [], [])[0]
                for one in ready:
                    octets = one.recv(1 << 16)
                    if not octets:
                        return
                    (up if one is secure else secure).sendall(octets)


def _stream(database: Database, dsns: dict[str, SecretStr], road: str, start: Lsn) -> list[bytes]:
    """Every message up to the end of WAL, and that the road was the one meant."""
    end = database.end_of_wal()
    messages: list[bytes] = []
    deadline = time.monotonic() + 120
    options = StreamOptions(wait_s=30)
    with ReplicationStream.open(dsns[road], database.name, ["pub"], start, options) as stream:
        assert type(stream._channel) is _ROADS[road]
        while time.monotonic() < deadline:
            received = stream.read(ROOM_BYTES, 0.2)
            messages += received.buffer
            if received.keepalive_lsn is not None and received.keepalive_lsn >= end:
                return messages
    raise AssertionError(f"no keepalive at {end} within 120 s")


def test_all_roads_bring_the_same_messages(database: Database, dsns: dict[str, SecretStr]) -> None:
    """Small ones, one larger than what is read at once, streamed ones: in the same order, byte by byte."""
    database.execute(
        SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(Identifier(database.name)),
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    start = create_slot(database.secret, database.name)
    database.execute(
        "INSERT INTO t SELECT g, repeat('x', g % 300) FROM generate_series(1, 3000) g",
        SQL("INSERT INTO t SELECT 10000 + g, repeat('y', {} * g) FROM generate_series(1, 5) g").format(ROOM_BYTES),
        "UPDATE t SET v = 'z' WHERE id < 100",
    )
    actual = [_stream(database, dsns, road, start) for road in _ROADS]
    assert isinstance(next(decode(octets) for octets in actual[0] if octets[:1] == b"S"), StreamStart)
    tags = b"".join(octets[:1] for octets in actual[0])
    assert (tags.count(b"I"), tags.count(b"U")) == (3005, 99)
    assert actual[0] == actual[1]


def test_all_roads_copy_the_same_rows(database: Database, dsns: dict[str, SecretStr]) -> None:
    """Blocks have any size, and the connection stays usable, also after an error in the middle of a COPY."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute(
        "INSERT INTO t SELECT g, repeat('x', g % 300) FROM generate_series(1, 20000) g",
        "INSERT INTO t VALUES (0, NULL), (-1, repeat('y', 3000000)), (-2, '')",
    )
    query = SQL("SELECT * FROM {} ORDER BY id").format(Identifier("public", "t"))
    bad = SQL("SELECT 1 / (5000 - id) FROM {} ORDER BY id").format(Identifier("public", "t"))
    actual = []
    for road in _ROADS:
        with connect(dsns[road]) as conn:
            with pytest.raises(psycopg.errors.DivisionByZero):
                list(copy_blocks(conn, bad))
            for block_bytes in (10_000, 1 << 24):
                actual.append([row for block in copy_blocks(conn, query, block_bytes=block_bytes) for row in block])
                assert conn.execute("SELECT 1").fetchone() == (1,)
    assert all(rows == actual[0] for rows in actual)
    assert len(actual[0]) == 20_003


@pytest.mark.parametrize("road", _ROADS)
def test_a_copy_that_is_left_in_its_middle_closes_the_connection(
    database: Database, dsns: dict[str, SecretStr], road: str
) -> None:
    """Rows of 'D's could be taken for the server's messages by whoever read on."""
    database.execute(
        "CREATE TABLE t (v text)", "INSERT INTO t SELECT repeat('D', 1000) FROM generate_series(1, 20000) g"
    )
    with connect(dsns[road]) as conn:
        blocks = copy_blocks(conn, SQL("SELECT v FROM {}").format(Identifier("public", "t")), block_bytes=20_000)
        assert len(next(blocks))
        blocks.close()
        assert conn.closed


@pytest.mark.parametrize("road", _ROADS)
def test_every_road_says_how_a_connection_ended(database: Database, dsns: dict[str, SecretStr], road: str) -> None:
    """A walsender that was terminated can be tried again."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    start = create_slot(database.secret, database.name)
    with ReplicationStream.open(dsns[road], database.name, ["pub"], start) as stream:
        stream.read(1, 0.1)
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        )
        with pytest.raises(TransientError, match="terminating connection"):
            _read_on(stream)


def _read_on(stream: ReplicationStream) -> None:
    for _ in range(100):
        stream.read(1 << 20, 0.2)
