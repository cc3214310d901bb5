"""The positions at which a drain starts, ends and acknowledges."""

from __future__ import annotations

import threading

import pytest

from lakeproof.commands.drain import drain
from lakeproof.drain.counts import Flush
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.events import Event, Stop, silent
from lakeproof.landing.segments.manifest import ManifestKind
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until

pytestmark = pytest.mark.postgres
ITEMS = TableName("public", "items")


@pytest.fixture
def items(drained: Drained) -> Drained:
    """A table with a key, and a landing that has begun."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text, price numeric(10, 2))")
    drained.begin()
    return drained


def test_all_waiting_changes_land_and_are_acknowledged(items: Drained) -> None:
    """`caught_up` ends at or beyond the position at which it began."""
    items.database.execute(
        "INSERT INTO items SELECT g, 'n' || g, g * 1.5 FROM generate_series(1, 500) g",
        "UPDATE items SET note = 'new' WHERE id % 3 = 0",
        "UPDATE items SET id = id + 1000 WHERE id % 7 = 0",
        "DELETE FROM items WHERE id % 5 = 0",
    )
    before = items.database.end_of_flushed_wal()
    report = items.drain()
    assert (report.reason_for_end, report.transactions) == ("reached", 4)
    assert report.end_lsn >= before
    assert report.end_lsn == report.confirmed_flush_lsn == items.confirmed_flush() == items.chain().end
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)
    assert report.tables[ITEMS].inserts == 500


def test_a_second_drain_adds_nothing(items: Drained) -> None:
    """Changes that the chain has do not come again."""
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    items.drain()
    report = items.drain()
    assert (report.rows, report.segments) == (0, 0)
    assert len(items.folded()[ITEMS]) == 1


def test_a_slot_behind_the_chain_is_normal_and_reported(items: Drained) -> None:
    """A drain that died between manifest and acknowledgement: the next one acknowledges what is durable."""
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    process = items.start_process("caught_up", "drain.after_manifest")
    assert process.wait(180) == -9
    process.communicate()
    assert items.confirmed_flush() < items.chain().end
    items.database.execute("INSERT INTO items VALUES (2, 'b', 2)")
    items.drain()
    assert items.confirmed_flush() == items.chain().end
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_a_position_in_the_future_is_waited_for(items: Drained) -> None:
    """`lsn` ends when the landing has it, also if only WAL gets there that is not sent."""
    target = Lsn(items.database.end_of_wal().value + 20_000)
    actual = []
    thread = threading.Thread(target=lambda: actual.append(items.drain(Until.lsn(target))))
    thread.start()
    while thread.is_alive():
        items.database.execute("SELECT pg_logical_emit_message(true, 'test', repeat('x', 1000))")
        thread.join(0.05)
    assert actual[0].end_lsn >= target
    assert items.chain().end == actual[0].end_lsn


def test_an_idle_publication_advances_by_progress_manifests(items: Drained) -> None:
    """WAL that is not for us moves the slot, durably first, at most once per interval."""
    items.database.execute("CREATE UNLOGGED TABLE elsewhere (x int)")
    stop = Stop()
    flushes: list[Flush] = []
    config = items.config(progress_interval_s=0.3, flush_interval_s=0.1)
    thread = threading.Thread(
        target=lambda: drain(config, SOURCE, Until.stopped(), silent, stop, on_flush=flushes.append)
    )
    thread.start()
    try:
        for _ in range(3):
            items.database.execute("SELECT txid_current()", "CHECKPOINT")
            expected = len(flushes) + 1
            wait_until(lambda expected=expected: len(flushes) >= expected)  # type: ignore[misc]  # a default of a lambda
    finally:
        stop.request()
        thread.join()
    assert {m.kind for m in items.chain().manifests(1)} == {ManifestKind.PROGRESS}
    assert all(not f.tables and f.transactions == 0 for f in flushes)
    assert items.confirmed_flush() == items.chain().end


def test_an_open_transaction_is_not_acknowledged(items: Drained) -> None:
    """A stop in the middle keeps it for the next drain; what was complete is durable."""
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with items.database.connect(autocommit=False) as conn:
        conn.execute("INSERT INTO items SELECT g, 'x', 1 FROM generate_series(10, 20) g")
        items.drain()
        assert len(items.folded()[ITEMS]) == 1
        conn.commit()
    items.drain()
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_a_stop_makes_what_is_complete_durable(items: Drained) -> None:
    """SIGTERM: the last segment, the last acknowledgement, exit status 0."""
    process = items.start_process("stopped", flush_interval_s=600.0, status_interval_s=0.1)
    wait_until(lambda: items.active_pid() is not None)
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    end = items.database.end_of_flushed_wal()
    wait_until(lambda: _received(items) >= end)
    process.terminate()
    out, err = process.communicate(timeout=180)
    assert process.returncode == 0, err
    assert '"reason": "stopped"' in out
    assert items.folded()[ITEMS] == [(1, "a", items.source_rows(ITEMS)[0][2])]
    assert items.confirmed_flush() == items.chain().end


def _received(items: Drained) -> Lsn:
    """Return how far the drain says that it has come: what was sent may still be on its way."""
    received = items.database.value(
        "SELECT max(write_lsn)::text FROM pg_stat_replication WHERE pid = %s", [items.active_pid()]
    )
    return Lsn.parse(received or "0/0")


def test_a_run_that_waits_for_a_position_follows_the_drain_that_holds_the_slot(items: Drained) -> None:
    """The range landed by the other one is reported."""
    # Ten rows end a segment, and no time does: the second one lands once somebody waits for it.
    process = items.start_process("stopped", flush_rows=10, flush_interval_s=600.0, progress_interval_s=0.2)

    def land(event: Event) -> None:
        if event.kind == "drain.follow":
            items.database.execute("INSERT INTO items SELECT g, 'c', 1 FROM generate_series(12, 30) g")

    try:
        wait_until(lambda: items.active_pid() is not None)
        items.database.execute("INSERT INTO items SELECT g, 'a', 1 FROM generate_series(1, 10) g")
        report = items.drain()
        assert report.reason_for_end in ("followed", "reached")
        assert report.end_lsn >= report.start_lsn
        items.database.execute("INSERT INTO items VALUES (11, 'b', 1)")
        report = drain(items.config(), SOURCE, Until.caught_up(), land)
        assert (report.reason_for_end, report.confirmed_flush_lsn) == ("followed", None)
        assert report.tables[ITEMS].inserts >= 1
        assert len(items.folded()[ITEMS]) == 30
    finally:
        process.terminate()
        process.communicate(timeout=180)


def test_a_lasting_drain_connects_again(items: Drained) -> None:
    """A terminated walsender costs nothing but time."""
    stop, events = Stop(), list[Event]()
    config = items.config(flush_interval_s=0.1)
    thread = threading.Thread(target=lambda: drain(config, SOURCE, Until.stopped(), events.append, stop))
    thread.start()
    try:
        for number in range(3):
            wait_until(lambda: items.active_pid() is not None)
            items.database.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
            with items.database.connect() as conn:
                conn.execute("INSERT INTO items VALUES (%s, 'a', 1)", [number])
            wait_until(lambda number=number: len(items.folded().get(ITEMS, [])) == number + 1)  # type: ignore[misc]  # a default of a lambda
    finally:
        stop.request()
        thread.join()
    assert sum(e.kind == "drain.reconnect" for e in events) >= 3
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_a_transaction_beyond_the_limit_waits_on_disk_and_lands_wholly(items: Drained) -> None:
    """Spilled, decoded in parts, one segment, one transaction; ordinals go on through the parts."""
    items.database.execute(
        "INSERT INTO items SELECT g, repeat('x', 100), 1 FROM generate_series(1, 60000) g",
        "INSERT INTO items VALUES (0, 'small', 1)",
        "UPDATE items SET note = 'y'",
    )
    events: list[Event] = []
    drain(items.config(spill_bytes=1 << 20), SOURCE, Until.caught_up(), events.append)
    assert sum(e.kind == "drain.spill" for e in events) == 2
    assert sum(m.transactions for m in items.chain().manifests()) == 3
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def test_the_server_hears_from_us_while_the_disk_is_slow(items: Drained) -> None:
    """A flush that takes longer than wal_sender_timeout does not cost the connection."""
    with items.database.connect() as conn:
        # A process of a busy machine may not run for a second or two.
        conn.execute("ALTER SYSTEM SET wal_sender_timeout = '5s'")
        conn.execute("SELECT pg_reload_conf()")
    try:
        process = items.start_process(
            "stopped", "drain.after_data_files@hang:8", flush_interval_s=0.05, status_interval_s=0.2
        )
        wait_until(lambda: items.active_pid() is not None)
        pid = items.active_pid()
        items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
        wait_until(lambda: len(items.folded().get(ITEMS, [])) == 1)
        assert items.active_pid() == pid
        process.terminate()
        _, err = process.communicate(timeout=180)
        assert (process.returncode, "reconnect" in err) == (0, False)
    finally:
        with items.database.connect() as conn:
            conn.execute("ALTER SYSTEM RESET wal_sender_timeout")
            conn.execute("SELECT pg_reload_conf()")


def test_a_landing_that_can_not_be_written_is_named_and_nothing_is_acknowledged(items: Drained) -> None:
    """The disk is full, or someone put a file where the folder goes."""
    confirmed = items.confirmed_flush()
    (items.lake / "shop/landing/000001/data").write_bytes(b"")
    items.database.execute("INSERT INTO items VALUES (1, 'a', 1)")
    with pytest.raises(LakeError, match="writing to it failed") as raised:
        items.drain()
    assert "make room or mend the disk" in raised.value.remedy
    assert items.confirmed_flush() == confirmed == items.chain().end
