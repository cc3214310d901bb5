"""The network cuts, resets, delays and truncates at random places while a workload runs and a drain follows it.

What has landed at the end is, change by change and in the order of their commits, what a second slot made at the same time
brings over a sound network; and it adds up to what PostgreSQL has.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, landed_rows, told_to_stop, wait_until
from tests.support.servers.fix_postgres import Database
from tests.support.servers.fix_proxy import End, Fault, Proxy, random_faults

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ITEMS, LOG = TableName("public", "items"), TableName("public", "log")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1, "spill_bytes": 100_000}


@pytest.fixture
def shop(drained: Drained) -> Drained:
    """Create two tables, one of them without a key, and begin a landing."""
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text, amount numeric(12, 2))",
        "CREATE TABLE log (number bigserial PRIMARY KEY, item int, text text)",
    )
    drained.begin()
    return drained


@pytest.mark.parametrize("seed", [0, *(pytest.param(number, marks=pytest.mark.full) for number in range(1, 40))])
def test_each_commit_lands_once_and_in_order_after_any_network_fault(
    shop: Drained, proxy: Proxy, tmp_path: Path, seed: int
) -> None:
    """The drain connects again by itself, unasked."""
    truth = Drained(replace(shop.database, name=f"{shop.slot}_truth"), tmp_path / "truth")
    truth.begin()
    drawn = random_faults(SEED * 1000 + seed, share=0.6, ends=(End.CUT, End.RESET, End.HALF))
    # One at least, whatever the seed.
    proxy.faults = lambda number: Fault(End.RESET, 500) if number == 1 else drawn(number)
    with _through(shop, proxy).running("stopped", **LIMITS) as process:
        with _load(shop.database, SEED * 1000 + seed):
            wait_until(lambda: proxy.connections > 0)
            deadline = time.monotonic() + 4.0
            while time.monotonic() < deadline or not proxy.ends:
                assert shop.confirmed_flush() <= shop.chain().end
                time.sleep(0.05)
        proxy.faults = lambda _: None
        told_to_stop(process)
    shop.drain()
    truth.drain()
    chain = shop.chain()
    assert verify_chain(chain) == chain.next_number
    assert shop.confirmed_flush() == chain.end
    assert _history(shop) == _history(truth)
    for table in (ITEMS, LOG):
        assert shop.folded()[table] == shop.source_rows(table)


@pytest.mark.parametrize(
    ("end", "after_bytes"),
    [
        (End.RESET, 1),
        (End.CUT, 700_000),
        pytest.param(End.HALF, 40_000, marks=pytest.mark.full),
        pytest.param(End.CUT, 1, marks=pytest.mark.full),
        pytest.param(End.CUT, 40_000, marks=pytest.mark.full),
        pytest.param(End.RESET, 40_000, marks=pytest.mark.full),
        pytest.param(End.RESET, 700_000, marks=pytest.mark.full),
        pytest.param(End.HALF, 1, marks=pytest.mark.full),
        pytest.param(End.HALF, 700_000, marks=pytest.mark.full),
    ],
)
def test_a_transaction_cut_in_two_lands_once(shop: Drained, proxy: Proxy, end: End, after_bytes: int) -> None:
    """A cut at the first byte, among the first rows or in the middle of 2 MB: the second connection has it all."""
    shop.database.execute("INSERT INTO items SELECT g, repeat('n', 60), g FROM generate_series(1, 20000) g")
    shop.database.execute("DELETE FROM items WHERE id % 7 = 0")
    # Number 0 looks whether slot and landing meet; number 1 is the stream.
    proxy.faults = lambda number: Fault(end, after_bytes) if number == 1 else None
    with _through(shop, proxy).running("stopped", **LIMITS) as process:
        target = shop.database.end_of_wal()
        wait_until(lambda: shop.chain().end >= target)
        err = told_to_stop(process)
    assert proxy.ends == [end]
    assert "drain.reconnect" in err
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)
    assert sum(1 for _, row in landed_rows(shop.chain()) if row["_lp_op"] == "insert") == 20000


def test_a_server_that_is_heard_no_more_is_given_up_and_tried_again(shop: Drained, proxy: Proxy) -> None:
    """A proxy keeps the connection and passes nothing on: TCP sees no fault, the drain does."""
    with _through(shop, proxy).running("stopped", silence_timeout_s=2.0, **LIMITS) as process:
        wait_until(lambda: shop.active_pid() is not None)
        first = shop.active_pid()
        proxy.stall()
        shop.database.execute("INSERT INTO items VALUES (1, 'late', 1)")
        wait_until(lambda: len(shop.folded().get(ITEMS, [])) == 1)
        assert shop.active_pid() != first
        err = told_to_stop(process)
    # Whichever was under way: the stream, or a question about the catalog.
    assert re.search("(nothing came from the server|no answer) for 2 s", err), err


@pytest.mark.parametrize(
    ("number", "after_bytes"),
    [(0, 900), pytest.param(1, 900, marks=pytest.mark.full), pytest.param(3, 900, marks=pytest.mark.full)],
)
def test_a_question_that_is_never_answered_is_asked_again(
    shop: Drained, proxy: Proxy, number: int, after_bytes: int
) -> None:
    """The check before the start, the stream's connection before it streams, the worker's look at the catalog."""
    proxy.faults = lambda n: Fault(End.STALL, after_bytes) if n == number else None
    with _through(shop, proxy).running("stopped", silence_timeout_s=2.0, **LIMITS) as process:
        wait_until(lambda: proxy.ends == [End.STALL])
        shop.database.execute("INSERT INTO items VALUES (1, 'late', 1)")
        wait_until(lambda: len(shop.folded().get(ITEMS, [])) == 1)
        err = told_to_stop(process)
    assert "connecting again" in err


def test_an_idle_server_that_answers_is_not_given_up(shop: Drained, proxy: Proxy) -> None:
    """The server has no changes, and answers when asked."""
    # It asks after half of this time, and the answer may come a second or two later on a busy machine.
    with _through(shop, proxy).running("seconds=9", silence_timeout_s=6.0, **LIMITS) as process:
        _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
    assert "drain.reconnect" not in err
    assert err.count("drain.start") == 1


def test_a_server_that_refuses_connections_is_tried_until_it_does_not(shop: Drained, proxy: Proxy) -> None:
    """The drain reconnects without a restart."""
    proxy.refusing = True
    with _through(shop, proxy).running("stopped", **LIMITS) as process:
        time.sleep(1.5)
        assert process.poll() is None
        proxy.refusing = False
        shop.database.execute("INSERT INTO items VALUES (1, 'late', 1)")
        wait_until(lambda: len(shop.folded().get(ITEMS, [])) == 1)


def _through(shop: Drained, proxy: Proxy) -> Drained:
    return Drained(replace(shop.database, dsn=proxy.dsn(shop.dsn)), shop.lake)


def _history(shop: Drained) -> list[tuple[str, dict[str, Any]]]:
    """Every change with its commit's position and its place there; which segment it came in is the network's affair."""
    return [
        (str(version.table), {name: value for name, value in row.items() if name != "_lp_ord"})
        for version, row in landed_rows(shop.chain())
    ]


@contextmanager
def _load(database: Database, seed: int) -> Iterator[None]:
    ended = threading.Event()
    failures: list[BaseException] = []
    threads = [threading.Thread(target=_write, args=(database.dsn, seed, n, ended, failures)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failures


def _write(dsn: str, seed: int, number: int, ended: threading.Event, failures: list[BaseException]) -> None:
    """Small transactions, a few of thousands of rows, one in ten rolled back; ids of its own."""
    chance = random.Random(f"{seed}/{number}")
    try:
        with psycopg.connect(dsn) as conn:
            while not ended.is_set():
                for _ in range(chance.randint(1, 6)):
                    item = number * 1000 + chance.randint(0, 200)
                    conn.execute(
                        "INSERT INTO items VALUES (%s, %s, 1.5) ON CONFLICT (id) DO UPDATE SET amount = items.amount + 1",
                        [item, "n" * chance.choice((0, 5, 800))],
                    )
                    conn.execute("INSERT INTO log (item, text) VALUES (%s, 'touched')", [item])
                    if chance.random() < 0.2:
                        conn.execute("DELETE FROM items WHERE id = %s", [item])
                if chance.random() < 0.03:
                    conn.execute("INSERT INTO log (item, text) SELECT g, 'many' FROM generate_series(1, 3000) g")
                if chance.random() < 0.1:
                    conn.rollback()
                else:
                    conn.commit()
                time.sleep(0.01)
    except psycopg.Error as error:
        failures.append(error)
