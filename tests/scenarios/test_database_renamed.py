"""ALTER DATABASE … RENAME: the same database, so its landing goes on; one that has the old name then is another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.status import status
from lakeproof.errors import LakeError, SourceError
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres]
ITEMS = TableName("public", "items")


@contextmanager
def renamed(database: Database) -> Iterator[None]:
    """The database under another name; under its own again at the end, by which it is dropped."""
    new, dsn = f"{database.name}_new", database.dsn
    with psycopg.connect(database.server.dsn(), autocommit=True) as admin:
        rename = SQL("ALTER DATABASE {} RENAME TO {}")
        admin.execute(rename.format(Identifier(database.name), Identifier(new)))
        database.dsn = database.server.dsn(new)
        try:
            yield
        finally:
            database.dsn = dsn
            admin.execute("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = %s", (new,))
            admin.execute(rename.format(Identifier(new), Identifier(database.name)))


def test_a_renamed_database_is_followed_on(database: Database, tmp_path: Path) -> None:
    """Drain, another snapshot, check and status take it for what it is; snapshot and stream are what PostgreSQL has."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, v text)",
        "INSERT INTO items SELECT i, 'a' FROM generate_series(1, 9) i",
        "CREATE PUBLICATION shop FOR TABLE items",
    )
    shop = Drained(database, tmp_path / "lake")
    bootstrap(shop.config(), SOURCE)
    database.execute("UPDATE items SET v = 'before' WHERE id < 4")
    shop.drain()
    with renamed(database):
        database.execute("UPDATE items SET v = 'after' WHERE id > 7", "DELETE FROM items WHERE id = 5")
        shop.drain()
        assert copied_and_landed(shop, ITEMS) == shop.source_rows(ITEMS)
        bootstrap(shop.config(), SOURCE, [ITEMS])
        report = check_source(shop.config(), SOURCE)
        assert not report.refused
        assert not status(shop.config()).sources[SOURCE].problems


def test_another_database_that_has_the_old_name_is_refused(database: Database, tmp_path: Path) -> None:
    """The other database has another OID, and is not read."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)", "CREATE PUBLICATION shop FOR TABLE items")
    shop = Drained(database, tmp_path / "lake")
    bootstrap(shop.config(), SOURCE)
    end = shop.chain().end
    old = database.dsn
    with renamed(database):
        with psycopg.connect(database.server.dsn(), autocommit=True) as admin:
            admin.execute(SQL("CREATE DATABASE {}").format(Identifier(database.name)))
            try:
                with psycopg.connect(old, autocommit=True) as other:
                    other.execute("CREATE TABLE items (id int PRIMARY KEY, v text)")
                    other.execute("CREATE PUBLICATION shop FOR TABLE items")
                new, database.dsn = database.dsn, old
                with pytest.raises(LakeError, match=r"it belongs to database .* \(OID \d+\), the source is"):
                    shop.drain()
                with pytest.raises((LakeError, SourceError), match="belongs to database"):
                    bootstrap(shop.config(), SOURCE, [ITEMS])
                database.dsn = new
            finally:
                admin.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(database.name)))
        assert shop.chain().end == end
