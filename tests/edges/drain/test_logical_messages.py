"""Logical messages and origins land beside the rows, each at its place, exactly, and once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from psycopg.sql import SQL, Composed, Identifier

from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from lakeproof.landing.inspect import inspect
from lakeproof.landing.segments.manifest import ManifestKind
from lakeproof.landing.segments.reader import file_url, verify_files
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained

pytestmark = pytest.mark.postgres
ITEMS = TableName("public", "items")
# Of every message that a test lands.
PREFIXES = ("früh", "", "in", "never", "rolled back", "beat", "big")


@pytest.fixture
def items(drained: Drained) -> Drained:
    """A table, and a landing that has begun."""
    drained.database.execute("CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained.begin()
    return drained


def _notes(items: Drained) -> list[dict[str, Any]]:
    """Every note, which lies in its manifest's range."""
    actual: list[dict[str, Any]] = []
    chain = items.chain()
    for manifest in chain.manifests():
        verify_files(chain, manifest)
        for file in manifest.logical_messages:
            rows = pq.read_table(file_url(chain, file)).to_pylist()
            assert [row["_lp_message"] for row in rows] == list(range(file.rows))
            for row in rows:
                assert manifest.start_lsn.value < row["_lp_lsn"] <= manifest.end_lsn.value
            actual += rows
    return actual


def test_messages_that_nobody_asked_for_do_not_land(items: Drained) -> None:
    """Messages are not sent by default, and those with another prefix are left out; rows land all the same."""
    items.database.execute(_emit(True, "in", "1"), "INSERT INTO items VALUES (1, 'a')", _emit(True, "out", "2"))
    items.drain()
    assert _notes(items) == []
    items.database.execute(
        _emit(False, "in", "3"), _emit(False, "out", "4"), _emit(True, "i", "5"), "INSERT INTO items VALUES (2, 'b')"
    )
    items.drain(messages=("in",))
    assert [(note["name"], note["content"]) for note in _notes(items)] == [("in", b"3")]
    assert items.folded()[ITEMS] == items.source_rows(ITEMS)


def _emit(transactional: bool, prefix: str, content: str) -> Composed:
    return SQL("SELECT pg_logical_emit_message({}, {}, {}::bytea)").format(transactional, prefix, content)


def test_messages_land_with_their_bytes_and_their_places(items: Drained) -> None:
    """A message may stand between a transaction's changes, or outside transactions, even in one that is rolled back."""
    with items.database.connect() as conn:
        conn.execute(_emit(False, "früh", r"\x00ff"))
        with conn.transaction():
            conn.execute("INSERT INTO items VALUES (1, 'a'), (2, 'b')")
            conn.execute(_emit(True, "", ""))
            conn.execute("INSERT INTO items VALUES (3, 'c')")
            conn.execute(_emit(True, "in", r"\x0a"))
        with conn.transaction(force_rollback=True):
            conn.execute(_emit(True, "never", ""))
            conn.execute(_emit(False, "rolled back", ""))
        end = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        # A rollback does not flush the WAL, and a drain takes what is flushed: a commit after it does.
        conn.execute("INSERT INTO items VALUES (4, 'd')")
    items.drain(messages=PREFIXES)
    notes = _notes(items)
    assert [(n["kind"], n["name"], n["content"], n["_lp_seq"]) for n in notes] == [
        ("message", "früh", b"\x00\xff", 0),
        ("message", "", b"", 2),
        ("message", "in", b"\n", 3),
        ("message", "rolled back", b"", 0),
    ]
    assert notes[1]["_lp_lsn"] == notes[2]["_lp_lsn"]
    assert (notes[0]["_lp_xid"], notes[0]["_lp_commit_time"]) == (None, None)
    assert notes[1]["_lp_xid"] > 0
    assert end is not None
    assert [n["lsn"] for n in notes] == sorted(n["lsn"] for n in notes)
    assert notes[0]["lsn"] < notes[1]["lsn"] < notes[1]["_lp_lsn"] < notes[3]["lsn"] <= Lsn.parse(end[0]).value
    (path,) = {f.path for m in items.chain().manifests() for f in m.logical_messages if f.rows > 1}
    described = inspect(Path(items.lake / "shop" / "landing" / "000001" / path))
    assert described["checksum"] == "right"
    by_prefix = described["logical_messages"]
    assert isinstance(by_prefix, dict)
    assert sum(by_prefix.values()) == described["rows"]


def test_a_message_of_no_transaction_lands_once_wherever_a_segment_ends(items: Drained) -> None:
    """Between every two of them the drain ends, is killed before or after its acknowledgement, or goes on."""
    for number in range(6):
        items.database.execute(_emit(False, "beat", str(2 * number)))
        if number % 3:
            items.database.execute(SQL("INSERT INTO items VALUES ({}, 'x')").format(number))
        # The checkpoint flushes the message, which nothing else would: each drain has something to take.
        items.database.execute(_emit(False, "beat", str(2 * number + 1)), "CHECKPOINT")
        if number % 2:
            point = ("drain.after_manifest", "drain.after_data_files", "drain.after_ack")[number // 2]
            process = items.start_process("caught_up", point, messages=PREFIXES)
            assert process.wait(180) == -9
            process.communicate()
        else:
            items.drain(messages=PREFIXES)
    items.drain(messages=PREFIXES)
    assert [int(n["content"]) for n in _notes(items)] == list(range(12))


def test_messages_alone_make_a_segment_and_move_the_slot(items: Drained) -> None:
    """Nothing else comes; each flush interval's messages are a segment without rows."""
    # Without the checkpoint the message would not be flushed yet, and so not sent.
    items.database.execute(_emit(False, "beat", "1"), "CHECKPOINT")
    end = items.database.end_of_flushed_wal()
    items.drain(messages=PREFIXES)
    newest = items.chain().newest
    assert newest.end_lsn >= end
    assert items.confirmed_flush() == newest.end_lsn
    assert [(m.kind, m.rows, len(m.logical_messages)) for m in items.chain().manifests(1) if m.logical_messages] == [
        (ManifestKind.SEGMENT, 0, 1)
    ]


def test_many_messages_do_not_wait_for_each_other(items: Drained) -> None:
    """20 MB of them outside of any transaction: a segment ends at one's own place, and none is lost or doubled."""
    items.database.execute(
        "DO $$ BEGIN FOR i IN 1..200 LOOP"
        " PERFORM pg_logical_emit_message(false, 'big', repeat('x', 100000) || i); END LOOP; END $$",
        "CHECKPOINT",
    )
    drain(items.config(flush_bytes=1 << 20, flush_interval_s=0.01, messages=PREFIXES), "shop", Until.caught_up())
    assert [n["content"][100_000:] for n in _notes(items)] == [str(i).encode() for i in range(1, 201)]
    assert len([m for m in items.chain().manifests() if m.logical_messages]) > 1


def test_origins_are_kept_for_each_transaction(items: Drained) -> None:
    """An origin has its name and position; a streamed transaction shows only the name."""
    items.database.execute(
        SQL("ALTER DATABASE {} SET logical_decoding_work_mem = '64kB'").format(Identifier(items.database.name))
    )
    origin = f"lp_{items.database.name}"
    with items.database.connect() as conn:
        conn.execute("SELECT pg_replication_origin_create(%s)", [origin])
        try:
            conn.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
            with conn.transaction():
                conn.execute("SELECT pg_replication_origin_xact_setup('ABC/DEF', '2020-01-01')")
                conn.execute("INSERT INTO items VALUES (1, 'a')")
            conn.execute("SELECT pg_replication_origin_xact_reset()")
            conn.execute("INSERT INTO items SELECT g, repeat('x', 1000) FROM generate_series(10, 300) g")
            conn.execute("SELECT pg_replication_origin_session_reset()")
            conn.execute("INSERT INTO items VALUES (2, 'no origin')")
            items.drain(messages=PREFIXES)
        finally:
            conn.execute("SELECT pg_replication_origin_drop(%s)", [origin])
    notes = _notes(items)
    assert [(n["kind"], n["name"], n["_lp_seq"], n["content"]) for n in notes] == [("origin", origin, 0, None)] * 2
    assert [n["lsn"] for n in notes] == [Lsn.parse("ABC/DEF").value, 0]
    assert len({n["_lp_lsn"] for n in notes}) == 2
