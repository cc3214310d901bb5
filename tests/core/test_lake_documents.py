"""The lake's documents: to bytes and back, and every damaged field named."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lakeproof.errors import LakeError
from lakeproof.lake.records.cut_documents import Contents, CutDoc
from lakeproof.lake.records.documents import RESNAPSHOT, Cut, CutTable, Held, Intent, SegmentBase, TableIntent
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.landing.decoded_size import Decoded
from lakeproof.landing.ownership import SourceDoc
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.folder import Ended, Wanted
from lakeproof.snapshot.state import Chunk, SnapshotDoc, SnapshotTable
from lakeproof.storage.document_fields import Fields

TABLE = TableName("public", "order lines")
VERSION = SchemaVersion(
    TABLE, Oid(16384), Identity.DEFAULT, (Column("id", Oid(23), -1, "int4", "int4", 1, identity=True),), ("id",)
)
HELD = {TableName("s", "t"): Held(Lsn(5), "its shape changed", "bootstrap it again")}
SOURCE = SourceDoc("shop", "7300000000000000001", "app", 16384, "2026-01-01T00:00:00+00:00")
CHUNK = Chunk("x/0.parquet", 3, 99, "0" * 64, Decoded(999, 400), (0, None), "public.order lines")
SNAPSHOT = SnapshotDoc(
    Incarnation(1), Lsn(4096), "a", "b", "slot",
    {TABLE: SnapshotTable(VERSION, 3, (CHUNK,), None, {16384: 16390})},
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
SUM = HistorySum(3, 0xABC)
CUT = Cut(
    number=CycleNumber(2),
    kind="apply",
    incarnation=Incarnation(1),
    position=Lsn(1 << 40),
    commit_time=None,
    tables={TABLE: CutTable(Lsn(1 << 40), Lsn(4096), 0, 12, VERSION, Incarnation(1), Incarnation(2), None, 400, SUM)},
    next_segment=8,
    intent_sha256="0" * 64,
    created_at="2026-01-01T00:00:00+00:00",
    held=HELD,
)
CUT_DOC = CutDoc(
    CUT.number, CUT.kind, CUT.incarnation, CUT.position, CUT.commit_time, (CycleNumber(1), "1" * 64), 7, Contents.of(CUT),
    CUT.next_segment, CUT.intent_sha256, CUT.created_at,
)  # fmt: skip
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
    (CUT_DOC, CutDoc.from_bytes),
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
    doc = json.loads(CUT_DOC.to_bytes())
    assert doc["format"] == "lakeproof.cut/1"
    assert doc["position"] == "100/0"
    assert doc["base"] == {"number": 1, "sha256": "1" * 64}
    assert doc["tables"]["public/order%20lines"] == {
        "at_lsn": None,
        "snapshot_lsn": "0/1000",
        "history_version": 0,
        "current_version": 12,
        "schema_id": VERSION.id,
        "incarnation": None,
        "snapshot_incarnation": 2,
        "history_low": None,
        "row_bytes": 400,
        "history_sum": {"rows": 3, "total": "000000000000abc"},
        "exact_from": None,
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
        {"format": "lakeproof.cut/2"},
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
        {"held": {"a/b": 1}},
        {"base": {"number": 1}},
        {"named": -1},
        {"next_segment": 1.5},
    ],
)
def test_a_damaged_cut_is_refused(damage: dict[str, Any]) -> None:
    """Each field has its type; nothing is filled in."""
    doc = {**json.loads(CUT_DOC.to_bytes()), **damage}
    with pytest.raises(LakeError) as caught:
        CutDoc.from_bytes(json.dumps(doc).encode(), "the cut")
    assert caught.value.thing.startswith("the cut")
    assert caught.value.remedy


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b'{"format":"x"}'])
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    """An empty file, half a file, another file."""
    with pytest.raises(LakeError):
        Intent.from_bytes(data, "the intent")


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
    assert RESNAPSHOT == "run `lakeproof bootstrap SOURCE --tables TABLE`, then compact"


def test_a_held_table_says_what_to_type() -> None:
    """The remedy has the source and the table, quoted for a shell where that is needed."""
    held = Held(Lsn(16), "why", RESNAPSHOT)
    assert str(held.named("shop", TableName("a", "b"))) == (
        "held since 0/10: why; run `lakeproof bootstrap shop --tables a.b`, then compact"
    )
    odd = held.named("shop", TableName("a b", 'c"d'))
    assert odd.remedy == 'run `lakeproof bootstrap shop --tables \'"a b"."c""d"\'`, then compact'
    assert Held(Lsn(16), "SOURCE", "else").named("shop", TableName("a", "b")) == Held(Lsn(16), "SOURCE", "else")


def test_a_lost_history_stays_lost_whatever_holds_the_table() -> None:
    """The next copy has to know, and so has whoever reads the reason; it is said once."""
    lost = Held(Lsn(16), "its history can't be read: /x", "restore it", history_lost=True)
    then = Held(Lsn(16), "it was dropped", "publish it").after(lost)
    assert then == Held(Lsn(16), "it was dropped; its history can't be read either", "publish it", history_lost=True)
    assert then.after(then) == then
    assert lost.after(None) == lost
    assert Held(Lsn(16), "why", "how").after(None) == Held(Lsn(16), "why", "how")
    assert Held.from_fields(Fields(then.to_json(), "x")) == then
