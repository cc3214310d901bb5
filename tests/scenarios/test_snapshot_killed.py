"""A snapshot that is killed or stopped while it is copied: finished tables stay, the others are copied at a later point.

Amid writers. After each kill every visible table is whole; at the end snapshots and stream together, folded in plain
Python, are what PostgreSQL has, no file lies there that no document names, and no slot is left over.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.errors import TransientError
from lakeproof.events import Event, Stop
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import (
    finished_tables,
    missing_tables,
    part_key,
    read_end,
    read_snapshot,
    snapshot_folders,
)
from lakeproof.snapshot.paused import PausedTable, add_paused, read_paused, set_resuming
from lakeproof.snapshot.run import SnapshotReport
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.ingest.snapshot_process import start_bootstrap
from tests.support.ingest.snapshot_rows import copied_and_landed

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ONE = Incarnation(1)
ITEMS, LOG, PARTS, NONE = (TableName("public", name) for name in ("items", "log", "parts", "none"))
TABLES = (ITEMS, LOG, PARTS, NONE)
PLACES = (
    "bootstrap.after_slot",
    "bootstrap.after_head",
    "snapshot.after_request",
    "snapshot.after_chunk",
    "snapshot.before_part",
    "snapshot.after_part",
    "bootstrap.after_chunks",
    "snapshot.before_end",
)


@pytest.fixture
def shop(drained: Drained) -> Drained:
    """A table of many chunks, a bag, a partitioned and an empty one."""
    drained.database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE TABLE log (at int, what text)",
        "ALTER TABLE log REPLICA IDENTITY FULL",
        "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (500)",
        "CREATE TABLE parts_high PARTITION OF parts DEFAULT",
        "CREATE TABLE none (id int PRIMARY KEY)",
        "INSERT INTO items SELECT g, md5(g::text) FROM generate_series(1, 6000) g",
        "INSERT INTO log SELECT g % 5, 'x' FROM generate_series(1, 300) g",
        "INSERT INTO parts SELECT g FROM generate_series(1, 1000) g",
        "ALTER PUBLICATION shop SET (publish_via_partition_root)",
    )
    return drained


def _config(shop: Drained) -> Config:
    config = shop.config()
    settings = SnapshotConfig(connections=2, chunk_pages=8)
    source = config.sources[SOURCE].model_copy(update={"snapshot": settings})
    return config.model_copy(update={"sources": {SOURCE: source}})


def test_killed_at_each_place_the_next_run_copies_what_is_missing(shop: Drained) -> None:
    """The kills follow one another, so each run has to go on from the state that the previous run left."""
    with _writer(shop):
        for place in PLACES:
            # The run before may have left nothing to copy: its parts are put as time passes.
            nothing_to_do = not _missing(shop)
            process = start_bootstrap(_config(shop), place)
            process.join(300)
            assert process.exitcode == (0 if nothing_to_do else -9), place
            _all_visible_is_whole(shop)
        report = bootstrap(_config(shop), SOURCE)
    _ends_equal(shop, report)


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(n, marks=pytest.mark.full) for n in range(5, 50))])
def test_killed_at_random_the_next_run_copies_what_is_missing(shop: Drained, seed: int) -> None:
    """Up to three kills come at a failpoint, or at any moment after a snapshot has begun."""
    chance = random.Random(SEED * 1000 + seed)
    with _writer(shop):
        for _ in range(chance.randint(1, 3)):
            _kill_one(shop, chance)
            _all_visible_is_whole(shop)
        lake = _lake(shop)
        finished = finished_tables(lake, ONE) if shop.lake.exists() else {}
        missing = missing_tables(lake, ONE) if finished else set()
        report = bootstrap(_config(shop), SOURCE)
    if report.kept:
        # A whole snapshot may have been followed by one that was killed: then what that one had not come to is missing.
        assert {t: p.consistent_point for t, p in finished.items() if t not in missing} == {
            t: copied.consistent_point for t, copied in report.kept.items()
        }
    _ends_equal(shop, report)


def _missing(shop: Drained) -> set[TableName]:
    """Return the tables that no snapshot has whole."""
    finished = finished_tables(_lake(shop), ONE) if shop.lake.exists() else {}
    return missing_tables(_lake(shop), ONE) if finished else set(TABLES)


def _kill_one(shop: Drained, chance: random.Random) -> None:
    if chance.random() < 0.6:
        process = start_bootstrap(_config(shop), f"{chance.choice(PLACES)}:{chance.randint(1, 4)}")
    else:
        begun = len(list(shop.lake.rglob("request.json")))
        process = start_bootstrap(_config(shop))
        wait_until(lambda: not process.is_alive() or len(list(shop.lake.rglob("request.json"))) > begun, 120)
        time.sleep(chance.uniform(0.0, 0.15))
        process.kill()
    process.join(300)
    assert process.exitcode in {-9, 0}


def test_stopped_after_a_table_it_stays_and_the_next_run_says_so(shop: Drained) -> None:
    """Ctrl-C, and ending a run in Dagster, are a stop: exit status, message, slots and files; then only what is left."""
    for kind in ("bootstrap.head", "bootstrap.table"):
        stop = Stop()
        with pytest.raises(TransientError, match="stopped before it was complete; run it again"):
            bootstrap(_config(shop), SOURCE, None, _at(kind, stop.request), stop)
        assert shop.database.slots() == {shop.slot}
        _all_visible_is_whole(shop)
        _no_file_is_left_over(shop)
    messages: list[Event] = []
    report = bootstrap(_config(shop), SOURCE, None, messages.append)
    assert report.kept
    assert report.tables.keys() | report.kept.keys() == set(TABLES)
    assert not report.tables.keys() & report.kept.keys()
    [message] = [event.message for event in messages if event.kind == "bootstrap.resume"]
    assert message.startswith(f"{len(report.kept)} of 4 tables finished at ")
    assert message.endswith(f"; copying the other {len(report.tables)} at a new point")
    _ends_equal(shop, report)


def test_asked_for_by_name_or_again_finished_tables_are_copied_too(shop: Drained) -> None:
    """Names are just these; `again` is all of them; and without either a whole snapshot is followed by a whole one."""
    stop = Stop()
    with pytest.raises(TransientError):
        bootstrap(_config(shop), SOURCE, None, _at("bootstrap.table", stop.request), stop)
    finished = set(finished_tables(_lake(shop), ONE))
    assert finished
    assert bootstrap(_config(shop), SOURCE, sorted(finished)).tables.keys() == finished
    assert bootstrap(_config(shop), SOURCE, again=True).tables.keys() == set(TABLES)
    assert bootstrap(_config(shop), SOURCE).tables.keys() == set(TABLES)


def test_nobody_waits_for_a_copy_of_a_table_that_is_gone(shop: Drained) -> None:
    """It was dropped after the copy was killed: once the drain has seen that, `status` asks for no copy of it."""
    process = start_bootstrap(_config(shop), "snapshot.after_request")
    process.join(300)
    assert process.exitcode == -9
    shop.database.execute("DROP TABLE log")
    bootstrap(_config(shop), SOURCE)
    shop.drain()
    assert SourceState.of(_config(shop), SOURCE).snapshot is None
    assert set(finished_tables(_lake(shop), ONE)) == {ITEMS, PARTS, NONE}


def test_a_table_that_is_being_resumed_is_copied_whatever_else_is_missing(shop: Drained) -> None:
    """`resume` was killed before its copy: the finished one is from before the pause, so the next run does not keep it."""
    bootstrap(_config(shop), SOURCE)
    add_paused(_lake(shop), {ITEMS: PausedTable(now_text(), ())})
    set_resuming(_lake(shop), [ITEMS])
    shop.database.execute("CREATE TABLE later (id int PRIMARY KEY)")
    shop.drain()
    report = bootstrap(_config(shop), SOURCE)
    assert report.tables.keys() == {ITEMS, TableName("public", "later")}
    assert report.kept.keys() == {LOG, PARTS, NONE}
    assert read_paused(_lake(shop)) == {}


def test_two_at_a_time_the_second_names_the_first(shop: Drained) -> None:
    """The second run is refused before it makes anything, and succeeds once the first is done."""
    process = start_bootstrap(_config(shop), "snapshot.before_end@hang:300")
    try:
        lake = _lake(shop)
        wait_until(lambda: finished_tables(lake, ONE).keys() == set(TABLES), timeout_s=120)
        files = sorted(shop.lake.rglob("*"))
        with pytest.raises(TransientError, match=f"another snapshot is being copied: process {process.pid} on "):
            bootstrap(_config(shop), SOURCE)
        assert sorted(shop.lake.rglob("*")) == files
    finally:
        process.kill()
        process.join(300)
    _ends_equal(shop, bootstrap(_config(shop), SOURCE))


def _at(kind: str, act: Any) -> Any:
    def report(event: Event) -> None:
        if event.kind == kind:
            act()

    return report


def _lake(shop: Drained) -> SourceLake:
    return shop.source_lake


def _all_visible_is_whole(shop: Drained) -> None:
    """Each table that counts has every file that is named, with as many rows."""
    lake = _lake(shop)
    for actual in finished_tables(lake, ONE).values():
        for chunk in actual.table.chunks:
            assert pq.read_metadata(lake.url(f"{actual.key}/{chunk.path}")).num_rows == chunk.rows


def _no_file_is_left_over(shop: Drained) -> None:
    lake = _lake(shop)
    whole = [f for f in snapshot_folders(lake, ONE) if lake.store.exists(part_key(f, 0))]
    named = {
        lake.url(f"{folder}/{chunk.path}")
        for folder in whole
        for table in read_snapshot(lake, folder).tables.values()
        for chunk in table.chunks
    }
    assert {str(path) for path in (shop.lake / SOURCE / "snapshots").rglob("*.parquet")} == named


def _ends_equal(shop: Drained, report: SnapshotReport) -> None:
    lake = _lake(shop)
    wait_until(lambda: shop.database.slots() == {shop.slot})
    finished = finished_tables(lake, ONE)
    assert finished.keys() == set(TABLES)
    assert missing_tables(lake, ONE) == set()
    assert all(read_end(lake, folder) for folder in snapshot_folders(lake, ONE))
    assert {t: finished[t].consistent_point for t in report.tables} == {
        t: copied.consistent_point for t, copied in report.tables.items()
    }
    _no_file_is_left_over(shop)
    shop.drain()
    for table in TABLES:
        assert copied_and_landed(shop, table) == shop.source_rows(table)


@contextmanager
def _writer(shop: Drained) -> Iterator[None]:
    """Changes every table until the end of the block."""
    over = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        chance = random.Random(SEED)
        try:
            with psycopg.connect(shop.dsn, autocommit=True) as conn:
                while not over.wait(0.02):
                    conn.execute("UPDATE items SET note = 'new' WHERE id = %s", [chance.randint(1, 6000)])
                    conn.execute("INSERT INTO log VALUES (9, 'y')")
                    conn.execute("UPDATE parts SET id = id + 100000 WHERE id = %s", [chance.randint(1, 1000)])
                    conn.execute("INSERT INTO none SELECT coalesce(max(id), 0) + 1 FROM none")
        except psycopg.Error as error:
            failures.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not failures
