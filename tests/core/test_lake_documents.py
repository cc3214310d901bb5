"""The lake's documents: to bytes and back, and every damaged field named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from wal2delta.errors import LakeError
from wal2delta.lake.documents import (
    RESNAPSHOT,
    Chunk,
    Cut,
    CutTable,
    Held,
    Intent,
    SegmentBase,
    SnapshotDoc,
    SnapshotTable,
    SourceDoc,
    TableIntent,
)
from wal2delta.lake.snapshots import Ended, Wanted
from wal2delta.lsn import Lsn
from wal2delta.names import CycleNumber, Incarnation, Oid, TableName
from wal2delta.schema import Column, Identity, SchemaVersion

TABLE = TableName("public", "order lines")
VERSION = SchemaVersion(
    TABLE, Oid(16384), Identity.DEFAULT, (Column("id", Oid(23), -1, "int4", "int4", 1, identity=True),), ("id",)
)
HELD = {TableName("s", "t"): Held(Lsn(5), "its shape changed", "bootstrap it again")}
SOURCE = SourceDoc("shop", "7300000000000000001", "app", "2026-01-01T00:00:00+00:00")
SNAPSHOT = SnapshotDoc(
    Incarnation(1), Lsn(4096), "a", "b", "slot",
    {TABLE: SnapshotTable(VERSION, 3, (Chunk("x/0.parquet", 3, 99, "0" * 64, (0, None), "public.order lines"),))},
)  # fmt: skip
INTENT = Intent(
    number=CycleNumber(2),
    kind="apply",
    incarnation=Incarnation(1),
    start_lsn=Lsn(4096),
    end_lsn=Lsn(1 << 40),
    segments=(SegmentBase(7, 2 << 36),),
    tables={TABLE: TableIntent(Lsn(4096), VERSION.id, "shop/snapshots/000001/0000000000001000")},
    held=HELD,
    epoch=3,
    writer="0" * 32,
    created_at="2026-01-01T00:00:00+00:00",
)
CUT = Cut(
    number=CycleNumber(2),
    kind="apply",
    incarnation=Incarnation(1),
    position=Lsn(1 << 40),
    commit_time=None,
    tables={TABLE: CutTable(Lsn(1 << 40), Lsn(4096), 0, 12, VERSION, Incarnation(1), Incarnation(2))},
    next_segment=8,
    intent_sha256="0" * 64,
    created_at="2026-01-01T00:00:00+00:00",
    held=HELD,
)
WANTED = Wanted(Incarnation(1), Lsn(4096), "slot", "a", (TABLE, TableName("s", "t")))
ENDED = Ended(
    Lsn(4096),
    "b",
    {TABLE: "its column has a bad text"},
    (TableName("s", "t"),),
    (TableName("shop", "gone"),),
    "it was stopped",
)
Read = Callable[[bytes, str], Any]
DOCUMENTS: list[tuple[Any, Read]] = [
    (SOURCE, SourceDoc.from_bytes),
    (SNAPSHOT, SnapshotDoc.from_bytes),
    (WANTED, Wanted.from_bytes),
    (ENDED, Ended.from_bytes),
    (INTENT, Intent.from_bytes),
    (CUT, Cut.from_bytes),
]


@pytest.mark.parametrize(("document", "read"), DOCUMENTS)
def test_a_document_reads_back_as_it_was(document: Any, read: Read) -> None:
    """The bytes are canonical: sorted keys, no spaces, one newline."""
    data = document.to_bytes()
    assert read(data, "thing") == document
    canonical = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert data == canonical.encode() + b"\n"


def test_a_cut_has_the_fields_of_its_format() -> None:
    """Other readers rely on them."""
    doc = json.loads(CUT.to_bytes())
    assert doc["format"] == "wal2delta.cut/1"
    assert doc["position"] == "100/0"
    assert doc["tables"]["public/order%20lines"] == {
        "at_lsn": "100/0",
        "snapshot_lsn": "0/1000",
        "history_version": 0,
        "current_version": 12,
        "schema_id": VERSION.id,
        "version": VERSION.to_json(),
        "incarnation": 1,
        "snapshot_incarnation": 2,
        "history_low": None,
    }


@pytest.mark.parametrize(("document", "read"), DOCUMENTS)
def test_every_missing_field_is_named(document: Any, read: Read) -> None:
    """The message has the thing and the field."""
    whole = json.loads(document.to_bytes())
    for name in set(whole) - {"format"}:
        damaged = {k: v for k, v in whole.items() if k != name}
        with pytest.raises(LakeError, match=f"the file: its field '{name}' is missing"):
            read(json.dumps(damaged).encode(), "the file")


@pytest.mark.parametrize(
    "damage",
    [
        {"format": "wal2delta.cut/2"},
        {"number": -1},
        {"number": "2"},
        {"number": True},
        {"kind": "other"},
        {"position": "100-0"},
        {"position": 4},
        {"commit_time": 4},
        {"tables": []},
        {"tables": {"nokey": {}}},
        {"tables": {"a/b": 1}},
        {"held": {"a/b": {"at_lsn": "0/1", "reason": "r"}}},
        {"next_segment": 1.5},
    ],
)
def test_a_damaged_cut_is_refused(damage: dict[str, Any]) -> None:
    """Each field has its type; nothing is filled in."""
    doc = {**json.loads(CUT.to_bytes()), **damage}
    with pytest.raises(LakeError) as caught:
        Cut.from_bytes(json.dumps(doc).encode(), "the cut")
    assert caught.value.thing.startswith("the cut")
    assert caught.value.remedy


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"format":"x"}'])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    """An empty file, half a file, another file."""
    with pytest.raises(LakeError):
        Intent.from_bytes(data, "the intent")


def test_a_version_that_is_not_the_one_named_is_refused() -> None:
    """A schema id names exactly one shape."""
    doc = json.loads(CUT.to_bytes())
    doc["tables"][TABLE.key]["version"]["columns"][0]["kind"] = "int8"
    with pytest.raises(LakeError, match="schema_id"):
        Cut.from_bytes(json.dumps(doc).encode(), "the cut")


def test_an_intent_that_ends_before_it_starts_is_refused() -> None:
    """A range is never negative."""
    doc = {**json.loads(INTENT.to_bytes()), "end_lsn": "0/1"}
    with pytest.raises(LakeError, match="end_lsn"):
        Intent.from_bytes(json.dumps(doc).encode(), "the intent")


def test_a_snapshot_whose_chunks_do_not_add_up_is_refused() -> None:
    """A chunk is missing, or one too many."""
    doc = json.loads(SNAPSHOT.to_bytes())
    doc["tables"][TABLE.key]["rows"] = 4
    with pytest.raises(LakeError, match="rows"):
        SnapshotDoc.from_bytes(json.dumps(doc).encode(), "the snapshot")


def test_the_remedy_of_held_tables_stays_in_its_words() -> None:
    """Cuts of an older version have it, and which tables are copied without being asked is known by it."""
    assert RESNAPSHOT == "run `wal2delta bootstrap SOURCE --tables TABLE`, then compact"


def test_a_held_table_says_what_to_type() -> None:
    """The remedy has the source and the table, quoted for a shell where that is needed."""
    held = Held(Lsn(16), "why", RESNAPSHOT)
    assert str(held.named("shop", TableName("a", "b"))) == (
        "held since 0/10: why; run `wal2delta bootstrap shop --tables a.b`, then compact"
    )
    odd = held.named("shop", TableName("a b", 'c"d'))
    assert odd.remedy == 'run `wal2delta bootstrap shop --tables \'"a b"."c""d"\'`, then compact'
    assert Held(Lsn(16), "SOURCE", "else").named("shop", TableName("a", "b")) == Held(Lsn(16), "SOURCE", "else")
