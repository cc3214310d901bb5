"""Tables without a row, to which something is done that would need a copy of their rows: they go on without one.

Cycles are planned as they are run, and added up by plain Python (`tests/support/lake/modelled_lake.py`); a whole run of
migrations is in `tests/scenarios/test_migrations_from_zero.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typing_extensions import LiteralString

from lakeproof.names import TableName
from tests.edges.drain.created_table_cases import do
from tests.support.ingest.fix_drain import Drained, wait_until
from tests.support.lake.modelled_lake import ModelledLake
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres
T = TableName("public", "t")
MADE: LiteralString = "CREATE TABLE {t} (id int PRIMARY KEY, v int, m mood)"
WAYS: dict[str, tuple[LiteralString, ...]] = {
    "rewritten": ("ALTER TABLE {t} ALTER v TYPE int USING v + 1",),
    "rewritten_twice": ("ALTER TABLE {t} ALTER v TYPE int USING v + 1", "ALTER TABLE {t} ALTER v TYPE text"),
    "retyped": ("ALTER TABLE {t} ALTER v TYPE timestamptz USING now()",),
    "retyped_key": ("ALTER TABLE {t} ALTER id TYPE text USING id",),
    "widened_beside_another": (
        "ALTER TABLE {t} ALTER id TYPE bigint USING id::bigint",
        "ALTER TABLE {t} ALTER v SET STATISTICS 10",
    ),
    "added_rewriting": ("ALTER TABLE {t} ADD w float DEFAULT random()",),
    "added_identity": ("ALTER TABLE {t} ADD w int GENERATED ALWAYS AS IDENTITY",),
    "made_again_alike": ("ALTER TABLE {t} DROP v, ADD v int",),
    "relabelled": ("ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'",),
    "unlogged_for_a_while": ("ALTER TABLE {t} SET UNLOGGED", "ALTER TABLE {t} SET LOGGED", "ALTER TABLE {t} ADD w int"),
}


@pytest.fixture
def lake(database: Database, tmp_path: Path) -> ModelledLake:
    """A lake of a database without a table but one that carries the stream on, all of them published."""
    database.execute(
        "CREATE TYPE mood AS ENUM ('sad', 'glad')",
        "CREATE TABLE first (id serial PRIMARY KEY)",
        "CREATE PUBLICATION shop FOR ALL TABLES",
    )
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    return ModelledLake(drained)


def settled(lake: ModelledLake) -> None:
    """Drain and compact until the lake is past what was noticed in the catalog."""
    for _ in range(2):
        lake.drained.database.execute("INSERT INTO first DEFAULT VALUES")
        lake.drained.drain()
        lake.compact()


def goes_on(lake: ModelledLake) -> None:
    """The table is equal, now and with rows."""
    assert lake.cut is not None
    assert T in lake.cut.tables
    assert T not in lake.cut.held
    assert not lake.difference()
    lake.drained.database.execute(
        "INSERT INTO t (id) VALUES ('1'), ('2')",
        "UPDATE t SET m = 'glad'",
    )
    settled(lake)
    assert T not in lake.cut.held
    assert len(lake.rows[T]) == 2
    assert not lake.difference()


@pytest.mark.parametrize("in_lake", [True, False], ids=["in_the_lake", "new"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_done_to_a_table_without_a_row_costs_no_copy(lake: ModelledLake, way: str, *, in_lake: bool) -> None:
    """It is in the lake already, or altered before the first look at the catalog that has it."""
    do(lake.drained.database, "t", (MADE,))
    if in_lake:
        settled(lake)
    do(lake.drained.database, "t", WAYS[way])
    settled(lake)
    goes_on(lake)
    assert T not in lake.ever_held


def test_rows_that_came_and_went_are_gone_in_the_lake_too(lake: ModelledLake) -> None:
    """The rewrite gave them other keys, under which they were deleted: the lake does not have what was deleted."""
    do(lake.drained.database, "t", (MADE, "INSERT INTO {t} VALUES (1, 1), (2, 2)"))
    settled(lake)
    do(lake.drained.database, "t", ("ALTER TABLE {t} ALTER id TYPE int USING id + 10", "DELETE FROM {t}"))
    wait_until(lambda: _vacuumed(lake.drained.database))
    settled(lake)
    goes_on(lake)


def _vacuumed(database: Database) -> bool:
    """Vacuum the table, and see whether no page of it is left; rows stay as long as autovacuum's ANALYZE may see them."""
    do(database, "t", ("VACUUM {t}",))
    return database.rows("SELECT pg_relation_size('t')") == [(0,)]


@contextmanager
def _open(database: Database, statement: LiteralString) -> Iterator[None]:
    """Keep a transaction open with this done in it, and commit it."""
    with database.connect(autocommit=False) as conn:
        conn.execute(statement)
        yield
        conn.commit()


@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES (1, 1)", "LOCK TABLE t"])
def test_a_table_that_may_have_a_row_waits_for_a_copy(lake: ModelledLake, statement: LiteralString) -> None:
    """Somebody inserts one and has not committed, or keeps everybody from looking; the look is not held up."""
    database = lake.drained.database
    do(database, "t", (MADE,))
    settled(lake)
    do(database, "t", ("ALTER TABLE {t} ALTER v TYPE int USING v + 1",))
    with _open(database, statement):
        began = time.monotonic()
        lake.drained.drain()
        assert time.monotonic() - began < 30
    settled(lake)
    assert lake.cut is not None
    assert T in lake.cut.held


def test_a_table_that_somebody_added_by_name_waits_for_a_copy(database: Database, tmp_path: Path) -> None:
    """A transaction that was open when it was added may be sent in part."""
    database.execute("CREATE TABLE first (id serial PRIMARY KEY)", "CREATE PUBLICATION shop FOR TABLE first")
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    lake = ModelledLake(drained)
    do(database, "t", ("CREATE TABLE {t} (id int PRIMARY KEY)", "ALTER PUBLICATION shop ADD TABLE {t}"))
    settled(lake)
    assert lake.cut is not None
    assert T not in lake.cut.tables


def test_a_renamed_table_without_a_row_is_there_under_its_new_name(lake: ModelledLake) -> None:
    """The old name stays as it was, held."""
    do(lake.drained.database, "x", ("CREATE TABLE {t} (id int PRIMARY KEY, m mood)",))
    settled(lake)
    do(lake.drained.database, "x", ("ALTER TABLE {t} RENAME TO t",))
    settled(lake)
    goes_on(lake)
    assert lake.cut is not None
    assert lake.cut.held.keys() == {TableName("public", "x")}
