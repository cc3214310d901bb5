"""Transactions that the server streams while they are open, prepared ones, and whose schema is in force when."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.landing.segments.manifest import ManifestKind
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, landed_rows, own_values, wait_until

pytestmark = pytest.mark.postgres
ITEMS = TableName("public", "items")
# More than the 64 kB from which the server streams.
LARGE = "SELECT g, repeat('x', 1000), g FROM generate_series(%s::int, %s::int) g"


@pytest.fixture
def items(drained: Drained) -> Drained:
    """A table, a landing that has begun, and a server that streams everything beyond 64 kB."""
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text, price int)",
        SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(Identifier(drained.database.name)),
    )
    drained.begin()
    return drained


@contextmanager
def _draining(items: Drained, **limits: Any) -> Iterator[None]:
    """A drain in a thread, up to now at its end; fails with what the drain failed with."""
    stop, failures = Stop(), []

    def run() -> None:
        try:
            drain(
                items.config(flush_interval_s=0.05, messages=("end",), **limits), "shop", Until.stopped(), silent, stop
            )
        except Exception as error:  # noqa: BLE001  raised in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: items.active_pid() is not None or bool(failures))
        yield
        if not failures:
            end = items.database.end_of_wal()
            items.database.execute("SELECT pg_logical_emit_message(true, 'end', '')")
            wait_until(lambda: items.chain().end >= end or bool(failures))
    finally:
        stop.request()
        thread.join()
    if failures:
        raise failures[0]


def _streamed(items: Drained) -> int:
    """Return the number of transactions that the server has streamed."""
    if items.database.value("SHOW server_version_num") >= "150000":
        items.database.execute("SELECT pg_stat_force_next_flush()")
    else:
        # A collector of its own hears of it twice a second.
        time.sleep(1.5)
    actual: int = items.database.value(
        "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s", [items.slot]
    )
    return actual


def test_what_is_streamed_lands_at_its_commit_without_what_was_rolled_back(items: Drained) -> None:
    """Savepoints rolled back, DDL in one of them, others' commits in between, and another transaction rolled back wholly."""
    with items.database.connect(autocommit=False) as one, items.database.connect(autocommit=False) as other:
        one.execute("INSERT INTO items " + LARGE, (1, 200))
        one.execute("SAVEPOINT a")
        one.execute("ALTER TABLE items ADD later text DEFAULT 'never'")
        one.execute("INSERT INTO items SELECT g, repeat('x', 1000), g, 'z' FROM generate_series(201, 400) g")
        one.execute("ROLLBACK TO a")
        one.execute("INSERT INTO items " + LARGE, (401, 600))
        items.database.execute("CREATE TABLE others (id int PRIMARY KEY)", "INSERT INTO others VALUES (1), (2)")
        one.execute("SAVEPOINT b")
        one.execute("DELETE FROM items WHERE id % 2 = 0")
        one.execute("ALTER TABLE items ADD kept text")
        one.execute("INSERT INTO items SELECT g, repeat('x', 1000), g, 'k' FROM generate_series(601, 800) g")
        one.execute("RELEASE b")
        other.execute("INSERT INTO others SELECT g FROM generate_series(1000, 3000) g")
        items.drain()
        assert items.folded() == {TableName("public", "others"): [(1,), (2,)]}
        other.rollback()
        one.commit()
    items.database.execute("UPDATE items SET note = 'short' WHERE id < 50")
    items.drain()
    assert _streamed(items) >= 2
    rows = dict.fromkeys(items.folded()[ITEMS])
    assert sorted((*r, None)[:4] for r in rows) == sorted(items.source_rows(ITEMS))
    assert len({r["_lp_lsn"] for v, r in landed_rows(items.chain()) if v.table == ITEMS}) == 2


@pytest.mark.since(15)  # column lists
def test_a_schema_announced_in_a_streamed_transaction_holds_for_what_follows_it(items: Drained) -> None:
    """The server does not announce it again: it was sent, and the transaction is committed."""
    _publish(items, "id, note, price")
    with _draining(items):
        items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        _set_columns(items, "id, note")
        items.database.execute("INSERT INTO items " + LARGE.replace("%s::int, %s::int", "100, 300"))
        items.database.execute("INSERT INTO items VALUES (2, 'b', 2)")
    assert _streamed(items) == 1
    assert _ids(items, 2) == [*range(100, 301), 2]
    assert _ids(items, 3) == [1]


@pytest.mark.since(15)  # column lists
def test_an_older_schema_does_not_come_back_when_its_streamed_transaction_commits(items: Drained) -> None:
    """The schema that arrived last is in force, not the one committed last; the landing names it again after it."""
    items.database.execute("CREATE TABLE elsewhere (id int, note text, price int)")
    _publish(items, "id, note, price")
    with _draining(items), items.database.connect(autocommit=False) as streamed:
        streamed.execute("INSERT INTO items " + LARGE, (100, 300))
        # So much that nobody reads, that the rows above have been sent before the publication is changed.
        streamed.execute("INSERT INTO elsewhere " + LARGE, (1, 300))
        items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        _set_columns(items, "id, note")
        items.database.execute("INSERT INTO items VALUES (2, 'b', 2)")
        streamed.commit()
        items.database.execute("INSERT INTO items VALUES (3, 'c', 3)")
    assert _streamed(items) == 1
    assert _ids(items, 3) == [1, *range(100, 301)]
    assert _ids(items, 2) == [2, 3]
    entries = [(e.from_lsn, e.from_seq, len(e.version.columns)) for m in items.chain().manifests() for e in m.schemas]
    for version, row in landed_rows(items.chain()):
        place = Lsn(row["_lp_lsn"]), row["_lp_seq"]
        assert max(e for e in entries if e[:2] <= place)[2] == len(version.columns)


def _publish(items: Drained, columns: LiteralString) -> None:
    items.database.execute("DROP PUBLICATION shop")
    items.database.execute(SQL("CREATE PUBLICATION shop FOR TABLE items ({})").format(SQL(columns)))
    # A slot reads the catalog as it was at its place in the WAL: the publication must have been there.
    items.database.execute(SQL("SELECT pg_drop_replication_slot({})").format(items.slot))
    shutil.rmtree(items.lake)
    items.begin()


def _set_columns(items: Drained, columns: LiteralString) -> None:
    items.database.execute(SQL("ALTER PUBLICATION shop SET TABLE items ({})").format(SQL(columns)))


def _ids(items: Drained, columns: int) -> list[int]:
    """The keys of the rows that have so many columns, in landing order."""
    return [
        own_values(version, row)[0] for version, row in landed_rows(items.chain()) if len(version.columns) == columns
    ]


@pytest.mark.parametrize("rows", [3, 300], ids=["ordinary", "streamed"])
def test_a_prepared_transaction_arrives_whole_at_commit_prepared(items: Drained, rows: int) -> None:
    """The result survives a new connection in between, and others' commits; a rolled back transaction never arrives."""
    with items.database.connect(autocommit=False) as conn:
        for gid, first in (("kept", 1000), ("dropped", 5000)):
            conn.execute("INSERT INTO items " + LARGE, (first, first + rows - 1))
            conn.execute(SQL("PREPARE TRANSACTION {}").format(gid))
            conn.commit()
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.drain()
    assert items.folded()[ITEMS] == [(1, "a", 1)]
    before = items.confirmed_flush()
    with _draining(items):
        items.database.execute("INSERT INTO items VALUES (2, 'b', 2)")
    assert items.confirmed_flush() > before
    items.database.execute(
        "ROLLBACK PREPARED 'dropped'", "COMMIT PREPARED 'kept'", "INSERT INTO items VALUES (3, 'c', 3)"
    )
    items.drain()
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)
    landed = [(own_values(version, row)[0], row["_lp_lsn"]) for version, row in landed_rows(items.chain())]
    prepared = [lsn for key, lsn in landed if key >= 1000]
    assert (len(prepared), len(set(prepared))) == (rows, 1)
    assert [key for key, _ in landed if key < 1000] == [1, 2, 3]


def test_an_open_streamed_transaction_does_not_hold_the_slot_up(items: Drained) -> None:
    """Progress goes on, over a new connection too; what was streamed so far comes again in full."""
    with items.database.connect(autocommit=False) as conn:
        conn.execute("INSERT INTO items " + LARGE, (1, 300))
        items.database.execute("CREATE UNLOGGED TABLE elsewhere (x int)", "CHECKPOINT")
        items.drain()
        assert items.chain().newest.kind is ManifestKind.PROGRESS
        assert items.confirmed_flush() == items.chain().end
        conn.execute("INSERT INTO items " + LARGE, (301, 600))
        items.drain()
        conn.commit()
    items.drain()
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_a_transactions_origin_may_come_in_its_first_chunk(items: Drained) -> None:
    """The origin may also come after the begin."""
    with items.database.connect() as conn:
        conn.execute("SELECT pg_replication_origin_create('lp_elsewhere')")
        try:
            conn.execute("SELECT pg_replication_origin_session_setup('lp_elsewhere')")
            conn.execute("INSERT INTO items " + LARGE, (1, 300))
            conn.execute("INSERT INTO items VALUES (1000, 'a', 1)")
            items.drain()
            assert _streamed(items) == 1
            assert items.folded()[ITEMS] == items.source_rows(ITEMS)
        finally:
            conn.execute("SELECT pg_replication_origin_session_reset()")
            conn.execute("SELECT pg_replication_origin_drop('lp_elsewhere')")
