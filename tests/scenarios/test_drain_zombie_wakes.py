"""A drain hangs before its manifest, loses its connection, and wakes after its successor has written.

The manifest's number is the fence: the zombie loses it, leaves without acknowledging, and takes its files with it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fix_drain import Drained, wait_until
from wal2delta.landing.chain import verify_chain
from wal2delta.names import TableName

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")


@pytest.mark.parametrize("until", ["stopped", "caught_up"])
def test_a_zombie_that_wakes_loses_and_does_not_acknowledge(drained: Drained, tmp_path: Path, until: str) -> None:
    """Whether it would connect again or not."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    drained.database.execute("INSERT INTO items SELECT g, 'first' FROM generate_series(1, 100) g")
    asleep = tmp_path / "asleep"
    zombie = drained.start_process(until, f"drain.after_data_files@hold:{asleep}", flush_interval_s=0.05)
    wait_until(asleep.exists)
    assert _data_files(drained) == 1
    drained.database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    wait_until(lambda: drained.active_pid() is None)

    drained.database.execute("UPDATE items SET note = 'second' WHERE id > 50")
    report = drained.drain()
    chain = drained.chain()
    assert report.rows == 150
    confirmed = drained.confirmed_flush()

    asleep.unlink()
    out, err = zombie.communicate(timeout=180)
    assert zombie.returncode == 3, err
    assert json.loads(out.splitlines()[-1])["error"] == "FencedError"
    assert drained.chain().newest == chain.newest
    assert drained.confirmed_flush() == confirmed == chain.end
    assert verify_chain(drained.chain()) == chain.next_number
    assert _data_files(drained) == len([f for m in chain.manifests() for f in m.files])
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)


def _data_files(drained: Drained) -> int:
    return len(list(drained.lake.glob("shop/landing/000001/data/*.parquet")))
