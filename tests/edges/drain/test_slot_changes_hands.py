"""A slot that a stranger held between our look at it and our start: what the stranger was given never came to us."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from psycopg.pq import ExecStatus
from psycopg.sql import SQL, Identifier
from pydantic import SecretStr

from lakeproof.drain.until import Until
from lakeproof.errors import GapError
from lakeproof.failpoints import watched
from lakeproof.postgres.connections.connect import Connection, close_quietly, connect_replication
from lakeproof.postgres.connections.libpq import start_copy
from tests.support.ingest.fix_drain import Drained, wait_until

pytestmark = pytest.mark.postgres

_STATUS = struct.Struct(">cQQQqB")


@contextmanager
def _stranger(begun: Drained) -> Iterator[Connection]:
    """Return a reader of the slot that is not a drain of ours."""
    conn = connect_replication(SecretStr(begun.dsn), "stranger")
    try:
        options = SQL("proto_version '1', publication_names 'shop'")
        command = SQL("START_REPLICATION SLOT {} LOGICAL 0/0 ({})").format(Identifier(begun.slot), options)
        start_copy(conn.pgconn, command.as_bytes(conn), ExecStatus.COPY_BOTH)
        yield conn
    finally:
        close_quietly(conn)


def _confirm(conn: Connection, begun: Drained) -> None:
    end = begun.database.end_of_wal()
    conn.pgconn.put_copy_data(_STATUS.pack(b"r", end.value, end.value, end.value, 0, 0))
    while conn.pgconn.flush():
        time.sleep(0.01)
    wait_until(lambda: begun.confirmed_flush() == end)


def test_a_slot_moved_while_a_lasting_drain_waits_for_it_is_a_gap(drained: Drained) -> None:
    """The drain sees a slot in order, waits for its holder to go, and must look again once the slot is its own."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY)")
    drained.begin()
    drained.drain()
    end = drained.chain().end
    with _stranger(drained) as stranger:

        def stranger_goes_first(name: str) -> None:
            if name != "drain.before_stream" or stranger.closed:
                return
            drained.database.execute("INSERT INTO items VALUES (1)")
            _confirm(stranger, drained)
            close_quietly(stranger)

        with watched(stranger_goes_first), pytest.raises(GapError, match="advanced elsewhere"):
            drained.drain(Until.seconds(120))
    assert drained.chain().end == end
