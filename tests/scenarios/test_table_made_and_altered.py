"""A table that is made in the stream and altered before or after a look at the catalog: nothing of it is lost in silence.

Cycles are planned as they are run, and added up by plain Python (`tests/modelled_lake.py`): no JVM is needed. The whole way
with one is at the end. `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lakeproof.names import TableName
from tests.fix_drain import Drained
from tests.fix_postgres import Database
from tests.modelled_lake import ModelledLake

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
FAST = TableName("public", "fast")


@pytest.fixture
def lake(database: Database, tmp_path: Path) -> ModelledLake:
    """A lake of a database without a table but one that carries the stream on, all of them published."""
    database.execute("CREATE TABLE first (id serial PRIMARY KEY, v int)", "CREATE PUBLICATION shop FOR ALL TABLES")
    drained = Drained(database, tmp_path / "lake")
    drained.begin()
    return ModelledLake(drained)


def settled(lake: ModelledLake, *, between: bool = False) -> None:
    """Drain until the landing is past what was noticed in the catalog, and compact; `between`: each time."""
    for last in (False, True):
        lake.drained.database.execute("INSERT INTO first (v) VALUES (1)")
        lake.drained.drain()
        if between or last:
            lake.compact()


def run(database: Database, *statements: str) -> None:
    """Run each in a transaction of its own."""
    with database.connect() as conn:
        for statement in statements:
            conn.execute(statement.encode())


@pytest.mark.parametrize("between", [False, True], ids=["compacted_late", "compacted_each_time"])
@pytest.mark.parametrize("looked", [False, True], ids=["before_a_look", "after_a_look"])
@pytest.mark.parametrize("default", [" DEFAULT 42", ""], ids=["with_default", "without"])
@pytest.mark.parametrize("keyed", [False, True], ids=["full", "keyed"])
def test_a_column_added_to_a_new_table_comes_without_a_further_row(
    lake: ModelledLake, *, looked: bool, default: str, keyed: bool, between: bool
) -> None:
    """Row 1 has the default in the lake, and a row that comes later fits."""
    database = lake.drained.database
    how = ["CREATE TABLE fast (f1 int PRIMARY KEY)"]
    if not keyed:
        how = ["CREATE TABLE fast (f1 int)", "ALTER TABLE fast REPLICA IDENTITY FULL"]
    run(database, *how, "INSERT INTO fast VALUES (1)")
    if looked:
        lake.drained.drain()
    run(database, f"ALTER TABLE fast ADD COLUMN f2 int{default}")
    settled(lake, between=between)
    assert not lake.difference()
    assert lake.rows[FAST] == [{1: 1, 2: 42 if default else None}]
    assert FAST not in lake.ever_held
    run(database, "INSERT INTO fast VALUES (2, 7)")
    settled(lake, between=between)
    assert not lake.difference()
    assert lake.entered[FAST] == 1
