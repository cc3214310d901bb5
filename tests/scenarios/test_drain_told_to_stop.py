"""SIGTERM and SIGINT in every phase of a drain: it ends with status 0, what is complete durable and acknowledged.

A drain that waits for the slot or the server ends at once. The zombie, the crash and kill -9 have files of their own.
"""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from tests.fix_drain import Drained, wait_until
from tests.fix_proxy import Proxy
from wal2delta.names import TableName
from wal2delta.postgres.stream import ReplicationStream

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1}
# A drain that is told while it waits ends within this; a server's own patience is 60 s.
AT_ONCE_S = 10.0


@pytest.fixture
def items(drained: Drained) -> Drained:
    """One table, and a landing that has begun."""
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
def test_told_in_the_middle_it_finishes_what_is_complete(items: Drained, place: str, how: signal.Signals) -> None:
    """The segment that is being made is made, and the slot hears of it; what is open comes again."""
    with (
        psycopg.connect(items.dsn) as open_transaction,
        items.running("stopped", f"{place}@hang:3", **LIMITS) as process,
    ):
        wait_until(lambda: items.active_pid() is not None)
        open_transaction.execute("INSERT INTO items VALUES (-1, 'open')")
        items.database.execute("INSERT INTO items SELECT g, 'n' FROM generate_series(1, 200) g")
        time.sleep(1.0)
        process.send_signal(how)
        _, err = process.communicate(timeout=180)
        assert process.returncode == 0, err
        chain = items.chain()
        assert items.confirmed_flush() == chain.end
        if place != "drain.received":
            assert len(items.folded()[ITEMS]) == 200
        open_transaction.commit()
    items.drain()
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_told_while_it_waits_for_the_slot_it_ends_at_once(items: Drained) -> None:
    """Someone else holds it; and told nothing, it goes on as soon as the slot is free."""
    stranger = ReplicationStream.open(SecretStr(items.dsn), items.slot, ["shop"], items.chain().end)
    try:
        with items.running("stopped", **LIMITS) as waiting, items.running("stopped", **LIMITS) as patient:
            for process in (waiting, patient):
                _told(process, "in use by process")
            _ends_at_once(waiting)
            items.database.execute("INSERT INTO items VALUES (1, 'n')")
            stranger.close()
            wait_until(lambda: len(items.folded().get(ITEMS, [])) == 1)
            _ends_at_once(patient)
    finally:
        stranger.close()
    assert items.confirmed_flush() == items.chain().end


def test_told_while_the_server_is_away_it_ends_at_once(items: Drained, proxy: Proxy) -> None:
    """In the middle of its backoff."""
    through = Drained(replace(items.database, dsn=proxy.dsn(items.dsn)), items.lake)
    proxy.refusing = True
    with through.running("stopped", **LIMITS) as process:
        for _ in range(4):
            _told(process, "drain.reconnect")
        _ends_at_once(process)


def _ends_at_once(process: subprocess.Popen[str]) -> None:
    begun = time.monotonic()
    process.terminate()
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert time.monotonic() - begun < AT_ONCE_S


def _told(process: subprocess.Popen[str], words: str) -> None:
    assert process.stderr is not None
    line = "first"
    while words not in line:
        line = process.stderr.readline()
        assert line, f"it ended without telling {words!r}"
