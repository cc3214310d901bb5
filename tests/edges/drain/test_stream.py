"""The replication stream against a real server: order, positions, keepalives, and each way it can end.

What the messages mean is tested in tests/core; what the drain makes of them in its own tests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.errors import RECOVER, GapError, InvariantError, SourceError, TransientError
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.messages import Begin, Commit, Insert, LogicalMessage
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.replication_slot import read_slot
from lakeproof.postgres.replication_stream import Received, ReplicationStream, StreamOptions
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database, MakeServer
from tests.support.servers.slots import create_slot


def _slot(database: Database) -> Lsn:
    """A table with a publication, and a slot."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE PUBLICATION pub FOR TABLE t")
    return create_slot(database.secret, database.name)


def _open(
    database: Database,
    start: Lsn,
    publications: tuple[str, ...] = ("pub",),
    *,
    status_interval_s: float = 10.0,
    wait_s: float = 0.0,
) -> ReplicationStream:
    return ReplicationStream.open(
        database.secret,
        database.name,
        publications,
        start,
        StreamOptions(status_interval_s=status_interval_s, wait_s=wait_s, messages=True),
    )


def _until(stream: ReplicationStream, end: Lsn, max_bytes: int = 1 << 20) -> list[bytes]:
    """Everything up to a keepalive at `end`; of an idle server what no commit waits for may come half a minute later."""
    messages: list[bytes] = []
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        got = stream.read(max_bytes, 0.2)
        messages += got.buffer
        if got.keepalive_lsn is not None and got.keepalive_lsn >= end:
            return messages
    raise AssertionError(f"no keepalive at {end} within 90 s")


def _messages(octets: Iterable[bytes]) -> list[object]:
    return [decode(message) for message in octets]


def test_whole_transactions_come_in_commit_order(database: Database) -> None:
    """Inserts stand between Begin and Commit; positions grow with each Commit."""
    start = _slot(database)
    database.execute("INSERT INTO t SELECT g, 'a' FROM generate_series(1, 500) g", "INSERT INTO t VALUES (501, 'b')")
    with _open(database, start) as stream:
        messages = _messages(_until(stream, database.end_of_wal()))
    assert sum(isinstance(message, Insert) for message in messages) == 501
    commits = [message for message in messages if isinstance(message, Commit)]
    assert [c.end_lsn for c in commits] == sorted(c.end_lsn for c in commits)


def test_reading_in_small_pieces_gives_the_same_frames(database: Database) -> None:
    """max_bytes decides about the size of a read, not about what comes."""
    start = _slot(database)
    database.execute("INSERT INTO t SELECT g, repeat('x', g) FROM generate_series(1, 300) g")
    end = database.end_of_wal()
    with _open(database, start) as stream:
        whole = _until(stream, end)
    with _open(database, start) as stream:
        assert _until(stream, end, max_bytes=1) == whole


def test_a_restart_skips_what_ends_at_or_before_the_start(database: Database) -> None:
    """Started at a Commit's end LSN, the stream brings the next transaction first, though nothing was acknowledged."""
    start = _slot(database)
    database.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    with _open(database, start) as stream:
        first = next(m for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Commit))
    with _open(database, first.end_lsn) as stream:
        rows = [m.new for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Insert)]
    assert rows == [("2", "b")]


def test_the_slot_moves_to_what_was_acknowledged_and_never_back(database: Database) -> None:
    """acknowledge(lsn) shows as confirmed_flush_lsn; a lower one is refused here, before the server sees it."""
    start = _slot(database)
    database.execute("INSERT INTO t VALUES (1, 'a')")
    with connect(database.secret) as conn, _open(database, start) as stream:
        end = next(m.end_lsn for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Commit))
        assert _confirmed(conn, database) == start
        stream.acknowledge(end)
        wait_until(lambda: _confirmed(conn, database) == end)
        with pytest.raises(InvariantError, match="lower"):
            stream.acknowledge(start)


def test_looking_at_a_slot_does_not_move_it(database: Database) -> None:
    """A stream may begin further on than the slot stands: until somebody acknowledges, statuses tell no position."""
    start = _slot(database)
    database.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')")
    with connect(database.secret) as conn:
        with _open(database, start) as stream:
            first = next(m for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Commit))
        with _open(database, first.end_lsn, status_interval_s=0.05, wait_s=10) as stream:
            _until(stream, database.end_of_wal())
            for _ in range(5):
                time.sleep(0.06)
                stream.tick()
            replied = (
                "SELECT reply_time FROM pg_stat_replication WHERE pid = (SELECT active_pid FROM pg_replication_slots)"
            )
            assert conn.execute(replied).fetchone() is not None
            assert _confirmed(conn, database) == start


def _confirmed(conn: psycopg.Connection, database: Database) -> Lsn | None:
    state = read_slot(conn, database.name)
    assert state is not None
    return state.confirmed_flush_lsn


def test_logical_messages_come_and_two_phase_stays_off(database: Database) -> None:
    """A logical message is delivered; a prepared transaction comes at COMMIT PREPARED, and the slot's flag stays off."""
    start = _slot(database)
    with database.connect() as conn:
        conn.execute("SELECT pg_logical_emit_message(false, 'beat', 'now')")
        conn.execute("BEGIN")
        conn.execute("INSERT INTO t VALUES (1, 'prepared')")
        conn.execute(SQL("PREPARE TRANSACTION {}").format(database.name))
        with _open(database, start) as stream:
            message = _messages(_until(stream, database.end_of_wal()))
            assert [m.prefix for m in message if isinstance(m, LogicalMessage)] == ["beat"]
            assert not any(isinstance(m, Begin | Insert) for m in message)
            conn.execute(SQL("COMMIT PREPARED {}").format(database.name))
            assert [m.new for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Insert)]
        state = read_slot(conn, database.name)
    assert state is not None
    assert not state.two_phase


def test_two_publications_are_read_together(database: Database) -> None:
    """Tables of both publications come over one slot; odd names are quoted."""
    database.execute("CREATE TABLE h (v int)", """CREATE PUBLICATION "pub, 'x" FOR TABLE h WITH (publish = 'insert')""")
    start = _slot(database)
    database.execute("INSERT INTO t VALUES (1, 'a')", "INSERT INTO h VALUES (2)")
    with _open(database, start, ("pub", "pub, 'x")) as stream:
        rows = [m.new for m in _messages(_until(stream, database.end_of_wal())) if isinstance(m, Insert)]
    assert rows == [("1", "a"), ("2",)]


def test_a_missing_slot_is_a_gap_and_a_missing_publication_is_refused(database: Database) -> None:
    """A silent restart of either would lose the changes since."""
    with pytest.raises(GapError, match="does not exist"):
        _open(database, Lsn.ZERO)
    start = _slot(database)
    with pytest.raises(SourceError, match="nothing"):
        _open(database, start, ("pub", "nothing"))


def test_a_publication_made_after_the_changes_is_not_skipped_in_silence(database: Database) -> None:
    """PostgreSQL 18 only warns that it leaves changes out, earlier ones end the stream: here it is one error."""
    start = _slot(database)
    database.execute("INSERT INTO t VALUES (1, 'before')", "CREATE PUBLICATION late FOR TABLE t")
    with _open(database, start, ("late",)) as stream, pytest.raises(SourceError, match="late") as raised:
        _until(stream, database.end_of_wal())
    assert raised.value.remedy == RECOVER


def test_a_slot_in_use_is_reported_with_its_holder_and_tried_again_for_a_while(database: Database) -> None:
    """A second reader gets a TransientError that names the process; with patience it takes over when the first ends."""
    start = _slot(database)
    first = _open(database, start)
    with pytest.raises(TransientError, match="in use by process"):
        _open(database, start)
    closer = threading.Timer(0.5, first.close)
    closer.start()
    with _open(database, start, wait_s=90):
        closer.join()


def test_a_terminated_walsender_is_transient(database: Database) -> None:
    """pg_terminate_backend ends the stream with an error that may be tried again."""
    start = _slot(database)
    with _open(database, start) as stream:
        stream.read(1, 0.1)
        database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        )
        with pytest.raises(TransientError):
            _read_for(stream, 90)


def _read_for(stream: ReplicationStream, seconds: float) -> list[Received]:
    deadline = time.monotonic() + seconds
    read = []
    while time.monotonic() < deadline:
        read.append(stream.read(1 << 20, 0.2))
    return read


def test_silence_of_the_caller_does_not_end_the_stream_as_long_as_it_ticks(database: Database) -> None:
    """wal_sender_timeout is 5 s and nobody reads for 7 s: tick() alone keeps the connection alive."""
    start = _slot(database)
    database.execute(SQL("ALTER DATABASE {} SET wal_sender_timeout = '5s'").format(Identifier(database.name)))
    database.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(1, 20000) g")
    with _open(database, start, status_interval_s=0.2) as stream:
        for _ in range(70):
            time.sleep(0.1)
            stream.tick()
        assert sum(isinstance(m, Insert) for m in _messages(_until(stream, database.end_of_wal()))) == 20_000


def test_a_fast_shutdown_is_noticed_and_pings_are_not_answered_at_full_speed(make_server: MakeServer) -> None:
    """A server that waits for our position asks at full speed: the caller is notified, and replies stay a few per second."""
    with make_server() as server:
        database = Database(server, "postgres", server.dsn())
        start = _slot(database)
        database.execute("INSERT INTO t VALUES (1, 'a')")
        stream = _open(database, start)
        _until(stream, database.end_of_wal())
        database.execute("INSERT INTO t VALUES (2, 'b')")
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        message = _follow_shutdown(stream)
        stream.close()
        stopping.join(90)
    assert message.asked
    assert message.statuses < 60


@dataclass
class _Told:
    statuses: int = 0
    asked: bool = False
    end: Lsn = Lsn.ZERO


def _follow_shutdown(stream: ReplicationStream) -> _Told:
    """Read to the end, and acknowledge only after the server has asked for a while."""
    message = _Told()
    for _ in range(100):
        before = stream._status_at
        try:
            got = stream.read(1 << 20, 0.1)
        except TransientError:
            return message
        message.statuses += stream._status_at != before
        message.end = max([message.end, *(m.end_lsn for m in _messages(got.buffer) if isinstance(m, Commit))])
        message.asked = message.asked or got.flush_requested
        if message.asked and message.end > stream.confirmed and message.statuses > 5:
            stream.acknowledge(message.end)
    raise AssertionError("the server did not end the stream")
