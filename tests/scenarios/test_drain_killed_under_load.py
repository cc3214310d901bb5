"""kill -9 of the drain, at random moments and at every failpoint, while three writers go on.

At the end what was landed, folded row by row in plain Python, is what PostgreSQL has; so nothing was lost or came twice.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
WRITERS = 3
FAILPOINTS = ("drain.received", "drain.decoded", "drain.after_data_files", "drain.after_manifest", "drain.after_ack")
TABLES = {
    TableName("public", "accounts"): "id, balance, note, changed",
    TableName("public", "ledger"): "id, account, amount",
}
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1, "spill_bytes": 100_000}


@pytest.fixture
def shop(drained: Drained) -> Drained:
    """Two tables, one with values out of line, and a landing that has begun."""
    drained.database.execute(
        "CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(12, 2), note text, changed timestamptz DEFAULT now())",
        "ALTER TABLE accounts ALTER note SET STORAGE EXTERNAL",
        "CREATE TABLE ledger (id bigserial PRIMARY KEY, account int, amount numeric(12, 2))",
    )
    drained.begin()
    return drained


def _write(dsn: str, number: int, ended: threading.Event, failures: list[BaseException]) -> None:
    """Transactions of one to eight statements over accounts of its own; some are rolled back, a few are large."""
    chance = random.Random(SEED * 100 + number)
    try:
        with psycopg.connect(dsn) as conn:
            while not ended.is_set():
                for _ in range(chance.randint(1, 8)):
                    _statement(conn, chance, number * 10_000)
                if chance.random() < 0.02:
                    conn.execute(
                        "INSERT INTO ledger (account, amount) SELECT %s, g FROM generate_series(1, 1500) g", [number]
                    )
                if chance.random() < 0.1:
                    conn.rollback()
                else:
                    conn.commit()
                time.sleep(0.02)
    except psycopg.Error as error:
        failures.append(error)


def _statement(conn: psycopg.Connection, chance: random.Random, base: int) -> None:
    account, other = base + chance.randint(0, 300), base + chance.randint(400, 700)
    match chance.randint(0, 5):
        case 0:
            note = "n" * chance.choice((3, 3, 3, 9000))
            conn.execute(
                "INSERT INTO accounts VALUES (%s, 0, %s) ON CONFLICT (id) DO UPDATE SET note = excluded.note",
                [account, note],
            )
        case 1 | 2:
            conn.execute("UPDATE accounts SET balance = balance + 1.25, changed = now() WHERE id = %s", [account])
        case 3:
            conn.execute("DELETE FROM accounts WHERE id = %s", [account])
        case 4:
            conn.execute("DELETE FROM accounts WHERE id = %s", [other])
            conn.execute("UPDATE accounts SET id = %s WHERE id = %s", [other, account])
        case _:
            conn.execute("INSERT INTO ledger (account, amount) VALUES (%s, 2.5)", [account])


@contextmanager
def _load(shop: Drained) -> Iterator[None]:
    ended = threading.Event()
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_write, args=(shop.dsn, n, ended, failures)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures


def _all_is_equal(shop: Drained) -> None:
    shop.drain()
    chain = shop.chain()
    assert verify_chain(chain) == chain.next_number
    assert shop.confirmed_flush() == chain.end
    folded = shop.folded()
    for table, columns in TABLES.items():
        assert folded[table] == shop.source_rows(table, columns)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
@pytest.mark.parametrize("passings", [(3,), pytest.param((1, 4, 9), marks=pytest.mark.full)])
def test_killed_at_each_failpoint_nothing_is_lost_or_doubled(
    shop: Drained, failpoint: str, passings: tuple[int, ...]
) -> None:
    """Drains die there one after the other, at different passings; the slot is never ahead of the chain."""
    with _load(shop):
        for nth in passings:
            process = shop.start_process("stopped", failpoint=f"{failpoint}:{nth}", **LIMITS)
            process.communicate(timeout=180)
            assert process.returncode == -9
            assert shop.confirmed_flush() <= shop.chain().end
    _all_is_equal(shop)


@pytest.mark.parametrize("drains", [2, pytest.param(10, marks=pytest.mark.full)])
def test_killed_at_random_moments_nothing_is_lost_or_doubled(shop: Drained, drains: int) -> None:
    """Drains die within half a second of their first link; each goes on from the chain's end."""
    chance = random.Random(SEED)
    ends = [shop.chain().end]
    with _load(shop):
        for _ in range(drains):
            process = shop.start_process("stopped", **LIMITS)
            wait_until(lambda: shop.chain().end > ends[-1])
            time.sleep(chance.uniform(0.0, 0.5))
            process.kill()
            process.communicate()
            assert shop.confirmed_flush() <= shop.chain().end
            ends.append(shop.chain().end)
    assert ends == sorted(ends)
    _all_is_equal(shop)


def test_killed_again_and_again_before_its_manifest_it_does_not_fill_the_disk(shop: Drained) -> None:
    """Each start makes the chain pass what the one before has left, so that the next one can remove it."""
    shop.database.execute("INSERT INTO ledger (account, amount) SELECT 1, g FROM generate_series(1, 2000) g")
    data = shop.lake / shop.chain().lake.paths.data(shop.chain().incarnation)
    named, left = _files(data), []
    for _ in range(6):
        process = shop.start_process("stopped", failpoint="drain.after_data_files", **LIMITS)
        process.communicate(timeout=180)
        assert process.returncode == -9
        left.append(len(_files(data) - named))
    assert left == [1, 2, 2, 2, 2, 2]
    shop.database.execute("INSERT INTO accounts (id, balance) VALUES (1, 2)")
    shop.drain()
    _all_is_equal(shop)
    assert len(_files(data) - named) == 2


def _files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.parquet")} if folder.exists() else set()
