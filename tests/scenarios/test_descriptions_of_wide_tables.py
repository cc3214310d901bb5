"""A table of hundreds of columns, whose description once made the server look at all columns for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier, Literal

from lakeproof.names import TableName
from lakeproof.postgres.catalog.descriptions import read_descriptions
from lakeproof.postgres.connections.connect import Connection, connect
from tests.support.ingest.fix_drain import SOURCE, make_config
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
COLUMNS = 400


def _lines_read(database: Database) -> int:
    """Return how many lines of the catalog of columns the server has read in this database."""
    query = SQL("SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_sys_tables WHERE relname = 'pg_attribute'")
    with database.connect() as conn:
        row = conn.execute(query).fetchone()
    assert row is not None
    return int(row[0])


def _read(conn: Connection, database: Database) -> list[tuple[str, str, bool, str | None]]:
    source = make_config(database.dsn, Path("/"), "slot").sources[SOURCE]
    table = read_descriptions(conn, source)[TableName("public", "wide")]
    return [(c.name, c.type, c.not_null, c.comment) for c in table.columns]


def test_the_work_grows_with_the_columns_not_with_their_square(database: Database) -> None:
    """The server reads a few lines for each column; names, types, nullability and comments are right."""
    columns = SQL(", ").join(
        SQL("{} numeric(12, {})").format(Identifier(f"c{i}"), Literal(i % 10)) for i in range(COLUMNS)
    )
    database.execute(SQL("CREATE TABLE wide (id int PRIMARY KEY, {})").format(columns))
    database.execute(
        "ALTER TABLE wide DROP COLUMN c3",
        "COMMENT ON COLUMN wide.c7 IS 'the seventh'",
        "CREATE TABLE empty ()",
        "CREATE PUBLICATION shop FOR ALL TABLES",
    )
    before = _lines_read(database)
    with connect(database.secret) as conn:
        described = _read(conn, database)
    assert described[0] == ("id", "integer", True, None)
    expected = [(f"c{i}", f"numeric(12,{i % 10})", False, "the seventh" if i == 7 else None) for i in range(COLUMNS)]
    assert described[1:] == [line for line in expected if line[0] != "c3"]
    assert _lines_read(database) - before < 20 * COLUMNS


def test_a_column_list_is_described_and_a_table_without_columns_has_none(database: Database) -> None:
    """Columns that are not published are left out, a published table without any is there."""
    database.execute("CREATE TABLE wide (id int PRIMARY KEY, a int, b text)", "CREATE TABLE empty ()")
    lists_columns = int(database.value("SHOW server_version_num")) >= 150000
    listed = SQL("wide (id, b)") if lists_columns else SQL("wide")
    database.execute(SQL("CREATE PUBLICATION shop FOR TABLE {}, empty").format(listed))
    source = make_config(database.dsn, Path("/"), "slot").sources[SOURCE]
    with connect(database.secret) as conn:
        described = read_descriptions(conn, source)
    names = {table.name: [c.name for c in about.columns] for table, about in described.items()}
    expected = ["id", "b"] if lists_columns else ["id", "a", "b"]
    assert names == {"wide": expected, "empty": []}
