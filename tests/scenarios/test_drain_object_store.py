"""Bootstrap and drain into an object store: killed, cut off and resumed, what landed is what PostgreSQL has.

The store is a real server with faults on its way; what a store promises is in `tests/edges/storage/test_object_store_*.py`.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.errors import TransientError
from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained, told_to_stop
from tests.support.ingest.forked import Forked
from tests.support.ingest.snapshot_process import start_bootstrap
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.stores.fix_object_store import S3Server, object_store
from tests.support.stores.fix_object_store import storage as storage_of
from tests.support.stores.object_proxy import Fault, Proxied, Request

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ITEMS, NOTES = TableName("public", "items"), TableName("public", "notes")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.2, "backoff_max_s": 1.0}
PLACES = ("snapshot.after_chunk:3", "snapshot.after_part")
ALWAYS = 1_000_000


@pytest.fixture
def shop(drained: Drained, bucket: str, proxied: Proxied) -> Drained:
    """Two tables, one with values out of line, and no landing yet; the lake is behind the proxy."""
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE TABLE notes (id bigserial PRIMARY KEY, body text)",
        "ALTER TABLE notes ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT g, md5(g::text) FROM generate_series(1, 6000) g",
        "INSERT INTO notes (body) SELECT repeat(md5(g::text), 100) FROM generate_series(1, 50) g",
    )
    storage = storage_of(proxied.endpoint, retry_s=3)
    return replace(drained, location=LakeLocation(f"s3://{bucket}/lake", storage))


def _config(shop: Drained) -> Config:
    config = shop.config(**LIMITS)
    source = config.sources[SOURCE].model_copy(update={"snapshot": SnapshotConfig(connections=2, chunk_pages=8)})
    return config.model_copy(update={"sources": {SOURCE: source}})


def _change(shop: Drained, chance: random.Random, transactions: int) -> None:
    for _ in range(transactions):
        low, note = chance.randint(1, 6500), chance.randint(1, 50)
        with psycopg.connect(shop.dsn) as conn:
            conn.execute(
                "INSERT INTO items SELECT g, 'n' FROM generate_series(%s::int, %s) g ON CONFLICT DO NOTHING",
                [low, low + 20],
            )
            conn.execute("UPDATE items SET note = note || 'x' WHERE id BETWEEN %s AND %s", [low, low + 10])
            conn.execute("DELETE FROM items WHERE id = %s", [low])
            conn.execute("UPDATE notes SET id = id + 1000 WHERE id = %s", [note])


def _change_until_killed_or_landed(shop: Drained, chance: random.Random, drain: Forked, segments: int) -> None:
    """Change rows until the drain has ended or landed more segments: one that starts late lands much in its first one."""
    begun, deadline = shop.chain().next_number, time.monotonic() + 90
    while drain.poll() is None and shop.chain().next_number <= begun + segments:
        assert time.monotonic() < deadline, "it did not come about in time"
        _change(shop, chance, 1)


def _all_is_equal(shop: Drained) -> None:
    shop.drain()
    chain = shop.chain()
    assert verify_chain(chain) == chain.next_number
    assert shop.confirmed_flush() == chain.end
    for table in (ITEMS, NOTES):
        assert copied_and_landed(shop, table) == shop.source_rows(table)


def test_bootstrap_and_drain_killed_and_resumed(shop: Drained) -> None:
    """Each next run goes on from what the store has; the snapshot's lock keeps others out for its time."""
    chance = random.Random(SEED)
    for place in PLACES:
        process = start_bootstrap(_config(shop), place)
        process.join(300)
        assert process.exitcode == -9, place
        _change(shop, chance, 2)
        with pytest.raises(TransientError, match="another snapshot is being copied"):
            bootstrap(_config(shop), SOURCE)
        # As if half a minute had passed, after which a lock is followed (`test_object_store_locks.py`).
        shop.source_lake.store.delete(shop.source_lake.paths.snapshot_lock)
    report = bootstrap(_config(shop), SOURCE)
    assert report.tables.keys() | report.kept.keys() == {ITEMS, NOTES}
    for failpoint in ("drain.after_data_files:3", "drain.after_manifest:3", ""):
        with shop.running("stopped", failpoint, **LIMITS) as drain:
            _change_until_killed_or_landed(shop, chance, drain, 3)
            drain.kill()
            drain.wait()
    _all_is_equal(shop)


@pytest.mark.full
def test_a_drain_waits_out_a_store_that_is_away(shop: Drained, proxied: Proxied) -> None:
    """Answers lost, refusals for longer than a request is repeated, expired credentials: it goes on by itself."""
    bootstrap(_config(shop), SOURCE)
    chance = random.Random(SEED)
    with shop.running("stopped", **LIMITS) as drain:
        for fault in (
            Fault(_writing, 5, lose=True),
            Fault(_writing, 3, halve=True),
            Fault(_any, ALWAYS, status=503, code="SlowDown"),
            Fault(_any, ALWAYS, status=400, code="ExpiredToken"),
        ):
            proxied.faults = [fault]
            _change(shop, chance, 5)
            time.sleep(8 if fault.times == ALWAYS else 1)
            assert drain.poll() is None
            proxied.faults = []
            _change_until_killed_or_landed(shop, chance, drain, 2)
            assert drain.poll() is None
        events = told_to_stop(drain)
    assert "the credentials have expired" in events
    _all_is_equal(shop)


def test_a_large_transaction_goes_in_parts(shop: Drained, proxied: Proxied) -> None:
    """A segment's file of several parts, one of which is cut in half; what landed is what was written."""
    bootstrap(_config(shop), SOURCE)
    proxied.faults = [Fault(lambda r: r.kind == "PUT?uploadId", 1, halve=True)]
    shop.database.execute(
        "INSERT INTO notes (body) SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 40) g,"
        " LATERAL (SELECT * FROM generate_series(1, 20000)) s GROUP BY g"
    )
    shop.drain()
    assert proxied.kinds().count("PUT?uploadId") >= 3
    _all_is_equal(shop)


def test_a_drain_that_was_followed_writes_nothing_more(shop: Drained, bucket: str, s3_server: S3Server) -> None:
    """Two drains of one landing: the chain's numbers decide, whatever their connections to the store are like."""
    bootstrap(_config(shop), SOURCE)
    direct = replace(shop, location=LakeLocation(f"s3://{bucket}/lake", storage_of(s3_server.endpoint)))
    shop.database.execute("INSERT INTO items VALUES (9001, 'a')")
    stale = direct.chain()
    shop.drain()
    store = object_store(bucket, s3_server.endpoint, "lake")
    manifests = store.list(f"{SOURCE}/landing/000001/manifests")
    assert stale.next_number < len(manifests)
    _all_is_equal(direct)


def _writing(request: Request) -> bool:
    return request.kind == "PUT"


def _any(_: Request) -> bool:
    return True
