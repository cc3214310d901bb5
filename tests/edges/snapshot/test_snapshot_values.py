"""A chunk holds what COPY sends: whole tables against SELECT.

The text format itself is tested in tests/core/postgres/test_copy_text.py, when a snapshot is right in
test_snapshot_handoff.py, what can come between in test_snapshot_moves.py.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.errors import TableError
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import read_tables, with_sizes
from lakeproof.postgres.checks.tables import table_findings
from lakeproof.postgres.copying.blocks import copy_blocks
from lakeproof.postgres.copying.snapshot import SnapshotSession, chunk_query, chunks, copy_chunk, typed
from tests.support.servers.fix_postgres import Database

Rows = list[tuple[Any, ...]]


def _snapshot(
    database: Database, *, pages: int = 2, block_bytes: int = 1 << 16, **settings: Any
) -> dict[TableName, tuple[Rows, int]]:
    """Every published table: its rows (with `_lp_text` first) and the number of its chunks."""
    source = database.source(**settings)
    actual: dict[TableName, tuple[Rows, int]] = {}
    session = SnapshotSession(database.secret, database.name, temporary=True)
    with session, session.connect() as reader, session.connect() as copier:
        for table in with_sizes(reader, read_tables(reader, source).values()):
            parts = chunks(table, pages)
            batches = [typed(b, part) for part in parts for b in copy_chunk(copier, part, block_bytes=block_bytes)]
            actual[table.table] = ([tuple(row.values()) for batch in batches for row in batch.to_pylist()], len(parts))
    return actual


def _expected(database: Database, table: TableName, columns: str = "*") -> Counter[tuple[Any, ...]]:
    query = SQL("SELECT NULL, {} FROM {}").format(SQL(columns), Identifier(table.schema, table.name))
    with database.connect() as conn:
        conn.execute("SET TimeZone = 'UTC'")
        return Counter(conn.execute(query).fetchall())


def _same(database: Database, table: TableName, columns: str = "*") -> None:
    rows, _ = _snapshot(database)[table]
    assert Counter(rows) == _expected(database, table, columns)


def test_odd_texts_come_as_they_are(database: Database) -> None:
    """NULL, empty, NA, quotes, newlines, backslashes, blanks, byte order marks, 5 MB: all as SELECT gives them."""
    texts = [
        None,
        "",
        "NA",
        "null",
        '"',
        '""',
        "'",
        "\n",
        "\r\n",
        "\\.",
        "\\N",
        ",",
        " ",
        "\t",
        "\ufeffx",
        "ü😀",
        "\x7f",
    ]
    database.execute(
        "CREATE TABLE odd (id int PRIMARY KEY, a text, b varchar(20), c char(6))", "CREATE TABLE one (v text)"
    )
    with database.connect() as conn, conn.cursor() as cursor:
        cursor.executemany("INSERT INTO odd VALUES (%s, %s, %s, %s)", [(i, t, t, t) for i, t in enumerate(texts)])
        cursor.executemany("INSERT INTO one VALUES (%s)", [(text,) for text in texts * 3])
        conn.execute("INSERT INTO odd VALUES (100, repeat('x', 5000000), '', NULL), (101, 'after', 'the', 'long')")
        conn.execute("INSERT INTO one SELECT NULL FROM generate_series(1, 1000)")
    database.execute("CREATE PUBLICATION pub FOR TABLE odd, one WITH (publish = 'insert')")
    _same(database, TableName("public", "odd"))
    _same(database, TableName("public", "one"))


def test_typed_values_come_as_they_are(database: Database) -> None:
    """Every typed kind, its extremes and its NULL, equals what SELECT gives; what does not fit stands in _lp_text."""
    database.execute(
        """CREATE TABLE typed (id int PRIMARY KEY, b bool, i2 int2, i8 int8, f4 float4, f8 float8, n numeric(10,2),
           d date, ts timestamp, tz timestamptz, y bytea, t text)""",
        """INSERT INTO typed VALUES (1, true, -32768, -9223372036854775808, 1.5, 0.1, -12345678.90, '2024-02-29',
           '1969-12-31 23:59:59.999999', '2024-03-10 02:30:00.5-08', '\\x00ff5c', 'x'),
           (2, false, 32767, 9223372036854775807, 'Infinity', '-Infinity', 0, '0001-01-01', '9999-12-31',
           '0001-01-02 00:00Z', '', '')""",
        "INSERT INTO typed (id) VALUES (3)",
        "INSERT INTO typed (id, n, d, ts) VALUES (4, 'NaN', 'infinity', '0044-03-15 BC')",
        "CREATE PUBLICATION pub FOR TABLE typed",
    )
    rows, _ = _snapshot(database)[TableName("public", "typed")]
    unfit = [row for row in rows if row[0] is not None]
    with database.connect() as conn:
        conn.execute("SET TimeZone = 'UTC'")
        expected = conn.execute("SELECT NULL, * FROM typed WHERE id < 4").fetchall()
    assert Counter(row for row in rows if row[0] is None) == Counter(expected)
    assert [(row[0], row[1], row[7:10]) for row in unfit] == [
        ('{"7":"NaN","8":"infinity","9":"0044-03-15 00:00:00 BC"}', 4, (None, None, None))
    ]


def test_odd_names_of_schemas_tables_and_columns_are_quoted(database: Database) -> None:
    """Quotes, blanks, dots, percent signs, braces and letters beyond ASCII in names."""
    table = TableName('sch "ö"', "ta'b.le %s {x}")
    result = SQL("CREATE TABLE {} ({} int PRIMARY KEY, {} text)").format(
        Identifier(table.schema, table.name), Identifier('k"ey %'), Identifier("{v} ü")
    )
    database.execute(
        SQL("CREATE SCHEMA {}").format(Identifier(table.schema)),
        result,
        SQL("INSERT INTO {} VALUES (1, 'a'), (2, NULL)").format(Identifier(table.schema, table.name)),
        SQL("CREATE PUBLICATION pub FOR TABLE {}").format(Identifier(table.schema, table.name)),
    )
    _same(database, table)


@pytest.mark.since(15)
def test_the_publication_decides_about_columns_and_rows(database: Database) -> None:
    """Column list, row filter and generated columns apply to the copy as they do to the stream."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, hidden text, kept text, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE g (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "INSERT INTO t SELECT i, 'no', 'k{}' || i FROM generate_series(1, 50) i",
        "INSERT INTO g VALUES (1)",
        "CREATE PUBLICATION pub FOR TABLE t (id, kept) WHERE (id > 40 AND kept <> 'k{}45'), g",
    )
    rows, _ = _snapshot(database)[TableName("public", "t")]
    assert Counter(rows) == Counter((None, i, f"k{{}}{i}") for i in range(41, 51) if i != 45)
    assert _snapshot(database)[TableName("public", "g")][0] == [(None, 1)]


def test_generated_columns_are_left_out_of_the_copy_as_out_of_the_stream(database: Database) -> None:
    """Every server version leaves them out, unless a publication asks for them."""
    database.execute(
        "CREATE TABLE g (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED, v text)",
        "INSERT INTO g (id, v) VALUES (1, 'a')",
        "CREATE PUBLICATION pub FOR TABLE g",
    )
    assert _snapshot(database)[TableName("public", "g")][0] == [(None, 1, "a")]


def test_an_empty_table_has_one_chunk_without_rows(database: Database) -> None:
    """Nothing to copy is not an error, and a reader still learns the columns."""
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    assert _snapshot(database)[TableName("public", "t")] == ([], 1)


def test_chunks_cover_a_table_once_and_the_last_is_open_ended(database: Database) -> None:
    """Many small ranges give every row once, even rows added after the pages were counted."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('v', g % 200) FROM generate_series(1, 5000) g",
        "DELETE FROM t WHERE id % 7 = 0",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    rows, parts = _snapshot(database, pages=3)[TableName("public", "t")]
    assert parts > 10
    assert Counter(rows) == _expected(database, TableName("public", "t"))
    with database.connect() as conn:
        [counted] = with_sizes(conn, read_tables(conn, database.source()).values())
        conn.execute("INSERT INTO t SELECT g, 'late' FROM generate_series(10001, 15000) g")
        copied = [
            block
            for part in chunks(counted, 1000)
            for block in copy_blocks(conn, chunk_query(part), block_bytes=1 << 20)
        ]
    assert sum(b"late" in row for block in copied for row in block) == 5000


def test_a_partitioned_table_holds_the_rows_of_its_leaves_and_inheritance_children_stay_out(database: Database) -> None:
    """Each leaf is copied once, those of sub-partitions too; children by INHERITS are tables of their own."""
    database.execute(
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high (v text, id int NOT NULL) PARTITION BY RANGE (id)",
        "ALTER TABLE root ATTACH PARTITION high FOR VALUES FROM (100) TO (1000)",
        "CREATE TABLE top PARTITION OF high DEFAULT",
        "INSERT INTO root SELECT g, 'r' || g FROM generate_series(0, 999) g",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child () INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2)",
        "CREATE PUBLICATION pub FOR TABLE root, ONLY parent WITH (publish_via_partition_root)",
    )
    actual = _snapshot(database)
    assert Counter(actual[TableName("public", "root")][0]) == _expected(database, TableName("public", "root"))
    assert actual[TableName("public", "parent")][0] == [(None, 1)]


def test_a_leaf_that_is_no_heap_is_one_chunk_without_page_numbers(database: Database) -> None:
    """An access method may have no pages; the heap leaves beside it have many chunks."""
    database.execute(
        "CREATE ACCESS METHOD other TYPE TABLE HANDLER heap_tableam_handler",
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (500)",
        "CREATE TABLE high PARTITION OF root DEFAULT USING other",
        "INSERT INTO root SELECT g, repeat('r', 100) FROM generate_series(0, 999) g",
        "CREATE PUBLICATION pub FOR TABLE root WITH (publish_via_partition_root)",
    )
    with database.connect() as conn:
        [table] = with_sizes(conn, read_tables(conn, database.source()).values())
        whole = [part for part in chunks(table, 2) if part.leaf.table.name == "high"]
        assert [b"ctid" in chunk_query(part).as_bytes(conn) for part in whole] == [False]
    rows, parts = _snapshot(database)[table.table]
    assert parts > 2
    assert Counter(rows) == _expected(database, table.table)


def test_a_leaf_that_sends_nothing_is_named_and_left_out(database: Database) -> None:
    """A foreign or unlogged partition: neither the stream nor the copy has it, and `check` says so."""
    database.execute(
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER far FOREIGN DATA WRAPPER nothing",
        "CREATE TABLE root (id int, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (500)",
        "CREATE FOREIGN TABLE away PARTITION OF root FOR VALUES FROM (500) TO (600) SERVER far",
        "CREATE UNLOGGED TABLE light PARTITION OF root FOR VALUES FROM (600) TO (700)",
        "ALTER TABLE root REPLICA IDENTITY FULL",
        "ALTER TABLE low REPLICA IDENTITY FULL",
        "INSERT INTO root VALUES (1, 'a'), (650, 'not logged')",
    )
    try:
        database.execute("CREATE PUBLICATION pub FOR TABLE root WITH (publish_via_partition_root)")
    except psycopg.errors.FeatureNotSupported:
        pytest.skip("this server refuses to publish a table with a foreign partition")
    assert _snapshot(database)[TableName("public", "root")][0] == [(None, 1, "a")]
    with database.connect() as conn:
        actual = [f"{each.severity.value}: {each.reason}" for each in table_findings(conn, database.source())]
    gone = "so neither the copy nor the stream has its rows"
    assert f"warning: its partition public.away is a foreign table, {gone}" in actual
    assert f"warning: its partition public.light is unlogged, {gone}" in actual


def test_rows_of_one_column_of_nulls_and_of_empty_texts_are_all_there(database: Database) -> None:
    """An empty line of COPY is a row too."""
    database.execute(
        "CREATE TABLE t (v text)",
        "INSERT INTO t SELECT CASE g % 3 WHEN 0 THEN NULL WHEN 1 THEN '' ELSE '\\N' END FROM generate_series(1, 999) g",
        "CREATE TABLE n (v int)",
        "INSERT INTO n SELECT NULL FROM generate_series(1, 500)",
        "CREATE PUBLICATION pub FOR TABLE t, n WITH (publish = 'insert')",
    )
    actual = _snapshot(database, pages=1)
    for name in ("t", "n"):
        table = TableName("public", name)
        assert Counter(actual[table][0]) == _expected(database, table)


def test_values_of_many_megabytes_come_whole(database: Database) -> None:
    """Each far larger than a block; between small ones, in several columns, with what COPY has to escape."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text, b bytea)",
        "INSERT INTO t SELECT g, repeat(E'a\\t\\\\\\n', 2000000), repeat('x', 5000000)::bytea FROM generate_series(1, 3) g",
        "INSERT INTO t SELECT g, 'small', NULL FROM generate_series(4, 20) g",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    _same(database, TableName("public", "t"))


@pytest.mark.parametrize("block_bytes", [16, 64, 70, 1000])
def test_what_comes_with_the_beginning_of_the_copy_is_not_overwritten(database: Database, block_bytes: int) -> None:
    """The server sends its answer and the first rows at once: that may fill a small buffer before a row is asked for."""
    query = SQL("SELECT g FROM generate_series(1, 3000) g").format()
    with database.connect() as conn:
        blocks = list(copy_blocks(conn, query, block_bytes=block_bytes))
    rows = [block.octets[a:e].tobytes() for block in blocks for a, e in zip(block.start, block.end, strict=True)]
    assert [int(row) for row in rows] == list(range(1, 3001))


def test_a_text_that_is_not_utf8_stops_its_table_with_a_reason(database: Database) -> None:
    """A database without an encoding can hold such bytes; the error names the table and no value."""
    name = f"{database.name}_ascii"
    database.execute(
        SQL("CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0").format(Identifier(name))
    )
    ascii_only = Database(database.server, name, database.server.dsn(name))
    try:
        ascii_only.execute("CREATE TABLE t (v text)", "INSERT INTO t VALUES (convert_from('\\x636166e9', 'SQL_ASCII'))")
        ascii_only.execute("CREATE PUBLICATION pub FOR TABLE t WITH (publish = 'insert')")
        with pytest.raises(TableError, match=r"public\.t.*not UTF-8"):
            _snapshot(ascii_only)
    finally:
        database.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
