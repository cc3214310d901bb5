"""A schema for each tenant: hundreds of tables that change at once, one row each. Work is counted at the server."""

from __future__ import annotations

import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
TABLES = 120


def _rolled_back(database: Database) -> int:
    """Return the transactions of the database that ended with ROLLBACK, as each look into the catalog does."""
    query = SQL("SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()")
    with database.connect() as conn:
        conn.execute("SELECT pg_stat_clear_snapshot()")
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def test_tables_that_come_together_are_looked_up_together(drained: Drained) -> None:
    """The catalog is asked once for all tables of a batch, not once for each message about a table; all rows are there."""
    names = [f"t{i}" for i in range(TABLES)]
    with drained.database.connect() as conn:
        for name in names:
            conn.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, v text)").format(Identifier(name)))
    drained.begin()
    with drained.database.connect() as conn:
        for name in names:
            conn.execute(SQL("INSERT INTO {} VALUES (1, 'one')").format(Identifier(name)))
    drained.drain()
    # In one transaction: decoding one counts as a ROLLBACK, too.
    with drained.database.connect(autocommit=False) as conn:
        for name in names:
            conn.execute(SQL("UPDATE {} SET v = 'two'").format(Identifier(name)))
    before = _rolled_back(drained.database)
    assert drained.drain().rows == TABLES
    assert _rolled_back(drained.database) - before < TABLES / 4
    folded = drained.folded()
    for name in names:
        table = TableName("public", name)
        assert folded[table] == drained.source_rows(table)


def test_a_table_that_is_altered_between_two_changes_of_a_batch_has_both_schemas(drained: Drained) -> None:
    """Its two messages come in one batch, between those of other tables, and each gets the columns that it names."""
    database = drained.database
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "CREATE TABLE b (id int PRIMARY KEY)",
    )
    drained.begin()
    database.execute(
        "INSERT INTO a VALUES (1, 'one')",
        "INSERT INTO b VALUES (1)",
        "ALTER TABLE a ADD COLUMN w int DEFAULT 7",
        "INSERT INTO b VALUES (2)",
        "INSERT INTO a VALUES (2, 'two', 8)",
    )
    drained.drain()
    versions = {
        tuple(c.name for c in entry.version.columns): [c.attnum for c in entry.version.columns]
        for manifest in drained.chain().manifests()
        for entry in manifest.schemas
        if entry.version.table == TableName("public", "a")
    }
    assert versions == {("id", "v"): [1, 2], ("id", "v", "w"): [1, 2, 3]}
    assert drained.folded()[TableName("public", "b")] == drained.source_rows(TableName("public", "b"))
