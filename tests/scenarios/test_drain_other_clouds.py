"""Bootstrap and drain into a store that speaks as Azure's or Google's: what landed is what PostgreSQL has.

S3 is `test_drain_object_store.py`'s; what a store promises is in `tests/edges/storage/test_store.py`.
"""

from __future__ import annotations

import os
import random
import signal
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_rows import copied_and_landed
from tests.support.stores.fix_cloud_servers import CLOUDS, CloudServer

pytestmark = [pytest.mark.postgres, pytest.mark.full]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ITEMS = TableName("public", "items")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.2}


@pytest.mark.parametrize("kind", CLOUDS)
def test_what_landed_there_is_what_the_source_has(drained: Drained, cloud: CloudServer, kind: str) -> None:
    """A copy, a drain that is killed at both ends of a segment, a file of several parts, and no gap."""
    print(f"LAKEPROOF_SEED={SEED}")  # noqa: T201  (to run a failure again)
    del kind
    shop, chance = replace(drained, location=cloud.location()), random.Random(SEED)
    shop.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "INSERT INTO items SELECT g, md5(g::text) FROM generate_series(1, 3000) g",
    )
    bootstrap(shop.config(**LIMITS), SOURCE)
    for failpoint in ("drain.after_data_files", "drain.after_manifest"):
        with psycopg.connect(shop.dsn) as conn:
            low = chance.randint(1, 4000)
            conn.execute(
                "INSERT INTO items SELECT g, 'n' FROM generate_series(%s::int, %s) g ON CONFLICT DO NOTHING",
                [low, low + 20],
            )
            conn.execute("UPDATE items SET note = note || 'x' WHERE id BETWEEN %s AND %s", [low, low + 10])
            conn.execute("DELETE FROM items WHERE id = %s", [low])
        with shop.running("caught_up", failpoint, **LIMITS) as process:
            assert process.wait(300) == -signal.SIGKILL, failpoint
    shop.database.execute(
        "INSERT INTO items SELECT 100000 + g, string_agg(md5(random()::text), '') FROM generate_series(1, 8) g,"
        " LATERAL (SELECT * FROM generate_series(1, 60000)) s GROUP BY g"
    )
    shop.drain()
    chain = shop.chain()
    assert verify_chain(chain) == chain.next_number
    assert shop.confirmed_flush() == chain.end
    assert copied_and_landed(shop, ITEMS) == shop.source_rows(ITEMS)
