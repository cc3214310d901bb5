"""A table that is truncated, rewritten, altered, renamed or dropped while it is copied: again at a later point, or skipped.

Amid writers; at the end snapshot and stream, folded in plain Python, are what PostgreSQL has. What the guard of a single
chunk notices is tested in test_snapshot_moves.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.events import Event
from lakeproof.failpoints import watched
from lakeproof.names import TableName
from lakeproof.snapshot.run import SnapshotIncompleteError, SnapshotReport
from lakeproof.state.source_state import SourceState
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.ingest.snapshot_rows import copied_and_landed

pytestmark = pytest.mark.postgres
T, U, RENAMED = (TableName("public", name) for name in ("t", "u", "t_old"))
# `t` alone has more than one.
SECOND_CHUNKS = "000001-*.parquet"


@pytest.fixture
def shop(drained: Drained) -> Drained:
    """`t` has hundreds of chunks of a few rows, so that there is time to do something to it; `u` has one."""
    drained.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int, v text)",
        "CREATE TABLE u (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, g, repeat('v', 400) FROM generate_series(1, 8000) g",
        "INSERT INTO u SELECT g, 'u' FROM generate_series(1, 50) g",
    )
    return drained


def _config(shop: Drained, attempts: int = 10) -> Config:
    config = shop.config()
    settings = SnapshotConfig(connections=2, chunk_pages=2, attempts=attempts)
    source = config.sources[SOURCE].model_copy(update={"snapshot": settings})
    return config.model_copy(update={"sources": {SOURCE: source}})


@contextmanager
def _once_copying(shop: Drained, statement: LiteralString) -> Iterator[None]:
    """Runs it as soon as the first chunk of `t` is there, beside the block.

    The copy waits until it has begun, and at the end of its chunks until it is over, unless that waits for the copy.
    """
    copying, begun, over = threading.Event(), threading.Event(), threading.Event()
    waits: LiteralString = "SELECT count(*) FROM pg_stat_activity WHERE query = %s AND wait_event_type = 'Lock'"
    failures: list[BaseException] = []

    def hold(place: str) -> None:
        if place == "snapshot.after_chunk" and any(shop.lake.rglob(SECOND_CHUNKS)):
            copying.set()
            wait_until(lambda: begun.is_set() or shop.database.value(waits, [statement]) > 0, timeout_s=60)
            begun.set()
        if place == "bootstrap.after_chunks" and begun.is_set():
            wait_until(lambda: over.is_set() or shop.database.value(waits, [statement]) > 0, timeout_s=60)

    def act() -> None:
        try:
            assert copying.wait(60)
            shop.database.execute(statement)
        except BaseException as error:  # noqa: BLE001  raised again below, in the test's thread
            failures.append(error)
        begun.set()
        over.set()

    thread = threading.Thread(target=act)
    thread.start()
    with watched(hold):
        yield
    thread.join()
    assert not failures


@contextmanager
def _writer(shop: Drained) -> Iterator[None]:
    """Writes to both tables until the end of the block, as far as they are there."""
    over = threading.Event()

    def write() -> None:
        with psycopg.connect(shop.dsn, autocommit=True) as conn:
            number = 100_000
            while not over.wait(0.01):
                number += 1
                for table in ("t", "u"):
                    name = Identifier(table)
                    with suppress(psycopg.errors.UndefinedTable):
                        conn.execute(SQL("INSERT INTO {} (id, v) VALUES (%s, 'new')").format(name), [number])
                        conn.execute(SQL("DELETE FROM {} WHERE id = %s").format(name), [number - 7])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _ends_equal(shop: Drained, *tables: TableName) -> None:
    assert shop.database.slots() == {shop.slot}
    shop.drain()
    for table in tables:
        assert copied_and_landed(shop, table) == shop.source_rows(table)


def _copy(shop: Drained, statement: LiteralString) -> tuple[SnapshotReport, list[Event]]:
    events: list[Event] = []
    with _writer(shop), _once_copying(shop, statement):
        report = bootstrap(_config(shop), SOURCE, None, events.append)
    return report, events


@pytest.mark.parametrize(
    "change",
    [
        "TRUNCATE t",
        pytest.param("CLUSTER t USING t_pkey", marks=pytest.mark.full),
        "VACUUM FULL t",
        "ALTER TABLE t ALTER n TYPE bigint",
        pytest.param("ALTER TABLE t ADD w int DEFAULT 7", marks=pytest.mark.full),
        pytest.param("ALTER TABLE t DROP n", marks=pytest.mark.full),
    ],
)
def test_a_table_that_moves_while_it_is_copied_is_copied_again(shop: Drained, change: LiteralString) -> None:
    """The other keeps its copy and point; the events say which table, why, and which attempt it is of how many."""
    report, message = _copy(shop, change)
    assert report.tables.keys() == {T, U}
    assert report.tables[U].consistent_point == report.consistent_point < report.tables[T].consistent_point
    moved = [event for event in message if event.kind == "bootstrap.changed"]
    assert {event.fields["table"] for event in moved} == {T.key}
    assert moved[0].message.startswith("public.t is copied again at a later point: ")
    assert moved[0].message.endswith(" (attempt 2 of 10)")
    _ends_equal(shop, T, U)


def test_a_table_that_is_renamed_is_copied_under_its_new_name(shop: Drained) -> None:
    """The publication follows a rename, and so does the copy; nobody waits for a copy under the former name."""
    report, message = _copy(shop, "ALTER TABLE t RENAME TO t_old")
    assert report.tables.keys() == {RENAMED, U}
    assert [event.message for event in message if event.kind == "bootstrap.renamed"] == ["public.t is public.t_old now"]
    assert report.skipped == ()
    _ends_equal(shop, RENAMED, U)
    assert SourceState.of(shop.config(), SOURCE).snapshot is None


@pytest.mark.parametrize(
    "change", ["DROP TABLE t", pytest.param("ALTER PUBLICATION shop SET TABLE u", marks=pytest.mark.full)]
)
def test_a_table_dropped_while_it_is_copied_is_reported_and_skipped(shop: Drained, change: LiteralString) -> None:
    """No error: nobody publishes it any more; nothing of it is left, and the next run does not miss it."""
    shop.database.execute("DROP PUBLICATION shop", "CREATE PUBLICATION shop FOR TABLE t, u")
    report, messages = _copy(shop, change)
    assert (set(report.tables), report.skipped, report.failed) == ({U}, (T,), {})
    [message] = [event.message for event in messages if event.kind == "bootstrap.skipped"]
    assert message == "public.t was dropped, or is not published any more: skipped"
    assert not list(shop.lake.rglob(SECOND_CHUNKS))
    _ends_equal(shop, U)
    assert set(bootstrap(_config(shop), SOURCE).tables) == {U}


def test_a_table_that_is_truncated_now_and_then_gets_through(shop: Drained) -> None:
    """Truncated and filled again over and over, in pauses that leave no time for its first copy."""
    over = threading.Event()

    def truncate() -> None:
        with psycopg.connect(shop.dsn, autocommit=True) as conn:
            for _ in range(6):
                conn.execute("TRUNCATE t")
                conn.execute("INSERT INTO t SELECT g, g, 'again' FROM generate_series(1, 200) g")
                over.wait(0.15)

    thread = threading.Thread(target=truncate)
    thread.start()
    report = bootstrap(_config(shop), SOURCE)
    over.set()
    thread.join()
    assert report.tables.keys() == {T, U}
    _ends_equal(shop, T, U)


def test_after_the_last_attempt_the_table_alone_fails(shop: Drained) -> None:
    """`snapshot.attempts` of one: the reason in the error and in the report, and the next run copies what is missing."""
    with _once_copying(shop, "VACUUM FULL t"), pytest.raises(SnapshotIncompleteError, match="rewritten") as refusal:
        bootstrap(_config(shop, attempts=1), SOURCE)
    assert (set(refusal.value.report.tables), set(refusal.value.report.failed)) == ({U}, {T})
    report = bootstrap(_config(shop), SOURCE)
    assert (set(report.tables), set(report.kept)) == ({T}, {U})
    _ends_equal(shop, T, U)
