"""The lake's documents: to bytes and back, and every damaged field named."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.errors import LakeError
from lakeproof.lake.records.cuts.documents import CutDoc
from lakeproof.lake.records.cuts.groups import GroupCut
from lakeproof.lake.records.documents import CutEntry, HistoryLow, HistorySum, Intent, SchemaChange, TableIntent
from lakeproof.lake.records.held import Held, HeldCause, WayOut, describe_held
from lakeproof.landing.chain_start import ChainStart
from lakeproof.landing.incarnation_record import IncarnationRecord
from lakeproof.landing.segments.manifest import Manifest, parse
from lakeproof.landing.stuck import Stuck
from lakeproof.landing.timelines import TimelineDoc
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.record import ProofRecord
from lakeproof.snapshot.copy.keyed_copy import KeyedCopy
from lakeproof.snapshot.folder import SnapshotEnd, SnapshotRequest
from lakeproof.snapshot.incarnation import SourceDoc
from lakeproof.snapshot.paused import Paused
from lakeproof.snapshot.state import SnapshotDoc
from lakeproof.storage.document import canonical
from tests.core.lake.lake_document_samples import (
    CUT,
    CUT_DOC,
    END,
    GROUP_CUT,
    INTENT,
    KEYED_COPY,
    PAUSED,
    PROVED,
    REQUEST,
    SNAPSHOT,
    SOURCE,
    TABLE,
    VERSION,
)
from tests.core.landing.landing_document_samples import LANDING_DOCUMENTS

Read = Callable[[bytes, str], Any]
DOCUMENTS: list[tuple[Any, Read]] = [
    (SOURCE, SourceDoc.from_bytes),
    (SNAPSHOT, SnapshotDoc.from_bytes),
    (REQUEST, SnapshotRequest.from_bytes),
    (END, SnapshotEnd.from_bytes),
    (KEYED_COPY, KeyedCopy.from_bytes),
    (INTENT, Intent.from_bytes),
    (GROUP_CUT, GroupCut.from_bytes),
    (CUT_DOC, CutDoc.from_bytes),
]


def _read_manifest(data: bytes, name: str) -> Manifest:
    """Read it with the checksum that its contents call for."""
    document = json.loads(data)
    if isinstance(document.get("sha256"), str):
        document["sha256"] = ""
        document["sha256"] = sha256(canonical(document)).hexdigest()
    return parse(canonical(document), name)


LANDING: dict[str, Read] = {
    "manifest_head": _read_manifest,
    "manifest_segment": _read_manifest,
    "manifest_catalog": _read_manifest,
    "chain_start": ChainStart.from_bytes,
    "incarnation_record": IncarnationRecord.from_bytes,
    "timeline": TimelineDoc.from_bytes,
    "stuck": Stuck.from_bytes,
}
SCHEMA_CHANGE = replace(
    INTENT,
    tables={
        TABLE: TableIntent(Lsn(1), VERSION.id, SchemaChange(VERSION, {2: "x"}, Lsn(3))),
    },
)
CUT_ENTRY = replace(CUT.tables[TABLE], history_low=HistoryLow(-1, Lsn(2), archived=True)).entry(Lsn(7), Incarnation(3))
HELD_ENTRY = replace(next(iter(CUT.held.values())), differences=(Difference.DROPPED,))


def _read(read: Read, document: Any) -> Any:
    return read(json.dumps(document).encode(), "the file")


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
        "ordinals": None,
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
        "written_by": {"engine": "arrow", "reason": "no change came yet"},
    }


@pytest.mark.parametrize(("document", "read"), DOCUMENTS)
def test_every_missing_field_is_named(document: Any, read: Read) -> None:
    """The message has the thing and the field."""
    whole = json.loads(document.to_bytes())
    for name in set(whole) - {"format"}:
        damaged = {k: v for k, v in whole.items() if k != name}
        with pytest.raises(LakeError, match=f"the file: it is damaged: {name} is missing"):
            read(json.dumps(damaged).encode(), "the file")


# Objects whose keys are values and not fields.
_MAPPINGS = {
    "tables",
    "held",
    "detail",
    "files",
    "failed",
    "rules",
    "default_for_old_rows",
    "views",
    "sources",
    "positions",
    "unread",
}
# Schemas have a reader and tests of their own; the entries of a cut are read when somebody asks for them.
_ELSEWHERE = {"version", "created"}
STRICT: list[tuple[Any, Callable[[Any], Any]]] = [
    *((json.loads(d.to_bytes()), partial(_read, read)) for d, read in DOCUMENTS[:-1]),
    (json.loads(SCHEMA_CHANGE.to_bytes()), partial(_read, Intent.from_bytes)),
    (json.loads(PROVED.to_bytes()), partial(_read, ProofRecord.from_bytes)),
    (json.loads(PAUSED.to_bytes()), partial(_read, Paused.from_bytes)),
    *((json.loads(LANDING_DOCUMENTS[name]), partial(_read, read)) for name, read in LANDING.items()),
    (CUT_ENTRY.to_json(), lambda entry: CutEntry.from_json(entry, "the file", "tables[a/b]")),
    (HELD_ENTRY.to_json(), lambda entry: Held.from_json(entry, "the file", "held[a/b]")),
]


def _places(document: Any, *, keys_are_fields: bool = True) -> Iterator[tuple[Any, Any]]:
    """Every object or list in a document, with each key of it that is a field or an index."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if keys_are_fields:
            yield document, key
        if isinstance(value, dict | list) and key not in _ELSEWHERE:
            yield from _places(value, keys_are_fields=isinstance(value, dict) and key not in _MAPPINGS)


@pytest.mark.parametrize(("document", "read"), STRICT)
def test_each_field_at_any_depth_is_needed_and_has_its_type(document: Any, read: Callable[[Any], Any]) -> None:
    """No default fills one in, no number is a text or another number, and nothing else may stand beside the fields."""
    read(document)
    for place, key in list(_places(document)):
        value = place.pop(key)
        with pytest.raises(LakeError):
            read(document)
        others = (
            [[], {}, [value]]
            if value is None
            else [True, float(value), str(value)]
            if type(value) is int
            else [7, [value]]
        )
        for other in others:
            place[key] = other
            with pytest.raises(LakeError):
                read(document)
        place[key] = value
        place["another"] = 1
        with pytest.raises(LakeError):
            read(document)
        del place["another"]
    read(document)


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
    assert str(describe_held(held, "shop", TableName("a", "b"))) == (
        "held since 0/10: why; run `lakeproof bootstrap shop --tables a.b`, then compact"
    )
    odd = describe_held(held, "shop", TableName("a b", 'c"d'))
    assert odd.remedy == 'run `lakeproof bootstrap shop --tables \'"a b"."c""d"\'`, then compact'


@pytest.mark.parametrize("cause", HeldCause)
@pytest.mark.parametrize("way_out", WayOut)
def test_each_cause_and_each_way_out_has_its_sentence(cause: HeldCause, way_out: WayOut) -> None:
    """A document that lacks a detail still gives a sentence with all other details."""
    report = describe_held(Held(Lsn(16), cause, way_out), "shop", TableName("a", "b"))
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
    assert Held.from_json(then.to_json(), "x", "held") == then


def test_an_empty_history_adds_nothing_to_a_sum() -> None:
    """Sums are taken modulo 2**60."""
    some = HistorySum(3, (1 << 60) - 1)
    assert HistorySum().plus(some) == some
    assert some.plus(HistorySum(1, 2)) == HistorySum(4, 1)
