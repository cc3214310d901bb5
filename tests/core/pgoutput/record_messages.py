"""Records what a real server sends, every message of pgoutput that it has, for `test_recorded_messages.py`.

Not a test: run by hand when a server has something new to say. What is recorded stays; the decoder must go on reading it.

    .venv/bin/python -m tests.core.pgoutput.record_messages 14 18
"""

from __future__ import annotations

import gzip
import select
import struct
import sys
import time
from pathlib import Path

import psycopg
from psycopg import pq
from psycopg.pq import abc

from demo.server import EmbeddedPostgres
from lakeproof.lsn import Lsn
from scripts.fetch.servers import fetch

FOLDER = Path(__file__).parent / "recorded"
_NEWEST = 18
_CONF = {"fsync": "off", "max_prepared_transactions": "5", "logical_decoding_work_mem": "64kB", "autovacuum": "off"}
_SETUP = (
    "CREATE TYPE mood AS ENUM ('sad', 'glad')",
    "CREATE TABLE a (id int PRIMARY KEY, text text, mood mood, amount numeric(8,2))",
    "ALTER TABLE a ALTER text SET STORAGE EXTERNAL",
    "CREATE TABLE b (id int, text text)",
    "ALTER TABLE b REPLICA IDENTITY FULL",
    "CREATE TABLE c (id int)",
    "CREATE PUBLICATION p FOR ALL TABLES",
)
_MANY = "INSERT INTO c SELECT * FROM generate_series(1, 500)"
_ORDINARY = (
    "INSERT INTO a VALUES (1, repeat('x', 3000), 'sad', 1.5), (2, NULL, NULL, NULL)",
    "UPDATE a SET amount = 2 WHERE id = 1",
    "UPDATE a SET id = 3 WHERE id = 2",
    "DELETE FROM a WHERE id = 3",
    "INSERT INTO b VALUES (1, 'größer'), (2, '')",
    "UPDATE b SET text = NULL WHERE id = 1",
    "DELETE FROM b",
    "TRUNCATE a, b RESTART IDENTITY CASCADE",
    "TRUNCATE c",
    "SELECT pg_logical_emit_message(true, 'in', 'transactional')",
    "SELECT pg_logical_emit_message(false, 'out', '\\x00ff'::bytea)",
    "SELECT pg_replication_origin_create('elsewhere')",
    (
        "SELECT pg_replication_origin_session_setup('elsewhere'); "
        "BEGIN; SELECT pg_replication_origin_xact_setup('0/ABC', '2020-01-01'); INSERT INTO c VALUES (1); COMMIT; "
        "SELECT pg_replication_origin_session_reset()"
    ),
)
_STREAMED = (
    (
        "BEGIN; MANY; SAVEPOINT s; ALTER TABLE c ADD note text; MANY; ROLLBACK TO s; "
        "SELECT pg_logical_emit_message(true, 'streamed', 'x'); INSERT INTO a VALUES (7, 'a', 'glad', 0); "
        "UPDATE a SET text = 'b' WHERE id = 7; DELETE FROM a; TRUNCATE b; MANY; MANY; COMMIT"
    ),
    "BEGIN; MANY; MANY; ROLLBACK",
)
_PREPARED = (
    "BEGIN; INSERT INTO c VALUES (1); PREPARE TRANSACTION 'kept'",
    "COMMIT PREPARED 'kept'",
    "BEGIN; INSERT INTO c VALUES (2); PREPARE TRANSACTION 'dropped'",
    "ROLLBACK PREPARED 'dropped'",
    "BEGIN; MANY; MANY; PREPARE TRANSACTION 'streamed'",
    "COMMIT PREPARED 'streamed'",
)


def main() -> None:
    """Record each server named on the command line."""
    FOLDER.mkdir(exist_ok=True)
    for major in map(int, sys.argv[1:]):
        install = None if major == _NEWEST else fetch(major)
        for streaming in ("on", "parallel") if major >= 16 else ("on",):
            with EmbeddedPostgres(conf=_CONF, install=install) as server:
                messages = _record(server, major, streaming)
            path = FOLDER / f"{major}-{streaming}.gz"
            data = b"".join(struct.pack(">I", len(message)) + message for message in messages)
            path.write_bytes(gzip.compress(data, 9, mtime=0))
            tags = b"".join(sorted({message[:1] for message in messages})).decode()
            sys.stdout.write(f"{path.name}: {len(messages)} messages, {path.stat().st_size} bytes: {tags}\n")


def _record(server: EmbeddedPostgres, major: int, streaming: str) -> list[bytes]:
    two_phase = major >= 15
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for statement in _SETUP:
            conn.execute(statement.encode())
        conn.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput', false, %s)", [two_phase])
        for statement in (*_ORDINARY, *_STREAMED, *(_PREPARED if two_phase else ())):
            # Each in a session's own simple query: several statements, BEGIN among them.
            _simple(server, statement)
        row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        conn.execute("CHECKPOINT")
    options = [f"proto_version '{min(4, major - 12)}'", "publication_names 'p'", "messages 'true'"]
    options += [f"streaming '{streaming}'"] + (["two_phase 'on'"] if two_phase else [])
    pgconn = pq.PGconn.connect(f"{server.dsn()} replication=database client_encoding=UTF8".encode())
    pgconn.send_query(f"START_REPLICATION SLOT s LOGICAL 0/0 ({', '.join(options)})".encode())
    result = pgconn.get_result()
    if result is None or result.status != pq.ExecStatus.COPY_BOTH:
        raise RuntimeError(result.error_message if result else "no answer")
    return _read_to(pgconn, Lsn.parse(row[0] if row else "0/0").value)


def _simple(server: EmbeddedPostgres, statement: str) -> None:
    pgconn = pq.PGconn.connect(server.dsn().encode())
    result = pgconn.exec_(statement.replace("MANY", _MANY).encode())
    if result.status not in (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK):
        raise RuntimeError(result.error_message)
    pgconn.finish()


def _read_to(pgconn: abc.PGconn, end: int) -> list[bytes]:
    messages: list[bytes] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        size, data = pgconn.get_copy_data(1)
        if size == 0:
            select.select([pgconn.socket], [], [], 0.2)
            pgconn.consume_input()
            continue
        frame = bytes(data)
        if frame[:1] == b"w":
            messages.append(frame[25:])
        elif frame[:1] == b"k" and struct.unpack(">Q", frame[1:9])[0] >= end:
            pgconn.finish()
            return messages
    raise RuntimeError("the server did not reach the end of its WAL in 60 s")


if __name__ == "__main__":
    main()
