"""The source is itself a subscriber, and its upstream's clock was wrong: commits before our era, after 9999, at infinity.

PostgreSQL sends such a commit with the time that the upstream gave. The drain goes on, the lake equals the source, and
nothing is ordered, counted or refused by the time. `pg_replication_origin_xact_setup` is what a subscriber's worker calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.status import status
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.segments.manifest import LogicalMessageFile
from lakeproof.landing.segments.reader import file_url
from lakeproof.storage.times import time_of
from tests.support.ingest.fix_drain import Drained, landed_rows
from tests.support.servers.fix_postgres import Database
from tests.support.servers.recovery import ITEMS, Shop

pytestmark = pytest.mark.postgres

_INFINITY = (1 << 63) - 1
# A time as an upstream gives it, and what the row has of it: year and month, or PostgreSQL's number.
TIMES: dict[str, tuple[int, int] | int] = {
    "0044-03-15 00:00+00 BC": -64_464_508_800_000_000,
    "infinity": _INFINITY,
    "2021-07-01 00:00+00": (2021, 7),
    "294276-12-31 23:59+00": 9_223_371_331_140_000_000,
    "-infinity": -(1 << 63),
    "9999-12-31 23:59:59.999999+00": (9999, 12),
    "10000-01-01 00:00+00": 252_455_616_000_000_000,
    "0001-01-01 00:00+00": (1, 1),
}


def _apply(database: Database, times: Sequence[str], first: int) -> None:
    """Commit one row for each time, as a subscriber's worker does; the first of them is updated in the last transaction."""
    origin = f"lp_{database.name}"
    with database.connect() as conn:
        conn.execute("SELECT pg_replication_origin_create(%s)", [origin])
        try:
            conn.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
            for number, time in enumerate(times, first):
                with conn.transaction():
                    conn.execute("SELECT pg_replication_origin_xact_setup('0/1', %s::timestamptz)", [time])
                    conn.execute("INSERT INTO items VALUES (%s, %s)", [number, time])
                    conn.execute("UPDATE items SET note = note || '!' WHERE id = %s", [first])
            conn.execute("SELECT pg_replication_origin_session_reset()")
        finally:
            conn.execute("SELECT pg_replication_origin_drop(%s)", [origin])


def test_the_stream_goes_on_and_each_time_is_kept_exactly(drained: Drained) -> None:
    """Whole, streamed and spilled transactions; a slot that was not acknowledged is compared with the landing by them."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    start = drained.begin()
    _apply(drained.database, list(TIMES), 1)
    drained.drain(messages=["nothing"])
    inserts = [row for _, row in landed_rows(drained.chain()) if row["_lp_op"] == "insert"]
    rows = [(row["id"], row["_lp_commit_time"], row["_lp_commit_number"]) for row in inserts]
    for (_, time, number), expected in zip(rows, TIMES.values(), strict=True):
        assert (number if time is None else (time.year, time.month)) == expected
    assert [key for key, _, _ in rows] == list(range(1, len(TIMES) + 1))
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)
    manifests = [m for m in drained.chain().manifests() if m.rows]
    newest = manifests[-1]
    # In a manifest no commit is later than its landing, and what is before the year 1 has no time.
    assert {(m.first_commit_us, m.last_commit_us) for m in manifests} <= {(None, _us(newest.created_at))}
    origins = [row for m in manifests for f in m.logical_messages for row in _rows_of(drained, f)]
    assert [o["_lp_commit_number"] for o in origins] == [t if isinstance(t, int) else None for t in TIMES.values()]
    assert start < newest.end_lsn


def test_the_history_of_a_slot_that_is_behind_is_compared(drained: Drained) -> None:
    """The drain is killed before it acknowledges: the server sends the commits again, and they are those that landed."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    _apply(drained.database, ["infinity"], 1)
    with drained.running("caught_up", failpoint="drain.after_manifest") as process:
        process.wait(180)
    assert drained.confirmed_flush() < drained.chain().end
    _apply(drained.database, ["0044-03-15 BC"], 2)
    drained.drain()
    assert drained.folded()[ITEMS] == drained.source_rows(ITEMS)


@pytest.mark.full
@pytest.mark.spark
def test_the_lake_equals_the_source_and_times_have_their_rule(
    spark: SparkSession, database: Database, tmp_path: Path
) -> None:
    """History has time or number, a proof is equal; a cut's time, and so `as_of`, is never later than the landing's."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    before = datetime.now(timezone.utc)
    _apply(database, list(TIMES), 100)
    shop.drain()
    shop.compact(spark)
    assert shop.lake_rows() == shop.source_rows()
    cut = newest_cut(shop.source_lake)
    assert cut is not None
    assert cut.commit_time is not None
    assert before < time_of(cut.commit_time) < datetime.now(timezone.utc)
    history = lakeproof.open(spark, shop.config).table("shop", ITEMS, layer="history", hidden=True)
    actual = {
        row["id"]: row["n"] if row["year"] is None else (row["year"], row["month"])
        for row in history.where("_lp_op = 'insert'")
        .selectExpr("id", "_lp_commit_number n", "year(_lp_commit_time) year", "month(_lp_commit_time) month")
        .collect()
    }
    assert actual == dict(enumerate(TIMES.values(), 100))
    # What is committed later in earnest is later for `as_of`, too.
    database.execute("INSERT INTO items VALUES (200, 'later')")
    shop.drain()
    shop.compact(spark)
    whole = lakeproof.as_of(spark, shop.config, datetime.now(timezone.utc) + timedelta(seconds=1))
    assert whole.table(ITEMS).where("id >= 100").count() == len(TIMES) + 1
    early = lakeproof.as_of(spark, shop.config, time_of(cut.commit_time))
    assert early.table(ITEMS).where("id >= 100").count() == len(TIMES)
    feed = [t.commit_time for t in lakeproof.transactions(shop.config)]
    assert [time is None for time in feed] == [isinstance(t, int) for t in TIMES.values()] + [False]
    assert not status(shop.config).problems


def _us(text: str) -> int:
    return round(time_of(text).timestamp() * 1_000_000)


def _rows_of(drained: Drained, file: LogicalMessageFile) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pq.read_table(file_url(drained.chain(), file)).to_pylist()
    return rows
