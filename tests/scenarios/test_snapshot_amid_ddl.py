"""Snapshots of all tables while others are made, altered, renamed, truncated and dropped: none fails as a whole."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
KEPT = TableName("public", "kept")
CHANGES = 60


@pytest.mark.parametrize("seed", [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, 15))])
def test_a_snapshot_amid_ddl_comes_through(drained: Drained, seed: int) -> None:
    """Each copies what is there; what nobody altered is equal in the end, and so is what has become of the others."""
    drained.database.execute(
        "CREATE TABLE kept (id int PRIMARY KEY, v text)",
        "INSERT INTO kept SELECT g, 'v' FROM generate_series(1, 2000) g",
    )
    with _ddl(drained, SEED * 1000 + seed) as churned:
        while churned[0] < (CHANGES if seed else CHANGES // 3):
            report = bootstrap(_config(drained), SOURCE, again=True)
            assert report.tables[KEPT].rows == 2000
            assert report.failed == {}
    bootstrap(_config(drained), SOURCE, again=True)
    assert drained.database.slots() == {drained.slot}
    drained.drain()
    for (name,) in drained.database.rows("SELECT relname::text FROM pg_class WHERE relkind = 'r' AND oid > 16384"
                                         " AND relnamespace = 'public'::regnamespace"):  # fmt: skip
        table = TableName("public", name)
        assert copied_and_landed(drained, table) == drained.source_rows(table)


def _config(shop: Drained) -> Config:
    config = shop.config()
    # DDL goes on at its own pace, however slow the machine: there a table takes more attempts.
    settings = SnapshotConfig(connections=2, chunk_pages=2, attempts=100)
    source = config.sources[SOURCE].model_copy(update={"snapshot": settings})
    return config.model_copy(update={"sources": {SOURCE: source}})


@contextmanager
def _ddl(shop: Drained, seed: int) -> Iterator[list[int]]:
    """DDL on six tables in its own thread until the end of the block; counts what went through."""
    over, done = threading.Event(), [0]
    failures: list[BaseException] = []

    def churn() -> None:
        chance = random.Random(seed)
        try:
            with psycopg.connect(shop.dsn, autocommit=True) as conn:
                while not over.wait(chance.uniform(0.0, 0.06)):
                    with suppress(psycopg.errors.UndefinedTable, psycopg.errors.DuplicateTable):
                        _one(conn, chance)
                        done[0] += 1
        except psycopg.Error as error:
            failures.append(error)

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()
    assert not failures


def _one(conn: psycopg.Connection[tuple[object, ...]], chance: random.Random) -> None:
    one, other = (Identifier(f"t{number}") for number in chance.sample(range(6), 2))
    kind = chance.choice(("make", "make", "make", "drop", "rename", "truncate", "rewrite", "add", "write", "write"))
    if kind == "make":
        conn.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, n int)").format(one))
        conn.execute(SQL("INSERT INTO {} SELECT g, g FROM generate_series(1, 500) g").format(one))
    elif kind == "drop":
        conn.execute(SQL("DROP TABLE {}").format(one))
    elif kind == "rename":
        conn.execute(SQL("ALTER TABLE {} RENAME TO {}").format(one, other))
    elif kind == "truncate":
        conn.execute(SQL("TRUNCATE {}").format(one))
    elif kind == "rewrite":
        conn.execute(SQL("ALTER TABLE {} ALTER n TYPE {}").format(one, SQL(chance.choice(("int", "bigint")))))
    elif kind == "add":
        conn.execute(SQL("ALTER TABLE {} ADD {} int DEFAULT 3").format(one, Identifier(f"c{chance.randrange(10**6)}")))
    else:
        conn.execute(SQL("UPDATE {} SET id = id + 100000 WHERE id % 7 = 0 AND id < 100000").format(one))
