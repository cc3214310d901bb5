"""The second publication, for tables without identity, is made or dropped while a drain runs, or is down.

The server knows a publication only from where it was made on. At the end snapshot and stream together, folded in plain
Python, are what PostgreSQL has, and what was written before the publication was read is in doubt, never missing unseen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from psycopg.sql import SQL

from lakeproof.catalog.differences import Difference
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.commands.recover import plan_recover
from lakeproof.drain.catalog.publications import recorded_names
from lakeproof.drain.until import Until
from lakeproof.errors import SourceError, TransientError
from lakeproof.events import Stop, silent
from lakeproof.lake.planning.catalog_drift import suspected_changes
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS, LOG = TableName("public", "items"), TableName("public", "log")
MADE = "CREATE PUBLICATION shop_inserts FOR TABLE log WITH (publish = 'insert, truncate')"


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Drained:
    """Create two tables, one of them published and copied."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE log (n text)",
        "CREATE PUBLICATION shop FOR TABLE items",
    )
    result = Drained(database, tmp_path / "lake")
    bootstrap(result.config(), SOURCE)
    return result


@contextmanager
def _draining(shop: Drained) -> Iterator[None]:
    stop, failures = Stop(), list[BaseException]()

    def run() -> None:
        try:
            given = shop.config(flush_interval_s=0.1, catalog_interval_s=1, progress_interval_s=0.5)
            drain(given, SOURCE, Until.stopped(), silent, stop)
        except BaseException as error:  # noqa: BLE001  raised in the test's own thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_until(lambda: shop.active_pid() is not None or bool(failures))
        yield
    finally:
        stop.request()
        thread.join()
    if failures:
        raise failures[0]


def _is_read(shop: Drained) -> bool:
    return "shop_inserts" in (recorded_names(shop.chain()) or set())


def _differences(shop: Drained) -> list[Difference]:
    return [
        each
        for actual in suspected_changes(shop.chain(), Lsn.ZERO)
        if actual.table == LOG
        for each in actual.change.differences
    ]


def test_a_running_drain_reads_it_from_where_it_has_seen_it(shop: Drained) -> None:
    """Before the drain has seen the publication, a snapshot of its tables is refused: later changes would be missing."""
    with _draining(shop):
        shop.database.execute(MADE, "INSERT INTO log VALUES ('early')", "INSERT INTO items VALUES (1)")
        wait_until(lambda: _is_read(shop))
        bootstrap(shop.config(), SOURCE, [LOG])
        shop.database.execute("INSERT INTO log VALUES ('late')", "INSERT INTO items VALUES (2)")
        end = shop.database.end_of_wal()
        wait_until(lambda: shop.chain().end >= end)
    assert copied_and_landed(shop, LOG) == shop.source_rows(LOG)
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)
    (suspected,) = [actual for actual in suspected_changes(shop.chain(), Lsn.ZERO) if actual.table == LOG]
    assert Difference.UNREAD in suspected.change.differences
    assert suspected.lower_lsn == shop.chain().head.end_lsn
    assert not suspected.is_covered_by(Lsn(suspected.upper_lsn.value - 1), suspected.change.after)


def test_a_drain_that_was_down_reads_up_to_it_first(shop: Drained) -> None:
    """Nothing of the others is lost, no new incarnation is called for, and a snapshot that came too early is refused."""
    shop.database.execute("INSERT INTO items VALUES (1)", MADE)
    shop.database.execute("INSERT INTO log VALUES ('early')", "INSERT INTO items VALUES (2)")
    with pytest.raises(TransientError, match="does not read publication shop_inserts yet"):
        bootstrap(shop.config(), SOURCE, [LOG])
    # A source that is never idle: each drain begins behind it.
    shop.database.flush_wal()
    drain(shop.config(), SOURCE, Until.caught_up(), silent)
    assert _is_read(shop)
    bootstrap(shop.config(), SOURCE, [LOG])
    shop.database.execute("INSERT INTO log VALUES ('late')", "INSERT INTO items VALUES (3)")
    drain(shop.config(), SOURCE, Until.caught_up(), silent)
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)
    assert copied_and_landed(shop, LOG) == shop.source_rows(LOG)


def test_a_dropped_publication_does_not_end_a_running_drain(shop: Drained) -> None:
    """The drain goes on with the remaining publications; the catalog shows that the dropped one's tables left."""
    shop.database.execute(MADE)
    with _draining(shop):
        wait_until(lambda: _is_read(shop))
        shop.database.execute("INSERT INTO log VALUES ('read')", "DROP PUBLICATION shop_inserts")
        shop.database.execute("INSERT INTO items VALUES (1)")
        end = shop.database.end_of_wal()
        wait_until(lambda: shop.chain().end >= end and Difference.LEFT in _differences(shop))
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)


@pytest.mark.since(15)
def test_whole_transactions_before_an_error_of_the_server_are_kept(shop: Drained) -> None:
    """The row filter fails for one row: what came before it is durable, though no segment was due."""
    shop.database.execute("ALTER PUBLICATION shop SET TABLE items WHERE (1 / id > -2)")
    for number in range(1, 20):
        shop.database.execute(SQL("INSERT INTO items VALUES ({})").format(number))
    shop.database.execute("INSERT INTO items VALUES (0)")
    with pytest.raises(SourceError, match="DivisionByZero"):
        drain(shop.config(flush_interval_s=600.0), SOURCE, Until.stopped(), silent)
    assert len(shop.folded()[ITEMS]) == 19


def test_what_landed_of_a_dropped_publication_is_no_other_history(shop: Drained) -> None:
    """The server sends it no more: a copy of another table is made, as a drain goes on, and nobody has to recover."""
    shop.database.execute(MADE)
    with _draining(shop):
        wait_until(lambda: recorded_names(shop.chain()) == {"shop", "shop_inserts"})
    shop.database.execute("INSERT INTO log VALUES ('landed')")
    with shop.running("caught_up", "drain.after_manifest") as process:
        process.communicate(timeout=180)
    assert shop.confirmed_flush() < shop.chain().end
    assert [file.table for file in shop.chain().newest.files] == [LOG]
    shop.database.execute("DROP PUBLICATION shop_inserts")
    bootstrap(shop.config(), SOURCE, [ITEMS])
    with pytest.raises(SourceError, match="there is nothing to recover"):
        plan_recover(shop.config(), SOURCE)
    shop.drain()
