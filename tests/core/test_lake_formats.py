"""The lake's documents, byte for byte as format 1 has them: a change here is a change of the format.

Damaged documents are in `test_lake_documents.py`; manifests in `test_landing_manifest.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.lake.columns import current_columns, history_columns
from lakeproof.lake.records.cut_documents import base_bytes, shape_bytes
from lakeproof.lake.records.lease import hold_lease
from lakeproof.lake.records.view_cuts import ViewCut
from lakeproof.names import CycleNumber, Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from tests.core.test_lake_documents import CUT_DOC, ENDED, INTENT, SNAPSHOT, SOURCE, VERSION, WANTED

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[2] / "lakeproof" / "lake" / "FORMAT.md"
VIEW_CUT = ViewCut(
    number=CycleNumber(3),
    view="revenue",
    delta_version=2,
    definition_sha256="0" * 64,
    sources={"shop": CycleNumber(7)},
    inserted=4,
    retracted=1,
    created_at="2026-01-01T00:00:00+00:00",
    refresh=2,
)
DOCUMENTS = {
    "source": SOURCE.to_bytes(),
    "snapshot": SNAPSHOT.to_bytes(),
    "snapshotended": ENDED.to_bytes(),
    "snapshotwanted": WANTED.to_bytes(),
    "intent": INTENT.to_bytes(),
    "cut": CUT_DOC.to_bytes(),
    "cutbase": base_bytes(CUT_DOC.number, CUT_DOC.changed),
    "shape": shape_bytes(VERSION),
    "viewcut": VIEW_CUT.to_bytes(),
}


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_has_the_bytes_of_its_format(name: str) -> None:
    """Stored lakes have these; who reads format 1 must go on reading them."""
    assert DOCUMENTS[name] == (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_page_names_every_field_of_a_document(name: str) -> None:
    """FORMAT.md speaks of each field, as a word of its own."""
    spoken = set(re.findall(r"[a-z_0-9]+", PAGE.read_text(encoding="utf-8")))
    assert set(json.loads(DOCUMENTS[name])) - {"format"} <= spoken


def test_a_lease_has_the_fields_of_its_format(tmp_path: Path) -> None:
    """Its values are the process's own, so the names and kinds are pinned."""
    store, paths = open_store(str(tmp_path)), LakePaths(str(tmp_path), "shop")
    with hold_lease(store, paths) as lease:
        written = json.loads(store.get(paths.lease(lease.epoch)))
    assert {k: type(v).__name__ for k, v in written.items()} == {
        "format": "str", "epoch": "int", "writer": "str", "host": "str", "process": "dict",
        "jvm": "NoneType", "created_at": "str",
    }  # fmt: skip
    assert written["format"] == "lakeproof.lease/1"


def test_hidden_columns_are_those_of_the_format() -> None:
    """Which tables have which, in order; the page names each."""
    note = Column("note", Oid(25), -1, "text", "text", 2, identity=False)
    numbers = SchemaVersion(
        TableName("app", "t"), Oid(7), Identity.DEFAULT, (Column("id", Oid(20), -1, "int8", "int8", 1, True),), ("id",)
    )
    notes = replace(numbers, columns=(*numbers.columns, note))
    bag = replace(notes, identity=Identity.FULL, key=())
    assert current_columns(numbers) == ["id", "_lp_text"]
    assert current_columns(notes) == ["id", "note", "_lp_text", "_lp_ord", "_lp_from"]
    assert current_columns(bag) == ["id", "note", "_lp_text", "_lp_key", "_lp_dup", "_lp_from"]
    history = [
        "_lp_ord", "_lp_lsn", "_lp_seq", "_lp_op", "_lp_xid", "_lp_commit_time", "_lp_text", "_lp_key",
        "_lp_from",
    ]  # fmt: skip
    assert history_columns(numbers) == ["id", *history]
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in {*history, *current_columns(bag)} if name.startswith("_lp_"))
