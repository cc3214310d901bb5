"""The connection breaks while the drain waits for its worker, with transactions in hand that the worker has not taken yet.

What was in hand is landed or comes again; nothing later is landed in its place.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, landed_rows, told_to_stop, wait_until
from tests.support.servers.fix_proxy import Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")
STATUS_INTERVAL_S = 0.05


@pytest.mark.parametrize("large_rows", [25_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_what_waits_for_the_worker_when_the_connection_breaks_lands_once(
    drained: Drained, proxy: Proxy, tmp_path: Path, large_rows: int
) -> None:
    """A slow worker, a full queue, a large transaction that waits for it, and small ones behind that."""
    database = drained.database
    database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    database.execute("INSERT INTO items VALUES (-1, 'first')")
    for number in range(3):
        first, last = number * large_rows, (number + 1) * large_rows - 1
        rows = f"SELECT g, repeat('n', 50) FROM generate_series({first}, {last}) g"  # noqa: S608  numbers
        behind = f"INSERT INTO items VALUES ({-2 - number}, 'behind it')"  # noqa: S608  as above
        database.execute(f"INSERT INTO items {rows}", behind)
    target = database.end_of_wal()
    hold = tmp_path / "hold"
    through = Drained(replace(database, dsn=proxy.dsn(drained.dsn)), drained.lake)
    with through.running(
        "stopped", f"drain.decoded@hold:{hold}", queue_bytes=1, spill_bytes=100_000, status_interval_s=STATUS_INTERVAL_S
    ) as process:
        wait_until(hold.exists)
        wait_until(lambda: _all_sent(drained))
        proxy.cut(reset=True)
        # Nothing shows outside that the loop has met the dead socket; it writes to it at every status.
        time.sleep(10 * STATUS_INTERVAL_S)
        hold.unlink()
        wait_until(lambda: drained.chain().end >= target)
        err = told_to_stop(process)
    assert "drain.reconnect" in err
    chain = drained.chain()
    assert verify_chain(chain) == chain.next_number
    assert drained.confirmed_flush() == chain.end
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)
    assert len(landed_rows(chain)) == 3 * large_rows + 4


def _all_sent(drained: Drained) -> bool:
    """True if the server has nothing left to send, as far as it has room: the loop waits, or reads no more.

    Or is not there any more: to a client that reads nothing the proxy itself ends a connection.
    """
    query = (
        "SELECT sent_lsn, pg_current_wal_lsn() FROM pg_stat_replication"
        " WHERE pid = (SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s)"
    )
    before = drained.database.rows(query, [drained.slot])
    time.sleep(0.2)
    return drained.database.rows(query, [drained.slot]) == before
