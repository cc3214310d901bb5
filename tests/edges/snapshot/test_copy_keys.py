"""Which tables have rows that are read by their keys, and what PostgreSQL gives for some keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.connections.connect import Connection, connect
from lakeproof.postgres.copying.keys import keys_query, why_not_by_keys
from tests.support.servers.fix_postgres import Database

# Its publication has a row filter.
pytestmark = [pytest.mark.postgres, pytest.mark.since(15)]

_KEYED = (
    "CREATE TABLE ints (id int PRIMARY KEY)",
    "CREATE TABLE pairs (a char(4), b numeric, v text, PRIMARY KEY (b, a))",
    "CREATE TABLE parts (id uuid, at timestamptz, PRIMARY KEY (id)) PARTITION BY HASH (id)",
    "CREATE TABLE parts_0 PARTITION OF parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    "CREATE TABLE parents (id int PRIMARY KEY)",
    "CREATE TABLE children (PRIMARY KEY (id)) INHERITS (parents)",
)
_OTHERS = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN code AS text CHECK (value <> '')",
    'CREATE COLLATION loose FROM "C"',
    "CREATE TABLE moods (id mood PRIMARY KEY)",
    "CREATE TABLE codes (id code PRIMARY KEY)",
    "CREATE TABLE ratios (id float8 PRIMARY KEY)",
    "CREATE TABLE lists (id int[] PRIMARY KEY)",
    "CREATE TABLE loosely (a int, b text COLLATE loose, PRIMARY KEY (a, b))",
    "CREATE TABLE bags (id int)",
    "ALTER TABLE bags REPLICA IDENTITY FULL",
    "CREATE TABLE configured (id int)",
    "ALTER TABLE configured REPLICA IDENTITY FULL",
    "CREATE TABLE added (id int PRIMARY KEY)",
    # The server was built without ICU, which such collations need; its catalog has the mark all the same.
    "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'loose'",
)
_PUBLICATIONS = (
    """CREATE PUBLICATION pub FOR TABLE ints WHERE (id > 2), pairs, parts, parents, children, moods, codes, ratios, lists,
    loosely, bags, configured WITH (publish_via_partition_root)""",
    "CREATE PUBLICATION pub_inserts FOR TABLE added WITH (publish = 'insert')",
)
_REASONS = {
    "moods": "its key's column id is of type public.mood, which may compare in its own way",
    "codes": "its key's column id is of type public.code, which may compare in its own way",
    "ratios": "its key's column id is of type float8, which may compare in its own way",
    "lists": "its key's column id is of type int4[], which may compare in its own way",
    "loosely": "the collation of its key's column b calls different texts equal",
    "bags": "it has no key",
    "configured": "its key is one of the configuration's, for which PostgreSQL has no unique index",
    "added": "its publication does not send all changes",
}
_ROWS = (
    "INSERT INTO ints SELECT generate_series(1, 9)",
    "INSERT INTO pairs VALUES ('a', 1.0, 'x'), ('b', 2.50, 'y'), ('c', 'NaN', 'z')",
    "INSERT INTO parts SELECT md5(i::text)::uuid, now() FROM generate_series(1, 5) i",
    "INSERT INTO parents VALUES (1), (2)",
    "INSERT INTO children VALUES (1), (3)",
)


@pytest.fixture
def source(database: Database) -> SourceConfig:
    """A source of tables that have keys, and of others."""
    database.execute(*_KEYED, *_OTHERS, *_PUBLICATIONS, *_ROWS)
    return database.source(table={TableName("public", "configured"): TableConfig(key=("id",))})


@pytest.fixture
def conn(source: SourceConfig) -> Iterator[Connection]:
    """A connection with the settings of all of ours."""
    with connect(source.dsn, "test") as connection:
        yield connection


def test_a_reason_is_given_for_every_table_that_is_copied_whole(conn: Connection, source: SourceConfig) -> None:
    """The others have none."""
    reasons = {t.name: why_not_by_keys(conn, table) for t, table in read_tables(conn, source).items()}
    assert {name: why for name, why in reasons.items() if why is not None} == _REASONS


def test_the_rows_of_the_keys_come_and_no_others(conn: Connection, source: SourceConfig) -> None:
    """A filter is applied, a root read with its partitions, a parent without its children; equal in PostgreSQL is enough."""
    tables = {t.name: table for t, table in read_tables(conn, source).items()}

    def rows(name: str, *keys: tuple[str, ...]) -> list[tuple[object, ...]]:
        return sorted(conn.execute(keys_query(tables[name], keys)).fetchall())

    assert rows("ints", ("1",), ("3",), ("4",), ("77",)) == [(3,), (4,)]
    assert [(str(b), v) for _, b, v in rows("pairs", ("1.00", "a   "), ("2.50", "b"), ("NaN", "c"), ("2.50", "a"))] == [
        ("1.0", "x"),
        ("2.50", "y"),
        ("NaN", "z"),
    ]
    assert len(rows("parts", ("c4ca4238-a0b9-2382-0dcc-509a6f75849b",), ("00000000-0000-0000-0000-000000000000",))) == 1
    assert rows("parents", ("1",), ("3",)) == [(1,)]
