"""Invariant handoff: under concurrent writers each commit is in the snapshot at C or in the stream after C, never both.

What stands between a snapshot and its copy is tested in test_snapshot_moves.py.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pyarrow.parquet as pq

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.messages import Commit, Insert
from lakeproof.postgres.replication_stream import ReplicationStream
from lakeproof.snapshot.folder import read_snapshot
from lakeproof.snapshot.run import SnapshotReport
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database

TABLES = (TableName("public", "a"), TableName("public", "b"))
WRITERS = 3


def test_each_commit_is_in_the_snapshot_or_in_the_stream_and_both_tables_agree(
    database: Database, tmp_path: Path
) -> None:
    """Five snapshots amid writers with rollbacks and prepared transactions: each equals the stream's prefix at its C.

    Every transaction writes the same id to both tables, so a transaction that is half in a snapshot shows as well.
    """
    database.execute(
        "CREATE TABLE a (id bigint PRIMARY KEY)",
        "CREATE TABLE b (id bigint PRIMARY KEY)",
        "INSERT INTO a SELECT -g FROM generate_series(1, 500) g",
        "INSERT INTO b SELECT -g FROM generate_series(1, 500) g",
        "CREATE PUBLICATION pub FOR TABLE a, b",
    )
    source = database.source(snapshot=SnapshotConfig(chunk_pages=2, connections=2))
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    with _writers(database):
        reports = [bootstrap(config, "shop") for _ in range(5)]
    first = reports[0]
    head = Chain.open(SourceLake.open(config.lake, "shop"), first.incarnation)
    assert (first.slot, head.end) == (database.name, first.consistent_point)
    streamed = _streamed(database, first.consistent_point)
    start = _ids(config, first, TABLES[0])
    assert len(streamed) > 10
    for report in reports:
        expected = start | {key for key, end in streamed.items() if end <= report.consistent_point}
        assert _ids(config, report, TABLES[0]) == expected
        assert _ids(config, report, TABLES[1]) == expected
    assert start | streamed.keys() == {row[0] for row in database.rows("SELECT id FROM a")}
    assert not start & streamed.keys()
    assert database.slots() == {database.name}


@contextmanager
def _writers(database: Database) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=_write, args=(database, number, over)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
        time.sleep(0.3)
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _write(database: Database, number: int, over: threading.Event) -> None:
    rng = random.Random(number)
    with psycopg.connect(database.dsn, options="-c synchronous_commit=off") as conn:
        key = number
        while not over.is_set():
            key += WRITERS
            prepared = rng.random() < 0.3
            if prepared:
                conn.tpc_begin(conn.xid(1, f"{database.name}_{key}", ""))
            conn.execute("INSERT INTO a VALUES (%s)", (key,))
            time.sleep(rng.random() / 200)
            conn.execute("INSERT INTO b VALUES (%s)", (key,))
            undone = rng.random() < 0.2
            if prepared:
                conn.tpc_prepare()
                time.sleep(rng.random() / 100)
                conn.tpc_rollback() if undone else conn.tpc_commit()
            else:
                conn.rollback() if undone else conn.commit()


def _ids(config: Config, report: SnapshotReport, table: TableName) -> set[int]:
    """The ids of a table in a snapshot, each in it once."""
    lake = SourceLake.open(config.lake, "shop")
    folder = lake.paths.snapshot(report.incarnation, report.consistent_point)
    document = read_snapshot(lake, folder)
    ids = [
        key
        for chunk in document.tables[table].chunks
        for key in pq.read_table(lake.url(f"{folder}/{chunk.path}")).column("id").to_pylist()
    ]
    assert len(ids) == len(set(ids)) == report.tables[table].rows
    return set(ids)


def _streamed(database: Database, start: Lsn) -> dict[int, Lsn]:
    """Each id that the stream inserts into `a`, with its commit's end."""
    end = database.end_of_wal()
    actual: dict[int, Lsn] = {}
    pending: list[int] = []
    oid = database.value("SELECT 'a'::regclass::oid::bigint")
    with ReplicationStream.open(database.secret, database.name, ["pub"], start) as stream:
        reached = Lsn.ZERO
        # What no commit waits for may be sent half a minute later.
        deadline = time.monotonic() + 90
        while reached < end and time.monotonic() < deadline:
            received = stream.read(1 << 20, 0.2)
            for octets in received.buffer:
                message = decode(octets)
                if isinstance(message, Insert) and message.relation == oid:
                    pending.append(int(str(message.new[0])))
                elif isinstance(message, Commit):
                    actual |= dict.fromkeys(pending, message.end_lsn)
                    pending = []
            reached = received.keepalive_lsn or reached
    return actual
