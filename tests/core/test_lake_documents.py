"""The lake's documents: to bytes and back, and every damaged field named."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeproof.errors import LakeError
from lakeproof.lake.records.cut_documents import CutDoc
from lakeproof.lake.records.documents import Intent
from lakeproof.lake.records.held import Held, HeldCause, WayOut, describe
from lakeproof.landing.ownership import SourceDoc
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.snapshot.folder import SnapshotEnd, SnapshotRequest
from lakeproof.snapshot.state import SnapshotDoc
from lakeproof.storage.document_fields import Fields
from tests.core.lake_document_samples import CUT_DOC, END, INTENT, REQUEST, SNAPSHOT, SOURCE, TABLE, VERSION

Read = Callable[[bytes, str], Any]
DOCUMENTS: list[tuple[Any, Read]] = [
    (SOURCE, SourceDoc.from_bytes),
    (SNAPSHOT, SnapshotDoc.from_bytes),
    (REQUEST, SnapshotRequest.from_bytes),
    (END, SnapshotEnd.from_bytes),
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
    """Other readers rely on these fields."""
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


def test_a_held_table_says_what_to_type() -> None:
    """The remedy has the source and the table, quoted for a shell if that is needed."""
    held = Held(Lsn(16), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "why"})
    assert str(describe(held, "shop", TableName("a", "b"))) == (
        "held since 0/10: why; run `lakeproof bootstrap shop --tables a.b`, then compact"
    )
    odd = describe(held, "shop", TableName("a b", 'c"d'))
    assert odd.remedy == 'run `lakeproof bootstrap shop --tables \'"a b"."c""d"\'`, then compact'


@pytest.mark.parametrize("cause", HeldCause)
@pytest.mark.parametrize("way_out", WayOut)
def test_each_cause_and_each_way_out_has_its_sentence(cause: HeldCause, way_out: WayOut) -> None:
    """A document that lacks a detail still gives a sentence with all other details."""
    report = describe(Held(Lsn(16), cause, way_out), "shop", TableName("a", "b"))
    assert report.reason
    assert report.remedy
    assert "{" not in report.reason + report.remedy


def test_a_lost_history_stays_lost_for_every_cause() -> None:
    """The next copy needs to know it, and so does a reader of the reason, which mentions it once."""
    lost = Held(Lsn(16), HeldCause.HISTORY_UNREADABLE, WayOut.BY_HAND, {"file": "/x"}, history_lost=True)
    dropped = Held(Lsn(16), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "it has none"})
    then = dropped.after(lost)
    assert then == replace(dropped, history_lost=True)
    assert then.reason == "it has none; its history can't be read either"
    assert then.after(then) == then
    assert lost.after(None) == lost
    assert lost.reason == "its history can't be read: /x"
    assert dropped.after(None) == dropped
    assert Held.from_fields(Fields(then.to_json(), "x")) == then
