"""The load of a snapshot on its source: limits that hold, and a cost shown while it runs, by event and by `status`."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from lakeproof.cli.status_page import page
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.status import status
from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.errors import TransientError
from lakeproof.events import Event, Stop
from lakeproof.names import TableName
from lakeproof.snapshot.progress import SnapshotStatus
from lakeproof.snapshot.run import SnapshotIncompleteError
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until
from tests.support.ingest.snapshot_rows import copied_and_landed

pytestmark = pytest.mark.postgres
T, U = TableName("public", "t"), TableName("public", "u")


@pytest.fixture
def shop(drained: Drained) -> Drained:
    """A table of 4 MB, and one of 50 rows that has more pages, so that it comes first."""
    drained.database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE u (id int PRIMARY KEY, v text) WITH (autovacuum_enabled = off)",
        "INSERT INTO t SELECT g, repeat('v', 1000) FROM generate_series(1, 4000) g",
        "INSERT INTO u SELECT g, repeat('v', 1000) FROM generate_series(1, 6000) g",
        "DELETE FROM u WHERE id > 50",
    )
    return drained


def _config(shop: Drained, **settings: float) -> Config:
    config = shop.config()
    limits = SnapshotConfig.model_validate({"connections": 2, "chunk_pages": 100, **settings})
    source = config.sources[SOURCE].model_copy(update={"snapshot": limits})
    return config.model_copy(update={"sources": {SOURCE: source}})


@contextmanager
def _copying(shop: Drained, events: list[Event], **settings: float) -> Iterator[Stop]:
    """A bootstrap in its own thread; stopped at the end of the block."""
    stop, failures = Stop(), list[BaseException]()

    def run() -> None:
        try:
            bootstrap(_config(shop, **settings), SOURCE, None, events.append, stop)
        except BaseException as error:  # noqa: BLE001  looked at below, in the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield stop
    finally:
        stop.request()
        thread.join()
    assert [type(error) for error in failures] == [TransientError]


def _status(shop: Drained) -> SnapshotStatus | None:
    return status(_config(shop)).sources[SOURCE].snapshot


def test_a_limit_on_the_bytes_is_kept_and_progress_and_cost_are_shown(shop: Drained) -> None:
    """4 MB at 200 kB/s would take 20 s: meanwhile events, `status` and its page tell how far it is, and who waits for it."""
    events: list[Event] = []
    begun = time.monotonic()
    with _copying(shop, events, bytes_per_s=200_000), psycopg.connect(shop.dsn, autocommit=True) as app:
        wait_until(lambda: any(event.kind == "bootstrap.progress" for event in events), timeout_s=60)
        seen_waiting = threading.Event()

        def lock_again_and_again() -> None:
            # One alone has its lock as soon as a chunk ends; the cost is asked for every other second.
            while not seen_waiting.is_set():
                app.execute("BEGIN; LOCK TABLE t; ROLLBACK")

        waiting = threading.Thread(target=lock_again_and_again)
        waiting.start()
        try:
            wait_until(
                lambda: any(e.fields["cost"] and e.fields["cost"]["waiting"] for e in events if "cost" in e.fields), 60
            )
        finally:
            seen_waiting.set()
        wait_until(lambda: any(e.fields.get("seconds_left") for e in events), 60)
        seen = _status(shop)
        assert seen is not None
        assert seen.running in {True, None}
        assert seen.progress is not None
        assert (seen.tables, seen.progress.tables) == (2, 2)
        shown = page(status(_config(shop)))
        received, elapsed = max(e.fields["bytes"] for e in events if "bytes" in e.fields), time.monotonic() - begun
    waiting.join()
    assert received <= 200_000 * elapsed + 2 * 125_000
    assert "run by process " in shown
    assert " table locked" in shown or " tables locked" in shown
    progress = [event for event in events if event.kind == "bootstrap.progress"]
    assert all(e.fields["seconds_left"] is None or e.fields["seconds_left"] >= 0 for e in progress)
    assert [e.fields["fraction"] for e in progress] == sorted(e.fields["fraction"] for e in progress)
    # Between two chunks no table is locked.
    cost = next(e.fields["cost"] for e in progress if e.fields["cost"] and e.fields["cost"]["waiting"])
    assert cost["locks"] >= 1
    assert cost["retained_wal_bytes"] is not None
    assert any("1 session waits for that" in event.message for event in progress)


def test_after_it_was_stopped_status_says_what_counts_and_what_is_missing(shop: Drained) -> None:
    """Once the rest is copied, status shows nothing more; the progress file is gone with the run."""
    events: list[Event] = []
    with _copying(shop, events, bytes_per_s=300_000):
        wait_until(lambda: any(event.kind == "bootstrap.table" for event in events), timeout_s=60)
    seen = _status(shop)
    assert seen is not None
    assert (seen.running, seen.tables, seen.tables_done, seen.rows) == (False, 2, 1, 50)
    assert (seen.missing, seen.progress) == ((T,), None)
    shown = page(status(_config(shop)))
    assert "interrupted (it was stopped before it was complete), at " in shown
    assert "1 of 2 tables copied, 50 rows" in shown
    assert "missing: public.t; run `lakeproof bootstrap shop` to copy them" in shown
    assert not list(shop.lake.rglob("progress.json*"))
    report = bootstrap(_config(shop), SOURCE)
    assert (set(report.tables), set(report.kept)) == ({T}, {U})
    assert _status(shop) is None
    shop.drain()
    assert copied_and_landed(shop, T) == shop.source_rows(T)


@pytest.mark.since(15)
def test_a_chunk_that_takes_too_long_fails_its_table_alone(shop: Drained) -> None:
    """`snapshot.statement_timeout_s`, with the settings that would help; the other table is complete."""
    shop.database.execute(
        "DROP PUBLICATION shop",
        "CREATE PUBLICATION shop FOR TABLE u, t WHERE (length(repeat(v, 100000)) > 0) WITH (publish = 'insert')",
    )
    with pytest.raises(SnapshotIncompleteError, match=r"snapshot\.statement_timeout_s") as refusal:
        bootstrap(_config(shop, statement_timeout_s=1.0), SOURCE)
    assert (set(refusal.value.report.tables), set(refusal.value.report.failed)) == ({U}, {T})


@pytest.mark.since(15)
def test_a_lock_on_another_table_of_the_publication_is_named(shop: Drained) -> None:
    """The server opens every published table to say what is published; the wait has an end and a name."""
    with psycopg.connect(shop.dsn) as other:
        other.execute("LOCK TABLE u")
        # The lock has a transaction number: on a busy server already the slot waits for it, which names the process alone.
        with pytest.raises(TransientError, match=rf"(public\.u \(|open: )process {other.info.backend_pid}\b"):
            bootstrap(_config(shop, lock_timeout_s=0.5), SOURCE, [T])
    assert bootstrap(_config(shop), SOURCE, [T]).tables
