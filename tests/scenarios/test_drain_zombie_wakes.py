"""A drain hangs before its manifest, loses its connection, and wakes after its successor has written.

The manifest's number is the fence: the zombie loses it, leaves without acknowledging, and takes its files with it.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.landing.catalog_history import newest_catalog_manifest
from lakeproof.landing.chain import verify_chain
from lakeproof.landing.retention import first_needed, put_chain_start, remove_below
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, wait_until

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
ITEMS = TableName("public", "items")


@pytest.mark.parametrize("until", ["stopped", "caught_up"])
def test_a_zombie_that_wakes_loses_and_does_not_acknowledge(drained: Drained, tmp_path: Path, until: str) -> None:
    """The zombie stops even if it would connect again."""
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
    # What the loser has written the next one removes: it can tell that no manifest names it.
    drained.drain()
    assert _data_files(drained) == len([f for m in chain.manifests() for f in m.files])
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)


def test_a_reading_of_a_zombie_that_slept_through_retention_is_not_read(drained: Drained, tmp_path: Path) -> None:
    """It wakes when its manifest's number is free again, and puts none between the kept one and the chain's start."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    drained.database.execute("ALTER TABLE items ADD COLUMN price numeric")
    drained.drain()
    kept = newest_catalog_manifest(drained.chain())
    assert kept is not None
    asleep = tmp_path / "asleep"
    zombie = drained.start_process("stopped", f"drain.before_fingerprint@hold:{asleep}", catalog_interval_s=0.05)
    wait_until(lambda: drained.active_pid() is not None)
    drained.database.execute("ALTER TABLE items REPLICA IDENTITY FULL")
    wait_until(asleep.exists)
    # What it has seen is gone when its successor looks, which has no reading of its own to record.
    drained.database.execute("ALTER TABLE items REPLICA IDENTITY DEFAULT")
    drained.database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    wait_until(lambda: drained.active_pid() is None)
    for _ in range(6):
        drained.database.execute("INSERT INTO items SELECT coalesce(max(id), 0) + 1, 'x' FROM items")
        drained.drain()
    chain = drained.chain()
    assert newest_catalog_manifest(chain) == kept
    first = first_needed(chain, chain.next_number, chain.end, datetime.now(timezone.utc) + timedelta(days=1))
    put_chain_start(chain, first)
    remove_below(drained.chain(), first)

    asleep.unlink()
    out, err = zombie.communicate(timeout=180)
    assert zombie.returncode == 3, err
    assert json.loads(out.splitlines()[-1])["error"] == "FencedError"
    opened = drained.chain()
    names = opened.lake.store.list(opened.lake.paths.manifests(opened.incarnation))
    assert {int(name[-25:-5]) for name in names} <= {0, kept.number, *range(first, opened.next_number)}
    assert newest_catalog_manifest(opened) == kept
    drained.drain()
    assert newest_catalog_manifest(drained.chain()) == kept
    rows = drained.folded()[ITEMS]
    assert rows
    assert rows == drained.source_rows(ITEMS)[-len(rows) :]


def _data_files(drained: Drained) -> int:
    return len(list(drained.lake.glob("shop/landing/000001/data/*.parquet")))
