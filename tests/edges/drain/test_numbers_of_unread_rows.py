"""Rows of an older schema, read when the catalog has gone on: the numbers that they land with; a real server, no lake.

Each case is a table (id, a, b) whose columns have the numbers 1, 2 and 3, drained in one batch after everything was done.
That the lake then equals the source is in `test_schema_change.py` and `tests/properties/schema/test_schema_random.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation, RelationColumn
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.postgres.catalog.fingerprint import CommitVisibility, observe_catalog
from lakeproof.postgres.catalog.relations import ReadingsAround, read_now, version_of
from lakeproof.postgres.connections.connect import connect
from lakeproof.schema import Identity
from tests.support.ingest.fix_drain import SOURCE, Drained, landed_rows, make_config
from tests.support.servers.fix_postgres import Database

PAGE = Path(__file__).parents[3] / "docs" / "schema-changes.md"
ROW: LiteralString = "INSERT INTO {t} DEFAULT VALUES"
# What is done, and for each row the names of its columns with their numbers.
CASES: dict[str, tuple[Sequence[LiteralString], Sequence[str]]] = {
    "renamed": ([ROW, "ALTER TABLE {t} RENAME a TO x", ROW], ["id1 a2 b3", "id1 x2 b3"]),
    "renamed_twice": (
        [ROW, "ALTER TABLE {t} RENAME a TO x", ROW, "ALTER TABLE {t} RENAME x TO y"],
        ["id1 a2 b3", "id1 x2 b3"],
    ),
    "dropped": ([ROW, "ALTER TABLE {t} DROP a", ROW], ["id1 a2 b3", "id1 b3"]),
    "both_dropped": ([ROW, "ALTER TABLE {t} DROP a", ROW, "ALTER TABLE {t} DROP b"], ["id1 a2 b3", "id1 b3"]),
    "both_dropped_the_other_way": ([ROW, "ALTER TABLE {t} DROP b", ROW, "ALTER TABLE {t} DROP a"], ["id1 a2 b3", "id1 a2"]),
    "dropped_and_its_name_given_on": (
        ["ALTER TABLE {t} DROP b", ROW, "ALTER TABLE {t} RENAME a TO b", ROW],
        ["id1 a2", "id1 b2"],
    ),
    "swapped": (
        ["ALTER TABLE {t} RENAME a TO x", ROW, "ALTER TABLE {t} RENAME b TO a", "ALTER TABLE {t} RENAME x TO b", ROW],
        ["id1 x2 b3", "id1 b2 a3"],
    ),
    "widened": (
        [ROW, "ALTER TABLE {t} ALTER a TYPE int", ROW, "ALTER TABLE {t} ALTER a TYPE bigint", ROW],
        ["id1 a2 b3", "id1 a2 b3", "id1 a2 b3"],
    ),
    "added": ([ROW, "ALTER TABLE {t} ADD c int", ROW], ["id1 a2 b3", "id1 a2 b3 c4"]),
    "came_and_went": (
        [ROW, "ALTER TABLE {t} ADD c int", ROW, "ALTER TABLE {t} DROP c", ROW],
        ["id1 a2 b3", "id1 a2 b3 c-4", "id1 a2 b3"],
    ),
    "came_and_went_among_others": (
        ["ALTER TABLE {t} ADD c int", ROW, "ALTER TABLE {t} ADD d int", ROW, "ALTER TABLE {t} DROP c", ROW],
        ["id1 a2 b3 c-4", "id1 a2 b3 c-4 d5", "id1 a2 b3 d0"],
    ),
    # The first rows may also be of a column that came as b and was renamed to c. Both are gone.
    "one_for_another": (
        [ROW, "ALTER TABLE {t} DROP b, ADD c int", ROW, "ALTER TABLE {t} DROP c", ROW],
        ["id1 a2 b-4", "id1 a2 c-4", "id1 a2"],
    ),
    "made_again": (
        [ROW, "ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b int", ROW],
        ["id1 a2 b3", "id1 a2 b4"],
    ),
    # The two rows look the same: which of the columns they have is known to nobody.
    "made_again_just_like_it": ([ROW, "ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b text", ROW], ["id1 a2 b0"]),
    "made_again_just_like_it_and_more": (
        [ROW, "ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b text", ROW, "ALTER TABLE {t} ADD c int", ROW],
        ["id1 a2 b0", "id1 a2 b4 c5"],
    ),
    "made_again_and_renamed_at_once": (
        [f"BEGIN; ALTER TABLE {{t}} DROP b; ALTER TABLE {{t}} ADD b text; {ROW}; ALTER TABLE {{t}} RENAME b TO c; COMMIT"],
        ["id1 a2 b0"],
    ),
    "another_one_with_a_default": ([ROW, "ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD c text DEFAULT 'y'"], ["id1 a2 b3"]),
    # The last rows may also be of b, renamed to c before it was dropped and c was added.
    "one_just_like_another": (
        [ROW, "ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD c text", ROW],
        ["id1 a2 b3", "id1 a2 c0"],
    ),
    "of_a_type_that_is_gone": ([ROW, "ALTER TABLE {t} DROP b", "DROP TYPE {type}"], ["id1 a2 b3"]),
    "within_a_transaction": (
        [f"BEGIN; {ROW}; ALTER TABLE {{t}} RENAME a TO x; {ROW}; ALTER TABLE {{t}} DROP x; {ROW}; COMMIT"],
        ["id1 a2 b3", "id1 x2 b3", "id1 b3"],
    ),
    "table_dropped": ([ROW, "DROP TABLE {t}"], ["id1 a2 b3"]),
    "table_dropped_later": (["ALTER TABLE {t} DROP a", ROW, "DROP TABLE {t}"], ["id1 b3"]),
    "table_renamed": ([ROW, "ALTER TABLE {t} RENAME TO {other}"], ["id1 a2 b3"]),
}  # fmt: skip


def _do(database: Database, name: str, *statements: LiteralString) -> None:
    names = {"t": name, "type": f"{name}_type", "other": f"{name}_other"}
    for text in statements:
        database.execute(SQL(text).format(**{key: Identifier(value) for key, value in names.items()}))


def _make(database: Database, name: str) -> None:
    typed = "of_a_type_that_is_gone"
    if name == typed:
        _do(database, name, "CREATE TYPE {type} AS ENUM ('x')")
    _do(
        database,
        name,
        "CREATE TABLE {t} (id serial PRIMARY KEY, a int2 DEFAULT 1, b {type} DEFAULT 'x')"
        if name == typed
        else "CREATE TABLE {t} (id serial PRIMARY KEY, a int2 DEFAULT 1, b text DEFAULT 'x')",
        ROW,
    )


def _landed(source: Drained) -> dict[str, list[str]]:
    """Return each table's schemas in the order of its rows, with column numbers; a schema that stays is listed once."""
    schemas: dict[str, list[str]] = {}
    ids: dict[str, str] = {}
    for version, _ in landed_rows(source.chain()):
        name = version.table.name
        if ids.get(name) != version.id:
            message = " ".join(f"{column.name}{column.attnum}" for column in version.columns)
            schemas.setdefault(name, []).append(message)
        ids[name] = version.id
    return schemas


@pytest.mark.postgres
def test_rows_of_an_older_schema_land_with_its_numbers(database: Database, tmp_path: Path) -> None:
    """Each table's columns are known by what was read of it before, and by what the catalog has kept."""
    for name in CASES:
        _make(database, name)
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    source = Drained(database, tmp_path / "lake")
    source.begin()
    for name, (statements, _) in CASES.items():
        _do(database, name, *statements)
    source.drain()
    assert _landed(source) == {name: list(schemas) for name, (_, schemas) in CASES.items()}
    kinds = {c.kind for version, _ in landed_rows(source.chain()) for c in version.columns if c.attnum > 0}
    assert kinds == {"int4", "int2", "int8", "text", "enum"}


def test_the_page_has_these_cases() -> None:
    """docs/schema-changes.md, "With older rows still unread": each case with what its rows land as, and no other."""
    form = r"^\| \*([a-z ]+)\*: .* \| ([a-z0-9, -]+) \|$"
    actual = dict(re.findall(form, PAGE.read_text("utf-8"), flags=re.MULTILINE))
    assert actual == {name.replace("_", " "): ", ".join(schemas) for name, (_, schemas) in CASES.items()}


# What is done between two announcements of (id, a, b) on one connection, and what the second one stands for.
BETWEEN: dict[str, tuple[Sequence[LiteralString], str]] = {
    "analyzed": (["ANALYZE {t}"], "id1 a2 b3"),
    "dropped": (["ALTER TABLE {t} DROP b"], "id1 a2 b3"),
    "added": (["ALTER TABLE {t} ADD c text"], "id1 a2 b3"),
    "table_dropped": (["DROP TABLE {t}"], "id1 a2 b3"),
    "another_one": (["ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD c text"], "id1 a2 b3"),
    "made_again": (["ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b text"], "id1 a2 b0"),
    "made_again_twice": (["ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b text"] * 2, "id1 a2 b0"),
    "made_again_and_more": (
        ["ALTER TABLE {t} DROP b", "ALTER TABLE {t} ADD b text", "ALTER TABLE {t} ADD c int"],
        "id1 a2 b0",
    ),
}


@pytest.mark.postgres
@pytest.mark.parametrize("name", BETWEEN)
def test_a_table_that_is_announced_again_has_its_old_numbers_if_that_is_sure(database: Database, name: str) -> None:
    """The server announces it again for an ANALYZE too: neither that, nor what it was before, says which column b is."""
    statements, messages = BETWEEN[name]
    _make(database, name)
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    source = make_config(database.dsn, Path("/"), "slot").sources[SOURCE]
    oid = Oid(database.value("SELECT %s::regclass::oid::bigint", [name]))
    types = {"id": 23, "a": 21, "b": 25}
    columns = tuple(RelationColumn(column, Oid(of), -1, column == "id") for column, of in types.items())
    relation = Relation(oid, "public", name, Identity.DEFAULT, columns)
    with connect(database.secret) as conn:
        before = observe_catalog(conn, [SOURCE], CommitVisibility(Lsn.ZERO)).fingerprint
        cache = RelationCache(
            lambda message, _, existing: version_of(
                source, message, read_now(conn, [message])[oid], ReadingsAround(before, previous=existing)
            )
        )
        first = cache.learn(relation)
        _do(database, name, *statements)
        again = cache.learn(relation)
    assert " ".join(f"{column.name}{column.attnum}" for column in first.columns) == "id1 a2 b3"
    assert " ".join(f"{column.name}{column.attnum}" for column in again.columns) == messages
    assert (again == first) == (messages == "id1 a2 b3")
