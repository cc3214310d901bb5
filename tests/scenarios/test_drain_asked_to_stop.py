"""SIGTERM and SIGINT in every phase of a drain: it ends with status 0, what is complete durable and acknowledged.

A drain that waits for the slot or the server ends at once. The zombie, the crash and kill -9 have files of their own.
"""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from lakeproof.names import TableName
from lakeproof.postgres.replication_stream import ReplicationStream
from tests.support.ingest.fix_drain import Drained, wait_until
from tests.support.ingest.forked import Forked
from tests.support.servers.fix_proxy import End, Fault, Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1}
# A drain that is asked while it waits ends within this; a server's own patience is 60 s.
AT_ONCE_S = 10.0
# Stands for the number of bytes until the stream begins.
START = -1


@pytest.fixture
def items(drained: Drained) -> Drained:
    """Create a table, and begin a landing."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    return drained


@pytest.mark.parametrize(
    ("place", "how"),
    [
        ("drain.after_data_files", signal.SIGTERM),
        pytest.param("drain.decoded", signal.SIGINT, marks=pytest.mark.full),
        pytest.param("drain.received", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("drain.after_manifest", signal.SIGTERM, marks=pytest.mark.full),
        pytest.param("drain.after_ack", signal.SIGTERM, marks=pytest.mark.full),
    ],
)
def test_asked_in_the_middle_it_finishes_complete_transactions(
    items: Drained, tmp_path: Path, place: str, how: signal.Signals
) -> None:
    """The segment that is being made is made, and the slot hears of it; what is open comes again."""
    here = tmp_path / "here"
    with psycopg.connect(items.dsn) as open_transaction:
        open_transaction.execute("INSERT INTO items VALUES (-1, 'open')")
        items.database.execute("INSERT INTO items SELECT g, 'n' FROM generate_series(1, 200) g")
        with items.running("stopped", f"{place}@hold:{here}", **LIMITS) as process:
            wait_until(here.exists)
            _asked_and_released(process, how, here)
        chain = items.chain()
        assert items.confirmed_flush() == chain.end
        if place != "drain.received":
            assert len(items.folded()[ITEMS]) == 200
        open_transaction.commit()
    items.drain()
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_asked_while_it_waits_for_the_slot_it_ends_at_once(items: Drained) -> None:
    """Somebody else holds the slot; a drain that is not asked to stop goes on as soon as it is free."""
    stranger = ReplicationStream.open(SecretStr(items.dsn), items.slot, ["shop"], items.chain().end)
    try:
        with items.running("stopped", **LIMITS) as waiting, items.running("stopped", **LIMITS) as patient:
            for process in (waiting, patient):
                _wait_for_line(process, "in use by process")
            _ends_at_once(waiting)
            items.database.execute("INSERT INTO items VALUES (1, 'n')")
            stranger.close()
            wait_until(lambda: len(items.folded().get(ITEMS, [])) == 1)
            _ends_at_once(patient)
    finally:
        stranger.close()
    assert items.confirmed_flush() == items.chain().end


def test_asked_while_the_server_is_away_it_ends_at_once(items: Drained, proxy: Proxy) -> None:
    """The request comes in the middle of a backoff."""
    through = Drained(replace(items.database, dsn=proxy.dsn(items.dsn)), items.lake)
    proxy.refusing = True
    with through.running("stopped", **LIMITS) as process:
        for _ in range(4):
            _wait_for_line(process, "drain.reconnect")
        _ends_at_once(process)


@pytest.mark.parametrize(
    ("number", "after_bytes", "until"),
    [
        # The check of slot and landing: while it connects, and while it asks.
        (0, 1, "stopped"),
        pytest.param(0, 1, "caught_up", marks=pytest.mark.full),
        pytest.param(0, 900, "stopped", marks=pytest.mark.full),
        pytest.param(0, 1500, "caught_up", marks=pytest.mark.full),
        # The stream's connection: the same, and its START_REPLICATION.
        pytest.param(1, 1, "stopped", marks=pytest.mark.full),
        (1, 900, "stopped"),
        (1, START, "stopped"),
        # The worker's look at the catalog, while the stream goes on.
        pytest.param(3, 1, "stopped", marks=pytest.mark.full),
        (3, 900, "stopped"),
    ],
)
def test_asked_while_a_server_is_silent_it_ends_at_once(
    items: Drained, proxy: Proxy, number: int, after_bytes: int, until: str
) -> None:
    """The connection stays, and no answer comes: TCP sees no fault, and libpq would wait for ever."""
    if after_bytes == START:
        after_bytes = _bytes_before_the_stream(items, proxy) - 1
    through = Drained(replace(items.database, dsn=proxy.dsn(items.dsn)), items.lake)
    first = proxy.connections
    proxy.faults = lambda n: Fault(End.STALL, after_bytes) if n - first == number else None
    with through.running(until, **LIMITS) as process:
        wait_until(lambda: proxy.ends == [End.STALL])
        _ends_at_once(process)
    # Whoever comes next finds all as it was.
    items.database.execute("INSERT INTO items VALUES (1, 'n')")
    wait_until(lambda: items.active_pid() is None)
    items.drain()
    assert items.folded()[ITEMS] == [(1, "n")]


def test_asked_while_a_catalog_is_locked_it_ends_at_once(items: Drained) -> None:
    """A DBA's migration holds pg_publication, which every start reads."""
    with psycopg.connect(items.dsn) as migration:
        migration.execute("LOCK TABLE pg_catalog.pg_publication IN ACCESS EXCLUSIVE MODE")
        with items.running("stopped", **LIMITS) as process:
            wait_until(lambda: _waits_for_a_lock(migration))
            _ends_at_once(process)


def _waits_for_a_lock(conn: psycopg.Connection[tuple[Any, ...]]) -> bool:
    return conn.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() != (0,)


def _bytes_before_the_stream(items: Drained, proxy: Proxy) -> int:
    """Return the bytes that a server sends on a stream's connection until it has begun to copy."""
    before = proxy.connections
    with ReplicationStream.open(SecretStr(proxy.dsn(items.dsn)), items.slot, ["shop"], items.chain().end):
        assert proxy.connections == before + 1
        return proxy.passed()[-1]


def _asked_and_released(process: Forked, how: signal.Signals, here: Path) -> None:
    process.send_signal(how)
    here.unlink()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err


def _ends_at_once(process: Forked) -> None:
    begun = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert time.monotonic() - begun < AT_ONCE_S


def _wait_for_line(process: Forked, words: str) -> None:
    line = "first"
    while words not in line:
        line = process.stderr.readline()
        assert line, f"it ended without reporting {words!r}"
