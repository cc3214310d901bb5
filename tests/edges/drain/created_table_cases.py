"""Ways of making a table, and whether every row of it is in the stream of a publication of all tables.

Trying them belongs to `test_tables_created.py` and `tests/scenarios/test_table_created_in_the_stream.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import LiteralString

from tests.support.servers.fix_postgres import Database

FILLED: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v int)",
    "INSERT INTO {t} VALUES (1, 1), (2, 2)",
)
LATER: tuple[LiteralString, ...] = ("INSERT INTO {t} VALUES (3, 3)", "UPDATE {t} SET v = 9 WHERE id = 1")


@dataclass(frozen=True)
class Case:
    """A table `t`, true if it counts as created in the stream, and the statements run between two readings."""

    created: bool
    does: tuple[LiteralString, ...]


# The publication has all tables, partitions under their own names.
CASES = {
    "filled": Case(True, (*FILLED, *LATER)),
    "idle": Case(True, FILLED[:1]),
    "at_once": Case(
        True,
        (
            "BEGIN",
            "CREATE TABLE {t} (id int, v text)",
            "INSERT INTO {t} SELECT i, i FROM generate_series(1, 9) i",
            "COMMIT",
        ),
    ),
    "streamed": Case(
        True,
        (
            "BEGIN",
            "CREATE TABLE {t} (id int PRIMARY KEY, v text)",
            "INSERT INTO {t} SELECT i, repeat('x', 100) FROM generate_series(1, 3000) i",
            "DELETE FROM {t} WHERE id > 10",
            "COMMIT",
        ),
    ),
    "in_savepoint": Case(
        True,
        (
            "BEGIN",
            "SAVEPOINT a",
            "CREATE TABLE {t} (id int)",
            "RELEASE a",
            "INSERT INTO {t} VALUES (1)",
            "COMMIT",
        ),
    ),
    "after_rollback": Case(
        True,
        (
            "BEGIN",
            "SAVEPOINT a",
            "CREATE TABLE {t} (id int)",
            "INSERT INTO {t} VALUES (5)",
            "ROLLBACK TO a",
            "CREATE TABLE {t} (id int, v int)",
            "INSERT INTO {t} VALUES (1, 1)",
            "COMMIT",
        ),
    ),
    "as_select": Case(True, ("CREATE TABLE {t} AS SELECT i AS id, 'x' AS v FROM generate_series(1, 5) i",)),
    "selected_into": Case(
        True,
        (
            "SELECT i AS id, 'x'::text AS v INTO {t} FROM generate_series(1, 5) i",
            "ALTER TABLE {t} REPLICA IDENTITY FULL",
        ),
    ),
    "with_defaults": Case(
        True,
        (
            "CREATE TABLE {t} (id serial PRIMARY KEY, n numeric(10, 2) DEFAULT 0, g int GENERATED ALWAYS AS (1) STORED)",
            "INSERT INTO {t} (n) VALUES (1), (2.5)",
        ),
    ),
    "partition": Case(
        True,
        (
            "CREATE TABLE {t} PARTITION OF root FOR VALUES FROM (0) TO (10)",
            "INSERT INTO root VALUES (1, 'a'), (2, 'b')",
        ),
    ),
    "owned": Case(
        True,
        (
            *FILLED,
            "GRANT SELECT ON {t} TO public",
            "ALTER TABLE {t} OWNER TO CURRENT_USER",
            "ANALYZE {t}",
            "VACUUM {t}",
        ),
    ),
    "keyed_later": Case(
        True,
        (
            "CREATE TABLE {t} (id int, v int)",
            "ALTER TABLE {t} ADD PRIMARY KEY (id)",
            "INSERT INTO {t} VALUES (1, 1)",
            *LATER,
        ),
    ),
    "truncated_at_once": Case(
        True,
        (
            "BEGIN",
            "CREATE TABLE {t} (id int)",
            "INSERT INTO {t} VALUES (1)",
            "TRUNCATE {t}",
            "INSERT INTO {t} VALUES (2)",
            "COMMIT",
        ),
    ),
    "named_before_rows": Case(
        True,
        (
            "CREATE TABLE {t}_x (id int PRIMARY KEY, v int)",
            "ALTER TABLE {t}_x RENAME TO {t}",
            "INSERT INTO {t} VALUES (1, 1)",
            *LATER,
        ),
    ),
    "moved_before_rows": Case(
        True,
        ("CREATE TABLE apart.{t} (id int PRIMARY KEY, v int)", "ALTER TABLE apart.{t} SET SCHEMA public", *FILLED[1:]),
    ),
    "made_again": Case(
        True, (*FILLED, "DROP TABLE {t}", "CREATE TABLE {t} (v text, id int)", "INSERT INTO {t} VALUES ('a', 1)")
    ),
    "of_enum": Case(
        True,
        (
            "CREATE TYPE {t}_mood AS ENUM ('sad', 'glad')",
            "CREATE TABLE {t} (id int, v {t}_mood)",
            "INSERT INTO {t} VALUES (1, 'sad')",
        ),
    ),
    "inherits": Case(True, ("CREATE TABLE {t} (w int) INHERITS (first)", "INSERT INTO {t} (id) VALUES (100)")),
    # As pg_restore and many others load a table: the key comes last.
    "restored": Case(
        True,
        (
            "CREATE TABLE {t} (id int NOT NULL, v int)",
            "INSERT INTO {t} VALUES (1, 1), (2, 2)",
            "ALTER TABLE ONLY {t} ADD CONSTRAINT {t}_pkey PRIMARY KEY (id)",
            *LATER,
        ),
    ),
    "restored_and_left": Case(
        True,
        (
            "CREATE TABLE {t} (id int, v int)",
            "INSERT INTO {t} VALUES (1, 1), (2, 2)",
            "ALTER TABLE {t} ALTER v SET DEFAULT 5",
            "ALTER TABLE {t} ADD PRIMARY KEY (id)",
        ),
    ),
    "restored_at_once": Case(
        True,
        (
            "BEGIN",
            "CREATE TABLE {t} (id int, v int)",
            "INSERT INTO {t} VALUES (1, 1), (2, 2)",
            "ALTER TABLE {t} ADD PRIMARY KEY (id)",
            *LATER,
            "COMMIT",
        ),
    ),
    "as_select_keyed": Case(
        True,
        (
            "CREATE TABLE {t} AS SELECT i AS id FROM generate_series(1, 5) i",
            "ALTER TABLE {t} ADD PRIMARY KEY (id)",
            "DELETE FROM {t} WHERE id = 2",
        ),
    ),
    "grown": Case(
        True,
        (
            *FILLED,
            "ALTER TABLE {t} ADD w int DEFAULT 42",
            "INSERT INTO {t} VALUES (3, 3, 3)",
            "ALTER TABLE {t} ADD x text",
            "INSERT INTO {t} VALUES (4, 4, 4, 'x')",
            "UPDATE {t} SET w = 7 WHERE id = 1",
            "ALTER TABLE {t} ADD y int DEFAULT 9",
        ),
    ),
    "copied_like": Case(True, ("CREATE TABLE {t} (LIKE first)", "INSERT INTO {t} (id) VALUES (1)")),
    "key_gone": Case(True, (*FILLED, *LATER, "ALTER TABLE {t} DROP CONSTRAINT {t}_pkey")),
    # Whatever rows it had, it has none now.
    "truncated": Case(True, (*FILLED, "TRUNCATE {t}")),
    "copied_like_all": Case(True, ("CREATE TABLE {t} (LIKE first INCLUDING ALL)", "INSERT INTO {t} (id) VALUES (1)")),
    "attached": Case(
        True,
        (
            "CREATE TABLE {t} (id int NOT NULL, v text)",
            "INSERT INTO {t} VALUES (41, 'x')",
            "ALTER TABLE root ATTACH PARTITION {t} FOR VALUES FROM (40) TO (50)",
        ),
    ),
    # Filled again, it may have lost a row that nobody sent: another file shows no more than that.
    "truncated_and_filled": Case(False, (*FILLED, "TRUNCATE {t}", "INSERT INTO {t} VALUES (3, 3)")),
    # Not to be believed: rows that were not sent, or sent as another table's, or otherwise than they are now.
    "unlogged": Case(
        False,
        (
            "CREATE UNLOGGED TABLE {t} (id int PRIMARY KEY)",
            "INSERT INTO {t} VALUES (1)",
            "ALTER TABLE {t} SET LOGGED",
            "INSERT INTO {t} VALUES (2)",
        ),
    ),
    "rewritten": Case(False, (*FILLED, "ALTER TABLE {t} ALTER v TYPE int USING v + 1")),
    "rewritten_at_once": Case(
        False,
        (
            "BEGIN",
            "CREATE TABLE {t} (id int)",
            "INSERT INTO {t} VALUES (1)",
            "ALTER TABLE {t} ALTER id TYPE text USING id + 1",
            "COMMIT",
        ),
    ),
    "renamed": Case(False, (*FILLED, "ALTER TABLE {t} RENAME TO {t}_y", "ALTER TABLE {t}_y RENAME TO {t}_z")),
    "relabelled": Case(
        False,
        (
            "CREATE TYPE {t}_mood AS ENUM ('sad')",
            "CREATE TABLE {t} (id int, v {t}_mood)",
            "INSERT INTO {t} VALUES (1, 'sad')",
            "ALTER TYPE {t}_mood RENAME VALUE 'sad' TO 'blue'",
        ),
    ),
    "composed": Case(
        False,
        (
            "CREATE TYPE {t}_pair AS (a int, b int)",
            "CREATE TABLE {t} (id int, v {t}_pair)",
            "INSERT INTO {t} VALUES (1, '(1,2)')",
            "ALTER TYPE {t}_pair ADD ATTRIBUTE c int",
        ),
    ),
    "column_made_again": Case(False, (*FILLED, "ALTER TABLE {t} DROP v", "ALTER TABLE {t} ADD v int")),
    "column_swapped": Case(False, (*FILLED, "ALTER TABLE {t} RENAME v TO w", "ALTER TABLE {t} ADD v int")),
    "dropped": Case(False, (*FILLED, "DROP TABLE {t}")),
    "system_column": Case(False, (*FILLED, "GRANT SELECT (tableoid) ON {t} TO public")),
}


def do(database: Database, name: str, does: tuple[LiteralString, ...]) -> None:
    """The texts about the table `name`."""
    with database.connect() as conn:
        for text in does:
            conn.execute(text.replace("{t}", name).encode())
