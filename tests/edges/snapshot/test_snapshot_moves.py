"""Obstacles between a snapshot and its copy: rewrites, locks, open transactions, a stop, a kill.

The rows themselves are compared in test_snapshot_values.py and test_snapshot_handoff.py.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg.pq import TransactionStatus
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig, SourceConfig
from lakeproof.errors import GapError, LakeError, SourceError, TransientError
from lakeproof.events import Event
from lakeproof.landing.chain import Chain, newest_incarnation
from lakeproof.names import Incarnation, TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.connections.connect import connect
from lakeproof.postgres.copying.snapshot import SnapshotSession, TableChangedError, chunks, copy_chunk
from lakeproof.postgres.replication_stream import ReplicationStream, StreamOptions
from lakeproof.snapshot.folder import part_key, read_snapshot, snapshot_folders
from lakeproof.snapshot.incarnation import SourceDoc
from lakeproof.snapshot.run import SnapshotIncompleteError
from lakeproof.snapshot.state import SnapshotDoc
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.servers.slots import create_slot

T, U = TableName("public", "t"), TableName("public", "u")
_SCHEMA: tuple[LiteralString, ...] = (
    "CREATE TABLE t (id int PRIMARY KEY, v text)",
    "CREATE TABLE u (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE u1 PARTITION OF u FOR VALUES FROM (0) TO (500)",
    "CREATE TABLE u2 PARTITION OF u DEFAULT",
    "INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 1000) g",
    "INSERT INTO u SELECT g FROM generate_series(1, 1000) g",
    "CREATE PUBLICATION pub FOR TABLE t, u WITH (publish_via_partition_root)",
)


def _config(database: Database, lake: Path, lock_timeout_s: float = 60.0) -> Config:
    source: SourceConfig = database.source(
        snapshot=SnapshotConfig(chunk_pages=2, lock_timeout_s=lock_timeout_s, attempts=3)
    )
    return Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"shop": source})


def _snapshots(config: Config) -> list[SnapshotDoc]:
    """Every snapshot that a reader can see, by its position."""
    lake = SourceLake.open(config.lake, "shop")
    folders = [f for f in snapshot_folders(lake, Incarnation(1)) if lake.store.exists(part_key(f, 0))]
    actual = [read_snapshot(lake, folder) for folder in folders]
    for document in actual:
        folder = lake.paths.snapshot(document.incarnation, document.consistent_point)
        for table in document.tables.values():
            for chunk in table.chunks:
                assert pq.read_metadata(lake.url(f"{folder}/{chunk.path}")).num_rows == chunk.rows
    return sorted(actual, key=lambda document: document.consistent_point)


def _files(config: Config) -> int:
    return sum(len(files) for _, _, files in os.walk(config.lake))


def test_a_snapshot_whose_own_connection_was_lost_is_to_be_made_again(database: Database) -> None:
    """Nothing is wrong with a name in the configuration, as the server's own words would have it."""
    session = SnapshotSession(database.secret, database.name, temporary=True)
    with session, session.open() as copier:
        session.import_into(copier)
        copier.rollback()
        database.rows("SELECT pg_terminate_backend(%s, 10000)", session.pids)
        with pytest.raises(TransientError, match="the connection that held it was lost"):
            session.import_into(copier)
        assert copier.info.transaction_status == TransactionStatus.IDLE


@pytest.mark.parametrize(
    ("change", "table"),
    [
        ("TRUNCATE t", T),
        ("ALTER TABLE t ALTER v TYPE varchar(50) USING left(v, 1)", T),
        ("CLUSTER t USING t_pkey", T),
        ("VACUUM FULL t", T),
        ("ALTER TABLE t ADD n int DEFAULT 7", T),
        ("ALTER TABLE t DROP v", T),
        ("ALTER TABLE t RENAME v TO w", T),
        ("ALTER TABLE t REPLICA IDENTITY FULL", T),
        ("ALTER TABLE t RENAME TO t2", T),
        pytest.param("ALTER PUBLICATION pub SET TABLE u, t WHERE (id > 5)", T, marks=pytest.mark.since(15)),
        ("ALTER PUBLICATION pub DROP TABLE t", T),
        ("DROP TABLE t", T),
        ("TRUNCATE u2", U),
        ("ALTER TABLE u DETACH PARTITION u2", U),
        ("CREATE TABLE u3 PARTITION OF u FOR VALUES FROM (5000) TO (6000)", U),
    ],
)
def test_a_table_that_was_changed_after_the_snapshot_is_not_copied_from_it(
    database: Database, change: LiteralString, table: TableName
) -> None:
    """Rows would be missing or columns wrong without an error: the guard notices each of these."""
    database.execute(*_SCHEMA)
    source = database.source()
    session = SnapshotSession(database.secret, database.name, temporary=True)
    with session, session.connect() as reader, connect(database.secret) as guard:
        tables = read_tables(reader, source)
        with session.guard(guard, source, tables[table]):
            pass
        database.execute(change)
        with pytest.raises(TableChangedError, match=str(table)), session.guard(guard, source, tables[table]):
            pass
        other = tables[U if table == T else T]
        if "PUBLICATION" not in change:
            with session.guard(guard, source, other):
                pass


def test_a_partition_that_is_attached_after_the_check_is_noticed(database: Database) -> None:
    """Its rows from before the snapshot are in the next plan: what was read may be more than the table had."""
    # Attaching waits for the readers of a default partition, if there is one.
    apart: LiteralString = "ALTER TABLE u DETACH PARTITION u2"
    database.execute(*_SCHEMA, apart, "CREATE TABLE u3 (LIKE u INCLUDING ALL)", "INSERT INTO u3 (id) VALUES (5000)")
    source = database.source()
    session = SnapshotSession(database.secret, database.name, temporary=True)
    attach: LiteralString = "ALTER TABLE u ATTACH PARTITION u3 FOR VALUES FROM (5000) TO (6000)"
    counts = list[object]()

    def read_before_and_after() -> None:
        with session.guard(guard, source, root):
            counts.extend(guard.execute("SELECT count(*) FROM public.u").fetchone() or ())
            database.execute(attach)
            counts.extend(guard.execute("SELECT count(*) FROM public.u").fetchone() or ())

    with session, session.connect() as reader, connect(database.secret) as guard:
        root = read_tables(reader, source)[U]
        with pytest.raises(TableChangedError, match="partition"):
            read_before_and_after()
    assert counts[0] != counts[1], "the snapshot does not hold the partitions"


def test_a_guarded_table_can_be_written_but_not_rewritten(database: Database) -> None:
    """The application goes on; a TRUNCATE waits until the copy of that table is over."""
    database.execute(*_SCHEMA)
    source = database.source()
    session = SnapshotSession(database.secret, database.name, temporary=True)
    with session, session.connect() as reader, connect(database.secret) as guard, database.connect() as app:
        with session.guard(guard, source, read_tables(reader, source)[T]):
            app.execute("INSERT INTO t VALUES (5000, 'new')")
            app.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                app.execute("TRUNCATE t")
        app.execute("SET lock_timeout = 0")
        app.execute("TRUNCATE t")


def test_a_table_that_moves_once_is_copied_at_a_later_point(database: Database, tmp_path: Path) -> None:
    """The others keep the first point; the moved one has its own snapshot, and both are visible."""
    database.execute(*_SCHEMA)
    config = _config(database, tmp_path)
    changes: list[LiteralString] = ["ALTER TABLE t ALTER v TYPE varchar(50)", "ALTER TABLE t ADD n int"]

    def change() -> None:
        if changes:
            database.execute(changes.pop())

    report = bootstrap(config, "shop", None, _at("bootstrap.slot", change))
    assert changes == []
    assert report.tables[U].consistent_point == report.consistent_point < report.tables[T].consistent_point
    assert [set(document.tables) for document in _snapshots(config)] == [{U}, {T}]
    assert (report.tables[T].rows, report.tables[U].rows) == (1000, 1000)
    assert database.slots() == {database.name}


def _at(kind: str, act: Callable[[], object]) -> Callable[[Event], None]:
    """A report that acts when an event of that kind comes."""

    def report(event: Event) -> None:
        if event.kind == kind:
            act()

    return report


def test_a_table_that_keeps_moving_fails_alone(database: Database, tmp_path: Path) -> None:
    """After a bounded number of tries the table is given up with a reason; the others are complete and visible."""
    database.execute(*_SCHEMA)
    config = _config(database, tmp_path)
    with pytest.raises(SnapshotIncompleteError, match=r"public\.t.*rewritten") as refusal:
        bootstrap(config, "shop", None, _at("bootstrap.slot", lambda: database.execute("CLUSTER t USING t_pkey")))
    assert set(refusal.value.report.tables) == {U}
    assert set(refusal.value.report.failed) == {T}
    assert [set(document.tables) for document in _snapshots(config)] == [{U}]


def test_a_slot_made_before_by_a_dba_is_used(database: Database, tmp_path: Path) -> None:
    """The landing begins at the slot's confirmed position, the snapshot comes from a temporary slot at a later point."""
    database.execute(*_SCHEMA)
    result = create_slot(database.secret, database.name)
    database.execute("DELETE FROM t WHERE id > 10")
    config = _config(database, tmp_path)
    report = bootstrap(config, "shop", [T])
    chain = Chain.open(SourceLake.open(config.lake, "shop"), report.incarnation)
    assert chain.end == result < report.consistent_point
    assert report.slot != database.name
    assert report.tables[T].rows == 10


def test_open_and_prepared_transactions_are_named_when_they_block(database: Database, tmp_path: Path) -> None:
    """Making a slot waits for every writer: after the timeout the error names processes and prepared transactions."""
    database.execute(*_SCHEMA)
    with database.connect(autocommit=False) as writer, database.connect() as other:
        writer.execute("INSERT INTO t VALUES (2000, 'open')")
        other.execute("BEGIN")
        other.execute("INSERT INTO t VALUES (2001, 'prepared')")
        other.execute("PREPARE TRANSACTION 'forgotten'")
        with pytest.raises(TransientError, match=rf"prepared 'forgotten'.*process {writer.info.backend_pid}|"
                           rf"process {writer.info.backend_pid}.*prepared 'forgotten'"):  # fmt: skip
            bootstrap(_config(database, tmp_path, lock_timeout_s=0.5), "shop")
        other.execute("ROLLBACK PREPARED 'forgotten'")
        writer.rollback()
    assert database.slots() == set()
    assert bootstrap(_config(database, tmp_path), "shop").tables[T].rows == 1000


@pytest.mark.parametrize("when", ["before", "bootstrap.slot"])
def test_a_locked_table_is_waited_for_and_then_an_error(database: Database, tmp_path: Path, when: str) -> None:
    """ACCESS EXCLUSIVE held by someone ends the bootstrap after its lock timeout, and leaves nothing half done."""
    database.execute(*_SCHEMA)
    config = _config(database, tmp_path, lock_timeout_s=0.5)
    with database.connect(autocommit=False) as holder:
        if when == "before":
            holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(TransientError, match=r"could not be taken in time|transactions were open"):
            bootstrap(config, "shop", None, _at(when, lambda: holder.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")))
    assert _snapshots(config) == []


def test_an_alter_that_waits_for_a_chunk_does_not_stop_the_copy_for_ever(database: Database) -> None:
    """While one chunk is guarded an ALTER queues: it goes through when the chunk is done, and the next chunk notices."""
    database.execute(*_SCHEMA)
    source = database.source()
    session = SnapshotSession(database.secret, database.name, temporary=True)
    with session, session.connect() as reader, session.open() as copier, database.connect() as app:
        table = read_tables(reader, source)[T]
        reader.execute("ROLLBACK")
        altering = threading.Thread(target=app.execute, args=("ALTER TABLE t ADD n int",))
        with session.guard(copier, source, table):
            altering.start()
            while not database.value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                time.sleep(0.01)
            assert sum(len(block) for part in chunks(table, 2) for block in copy_chunk(copier, part)) == 1000
        altering.join(90)
        assert not altering.is_alive()
        with pytest.raises(TableChangedError), session.guard(copier, source, table):
            pass


def test_a_lake_of_another_source_is_left_alone(database: Database, tmp_path: Path) -> None:
    """source.json names another database: refused before slot or file is made."""
    database.execute(*_SCHEMA)
    config = _config(database, tmp_path)
    lake = SourceLake.open(config.lake, "shop")
    document = SourceDoc("shop", "1", "x", 1, "now").to_bytes()
    lake.store.put_if_absent(lake.paths.source_document, document)
    with pytest.raises(LakeError, match="belongs to"):
        bootstrap(config, "shop")
    assert _files(config) == 1
    assert database.slots() == set()


def test_a_lost_or_foreign_slot_is_refused_before_anything_is_written(database: Database, tmp_path: Path) -> None:
    """A slot in use before the landing, or gone after it, is refused, and the lake stays as it was."""
    database.execute(*_SCHEMA)
    config = _config(database, tmp_path)
    point = create_slot(database.secret, database.name)
    with (
        ReplicationStream.open(
            database.secret, database.name, ["pub"], point, StreamOptions(application_name="someone")
        ),
        pytest.raises(SourceError, match="in use by process"),
    ):
        bootstrap(config, "shop")
    assert newest_incarnation(SourceLake.open(config.lake, "shop")) is None
    assert _files(config) == 0
    bootstrap(config, "shop")
    files = _files(config)
    database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
    with pytest.raises(GapError, match="does not exist; the landing ends at"):
        bootstrap(config, "shop")
    assert _files(config) == files


def test_a_table_that_is_not_published_is_refused_by_name(database: Database, tmp_path: Path) -> None:
    """Naming it is the caller's mistake: nothing is copied of the others either."""
    database.execute(*_SCHEMA, "CREATE TABLE w (id int PRIMARY KEY)")
    with pytest.raises(SourceError, match=r"public\.w"):
        bootstrap(_config(database, tmp_path), "shop", [T, TableName("public", "w")])
    assert database.slots() == set()


def test_the_connections_chosen_do_not_change_the_rows(database: Database, tmp_path: Path) -> None:
    """A connection or four, and small chunks, give the same multiset of rows."""
    database.execute(*_SCHEMA)
    actual = []
    for number in (1, 4):
        settings = SnapshotConfig(chunk_pages=1, connections=number)
        source = database.source(snapshot=settings)
        config = Config(path=tmp_path, lake=str(tmp_path / str(number)), sources={"shop": source})
        bootstrap(config, "shop")
        database.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
        lake = SourceLake.open(config.lake, "shop")
        [document] = _snapshots(config)
        folder = lake.paths.snapshot(document.incarnation, document.consistent_point)
        tables = [pq.read_table(lake.url(f"{folder}/{chunk.path}")) for chunk in document.tables[T].chunks]
        # A row's place is another one, and so is the point.
        rows = (row for table in tables for row in table.drop_columns(["_lp_ord", "_lp_lsn"]).to_pylist())
        actual.append(Counter(tuple(row.values()) for row in rows))
    assert actual[0] == actual[1]
    assert actual[0].total() == 1000
