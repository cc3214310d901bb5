"""The manifest's bytes, and that nothing but those bytes is taken for a manifest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

from lakeproof.errors import LakeError
from lakeproof.landing.segments.manifest import Manifest, parse
from tests.core.landing.landing_document_samples import CATALOG, HEAD_MANIFEST, SEGMENT

CATALOG_BYTES = (
    b'{"catalog":{"bytes":9,"changes":[{"added":[{"attnum":3,"missing":"{7}","name":"w"}],"after":"1111111111111111",'
    b'"before":"0000000000000000","created":null,"differences":["renamed","column added"],"empty":null,"oid":16384,'
    b'"renamed_to":"public/lines","table":"public/order%20lines","version":null},{"added":[],"after":null,"before":"0000000000000000","created":null,'
    b'"differences":["dropped"],"empty":null,"oid":16385,"renamed_to":null,"table":"public/gone","version":null},{"added":[],'
    b'"after":"1111111111111111","before":null,"created":{"anchored":[1],"named":true,"numbered":false,"version":{"columns":'
    b'[{"attnum":1,"identity":true,"kind":"int4","name":"id","type_name":"int4","type_oid":23,"typmod":-1}],"identity":"d",'
    b'"key":["id"],"name":"made","oid":16386,"schema":"public"}},"differences":["created"],"empty":null,"oid":16386,"renamed_to":null,'
    b'"table":"public/made","version":null},{"added":[],"after":"1111111111111111","before":"0000000000000000","created":null,'
    b'"differences":["rewritten"],"empty":{"columns":'
    b'[{"attnum":1,"identity":true,"kind":"int4","name":"id","type_name":"int4","type_oid":23,"typmod":-1}],"identity":"d",'
    b'"key":["id"],"name":"made","oid":16386,"schema":"public"},"oid":16387,"renamed_to":null,'
    b'"table":"public/empty","version":null}],"lower_lsn":"1/10",'
    b'"path":"catalog/00000000000000000002-0123456789abcdef0123456789abcdef.json",'
    b'"rules":{"a16":7,"s17":1099511627776},'
    b'"sha256":"cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc","upper_lsn":"1/30"},'
)
HEAD_BYTES = (
    b'{"catalog_lsn":null,"created_at":"2026-01-01T00:00:00.000000Z","end_lsn":"0/10","files":[],"first_commit_time":null,'
    b'"first_ordinal":0,"format":"lakeproof.manifest/1","incarnation":1,"kind":"head","last_commit":null,"last_commit_time":null,"logical_messages":[],"number":0,'
    b'"previous_sha256":null,"rows":0,"schemas":[],'
    b'"sha256":"SUM","source":{"database":"app","database_oid":16384,"publication":"shop",'
    b'"server_version":180006,"slot":"shop","system_id":"7300000000000000001","timeline":1},"start_lsn":"0/10",'
    b'"transactions":0,"writer":"0123456789abcdef0123456789abcdef"}\n'
)


def test_the_head_has_exactly_these_bytes() -> None:
    """The format page is kept: sorted keys, no spaces, one newline, its own checksum."""
    checksum = hashlib.sha256(HEAD_BYTES.replace(b"SUM", b"")).hexdigest().encode()
    assert HEAD_MANIFEST.to_bytes() == HEAD_BYTES.replace(b"SUM", checksum)


def test_a_reading_of_the_catalog_has_exactly_these_bytes() -> None:
    """The field `catalog` comes first."""
    assert CATALOG.to_bytes().startswith(CATALOG_BYTES + b'"catalog_lsn":"1/30","created_at":')


@pytest.mark.parametrize("manifest", [HEAD_MANIFEST, SEGMENT, CATALOG])
def test_bytes_give_the_manifest_back(manifest: Manifest) -> None:
    """Nothing is lost on the way."""
    assert parse(manifest.to_bytes(), "x") == manifest


def test_times_are_utc_with_microseconds() -> None:
    """Times before 1970 are written correctly, too."""
    document = json.loads(SEGMENT.to_bytes())
    assert document["first_commit_time"] == "1969-12-31T23:59:59.999999Z"
    assert document["last_commit_time"] == "2023-11-14T22:13:20.123456Z"


@pytest.mark.parametrize("position", range(0, len(SEGMENT.to_bytes()), 7))
def test_any_flipped_bit_is_noticed(position: int) -> None:
    """A flipped bit is noticed even if the document still makes sense."""
    damaged = bytearray(SEGMENT.to_bytes())
    damaged[position] ^= 1
    with pytest.raises(LakeError, match=r"manifest x: (it is damaged|has format)"):
        parse(bytes(damaged), "x")


@pytest.mark.parametrize("size", [0, 1, 100, len(SEGMENT.to_bytes()) - 1])
def test_a_truncated_manifest_is_refused(size: int) -> None:
    """A torn write, if a file system should ever show one."""
    with pytest.raises(LakeError, match="damaged"):
        parse(SEGMENT.to_bytes()[:size], "x")


def _set(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(values)


def _set_in_file(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["files"][0].update(values)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_set(format="lakeproof.manifest/2"), "format"),
        (_set(extra=1), "extra is not a field"),
        (lambda d: d.pop("writer"), "writer is missing"),
        (_set(kind="tail"), "none of head, segment, progress"),
        (_set(kind="progress"), "a segment has files"),
        (_set(kind="head"), "only number 0"),
        (_set(files=[], rows=0), "a segment has files"),
        (_set(number=0), "only number 0"),
        (_set(number=-1), "not an integer"),
        (_set(number=True), "not an integer"),
        (_set(number=1.0), "not an integer"),
        (_set(rows=5), "add up to 4"),
        (_set(start_lsn="1/20"), "range"),
        (_set(start_lsn=16), "start_lsn is not text"),
        (_set(end_lsn="16"), "not an LSN"),
        (_set(previous_sha256=None), "only number 0"),
        (_set(previous_sha256="A" * 64), "form"),
        (_set(writer="me"), "form"),
        (_set(first_commit_time="yesterday"), "not a time"),
        (_set(first_commit_time="2026-13-01T00:00:00.000000Z"), "not a time"),
        (_set(schemas={}), "not a list"),
        (_set(files=[1]), "not an object"),
        (_set(last_commit=None), "a last commit if it has rows"),
        (
            _set(last_commit={"end_lsn": "0/10", "xid": 7, "time": "2026-01-01T00:00:00.000000Z"}),
            "outside of its range",
        ),
        (_set(last_commit={"end_lsn": "0/18", "xid": 7}), r"last_commit\.time is missing"),
        (_set(source={}), r"source\.system_id is missing"),
        (_set_in_file(path="../../etc/passwd"), "form"),
        (_set_in_file(path="/data/x"), "form"),
        (_set_in_file(table="orders"), "not a table's key"),
        (_set_in_file(inserts=0), "do not add up"),
        (_set_in_file(rows=3), "do not add up"),
        (_set_in_file(sha256="b"), "form"),
        (_set_in_file(more=1), r"files\[0\]\.more is not a field"),
        (lambda d: d["schemas"][0].update(id="0" * 16), "has the id 0000000000000000, but its version is"),
        (lambda d: d["schemas"][0].update(from_lsn="0/10"), "outside of its range"),
        (lambda d: d["schemas"][0].update(version={}), "not a schema version"),
    ],
)
def test_a_document_of_another_form_is_refused(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    """The message names the field; a right checksum does not help."""
    _refuse(SEGMENT, change, reason)


def _set_in_change(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document["catalog"]["changes"][0].update(values)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda d: d.pop("catalog"), "must have its own manifest"),
        (_set(kind="progress", end_lsn="1/21"), "must have its own manifest"),
        (_set(end_lsn="1/21"), "is not one of a catalog"),
        (_set(catalog_lsn="x"), "catalog_lsn is not an LSN"),
        (lambda d: d["catalog"].update(lower_lsn=None), "catalog has no lower_lsn"),
        (lambda d: d["catalog"].update(upper_lsn=None), "upper_lsn is not text"),
        (lambda d: d["catalog"].update(path="../x"), "form"),
        (lambda d: d["catalog"].update(more=1), "more is not a field"),
        (_set_in_change(differences=[]), "catalog has a change without differences"),
        (_set_in_change(differences=["another"]), r"differences\[0\] is no word"),
        (_set_in_change(differences=[["dropped"]]), r"differences\[0\] is no word"),
        (_set_in_change(table="orders"), "not a table's key"),
        (_set_in_change(before="0"), "form"),
        (_set_in_change(added=[{"name": "w", "attnum": 3}]), "missing is missing"),
        (_set_in_change(more=1), "more is not a field"),
    ],
)
def test_a_reading_of_another_form_is_refused(change: Callable[[dict[str, Any]], None], reason: str) -> None:
    """A malformed reading is refused like any malformed manifest."""
    _refuse(CATALOG, change, reason)


def _refuse(manifest: Manifest, change: Callable[[dict[str, Any]], None], reason: str) -> None:
    document = json.loads(manifest.to_bytes())
    change(document)
    document["sha256"] = ""
    spelled = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    document["sha256"] = hashlib.sha256(spelled).hexdigest()
    with pytest.raises(LakeError, match=reason):
        parse(json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n", "x")


def test_another_spelling_of_the_same_document_is_refused() -> None:
    """The successor's checksum would not fit another spelling."""
    with pytest.raises(LakeError, match="spelling"):
        parse(json.dumps(json.loads(SEGMENT.to_bytes()), sort_keys=True).encode() + b"\n", "x")


@pytest.mark.parametrize("data", [b"[]\n", b"{}", b"null", b"\xff", b'{"a":', b"[" * 100_000])
def test_what_is_no_json_object_is_refused(data: bytes) -> None:
    """All such documents give the same error."""
    with pytest.raises(LakeError, match=r"damaged|has format"):
        parse(data, "x")
