"""The server crashes and restarts under load, again and again: the drain connects by itself, and nothing is lost or doubled.

After a crash the server has forgotten some acknowledgements (PostgreSQL saves a slot's position now and then); the drain
asks for what comes after its own chain's end, so nothing comes twice.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from demo.server import EmbeddedPostgres, ServerError
from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, landed_rows, own_values, told_to_stop, wait_until
from tests.support.servers.fix_postgres import MakeServer, new_database

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
LOG = TableName("public", "log")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1}


@pytest.fixture
def server(make_server: MakeServer) -> Iterator[EmbeddedPostgres]:
    """Start a server, which syncs its commits and keeps its cluster when it is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="lakeproof-crash-"))
    folder.chmod(0o755)
    result = make_server(state=folder / "pg")
    result.start()
    yield result
    result.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("rounds", [2, pytest.param(12, marks=pytest.mark.full)])
def test_a_drain_outlives_crashes_and_restarts_of_its_server(
    server: EmbeddedPostgres, tmp_path: Path, rounds: int
) -> None:
    """Crash and fast shutdown in turn, three writers all the while."""
    chance = random.Random(SEED)
    with new_database(server) as database:
        database.execute("CREATE PUBLICATION shop FOR ALL TABLES", "CREATE TABLE log (n bigserial PRIMARY KEY, t text)")
        shop = Drained(database, tmp_path / "lake")
        shop.begin()
        truth = Drained(replace(database, name=f"{database.name}_truth"), tmp_path / "truth")
        truth.begin()
        with shop.running("stopped", **LIMITS) as process:
            with _load(database.dsn):
                for number in range(rounds):
                    end = shop.chain().end
                    wait_until(lambda end=end: shop.chain().end > end)  # type: ignore[misc]  # a default of a lambda
                    time.sleep(chance.uniform(0.0, 0.5))
                    server.kill() if number % 2 == 0 else server.stop()
                    _start(server)
            target = database.end_of_wal()
            wait_until(lambda: shop.chain().end >= target)
            assert told_to_stop(process).count("drain.reconnect") >= rounds
        shop.drain()
        truth.drain()
        chain = shop.chain()
        assert verify_chain(chain) == chain.next_number
        assert shop.confirmed_flush() == chain.end
        assert shop.folded()[LOG] == shop.source_rows(LOG)
        assert _history(shop) == _history(truth)


def _history(shop: Drained) -> list[tuple[int, int, int]]:
    return [(row["_lp_lsn"], row["_lp_seq"], own_values(version, row)[0]) for version, row in landed_rows(shop.chain())]


def _start(server: EmbeddedPostgres) -> None:
    """Backends that outlive their postmaster by a moment hold the cluster's memory."""
    deadline = time.monotonic() + 30
    while True:
        try:
            server.start()
        except ServerError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


@contextmanager
def _load(dsn: str) -> Iterator[None]:
    over = threading.Event()
    threads = [threading.Thread(target=_write, args=(dsn, over)) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _write(dsn: str, over: threading.Event) -> None:
    """Writes whenever there is a server."""
    while not over.is_set():
        try:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as conn:
                while not over.is_set():
                    conn.execute("INSERT INTO log (t) SELECT 'x' FROM generate_series(1, 20)")
                    conn.execute("UPDATE log SET t = 'y' WHERE n = (SELECT max(n) FROM log)")
                    time.sleep(0.01)
        except psycopg.Error:
            time.sleep(0.05)
