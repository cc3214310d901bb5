"""Transactions are prepared before a copy's point and committed after it, or the other way round: none is lost or twice.

A slot's making waits for those that were open as it began; those that began since may be open on both sides of its point.
"""
# ruff: noqa: S608  the statements are made here, of the test's own names and numbers

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import pytest
from psycopg.sql import SQL

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.lake.read.arrow.open import read_lake
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database
from tests.support.workloads.lake_workload import SEED

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
_TABLES = ("a", "b", "c", "d")
# Each has one prepared transaction at a time: the server takes five.
_WRITERS = 3


def _write(database: Database, writer: int, ends: threading.Event, done: list[int]) -> None:
    """Prepare transactions over rows of this writer, and end each after a while; one in four is rolled back."""
    rng, last = random.Random(SEED + writer), 0
    with database.connect() as conn:
        while not ends.is_set():
            last += 1
            name, first = f"{database.name}_{writer}_{last}", 1_000_000 * writer + 100 * last
            conn.execute("BEGIN")
            # Of this writer's rows alone, but for those of the transaction before: it waits for nobody.
            own = f"id BETWEEN {1_000_000 * writer} AND {first - 101}"
            for target in rng.sample(_TABLES, rng.randint(1, 4)):
                rows = rng.choice([3, 3, 90])
                conn.execute(SQL(f"INSERT INTO {target} SELECT {first} + g, 'i' FROM generate_series(1, {rows}) g"))
                conn.execute("SAVEPOINT s")
                conn.execute(SQL(f"UPDATE {target} SET v = 'gone' WHERE {own} AND id % 5 = 1"))
                conn.execute("ROLLBACK TO s")
                conn.execute(SQL(f"UPDATE {target} SET v = v || '+' WHERE {own} AND id % 7 = 1"))
                conn.execute(SQL(f"DELETE FROM {target} WHERE {own} AND id % 11 = {last % 11}"))
            conn.execute(SQL(f"PREPARE TRANSACTION '{name}'"))
            time.sleep(rng.choice([0, 0.01, 0.2]))
            ending = "ROLLBACK" if rng.random() < 0.25 else "COMMIT"
            conn.execute(SQL(f"{ending} PREPARED '{name}'"))
            done.append(last)


def test_each_is_in_the_copy_or_in_the_stream(database: Database, tmp_path: Path) -> None:
    """Tables are copied one after the other, each at a point of its own, the first one with the slot."""
    for name in _TABLES:
        key = "" if name == "d" else "PRIMARY KEY"
        database.execute(SQL(f"CREATE TABLE {name} (id int {key}, v text)"))
    database.execute("ALTER TABLE d REPLICA IDENTITY FULL", "CREATE PUBLICATION pub FOR TABLE a, b, c, d")
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    ends, done = threading.Event(), list[int]()
    writers = [
        threading.Thread(target=_write, args=(database, writer, ends, done)) for writer in range(1, _WRITERS + 1)
    ]
    for thread in writers:
        thread.start()
    try:
        for number, name in enumerate(_TABLES):
            bootstrap(config, "shop", [table(name)])
            # One that is prepared right now is committed between the copy's point and the next start of the drain.
            if number % 2:
                drain(config, "shop", Until.caught_up())
            else:
                into_the_lake(config)
    finally:
        ends.set()
        for thread in writers:
            thread.join(60)
    assert len(done) > 30
    into_the_lake(config)
    lake = read_lake(config)
    for name in _TABLES:
        rows = [tuple(row.values()) for row in lake.table("shop", table(name)).arrow().to_pylist()]
        assert sorted(rows) == sorted(database.rows(SQL(f"SELECT id, v FROM {name}"))), f"{name}, seed {SEED}"
    assert wrong_in(prove(config, "shop", None, WITHOUT)) == {}, f"seed {SEED}"
