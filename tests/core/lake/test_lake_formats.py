"""The documents of a lake and of a landing, byte for byte as format 1 has them: a change here is a change of the format.

Damaged documents are in `test_lake_documents.py`; manifests in `test_landing_manifest.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lakeproof.lake.columns import current_columns, history_columns
from lakeproof.lake.records.lease import hold_lease
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from tests.core.lake.lake_document_samples import DOCUMENTS
from tests.core.landing.landing_document_samples import LANDING_DOCUMENTS

GOLDEN = Path(__file__).parent / "golden"
PAGE = Path(__file__).parents[3] / "lakeproof" / "lake" / "FORMAT.md"
LANDING_PAGE = PAGE.parents[1] / "landing" / "FORMAT.md"


@pytest.mark.parametrize("name", sorted(DOCUMENTS | LANDING_DOCUMENTS))
def test_a_document_has_the_bytes_of_its_format(name: str) -> None:
    """Stored lakes have these; who reads format 1 must go on reading them."""
    assert (DOCUMENTS | LANDING_DOCUMENTS)[name] == (GOLDEN / f"{name}.json").read_bytes()


@pytest.mark.parametrize("name", sorted(DOCUMENTS | LANDING_DOCUMENTS))
def test_the_page_names_every_field_of_a_document(name: str) -> None:
    """FORMAT.md speaks of each field, as a whole word."""
    page = PAGE if name in DOCUMENTS else LANDING_PAGE
    spoken = set(re.findall(r"[a-z_0-9]+", page.read_text(encoding="utf-8")))
    assert set(json.loads((DOCUMENTS | LANDING_DOCUMENTS)[name])) - {"format"} <= spoken


def test_a_lease_has_the_fields_of_its_format(tmp_path: Path) -> None:
    """A lease's values are the process's own, so only the names and kinds are pinned."""
    lake = SourceLake.open(str(tmp_path), "shop")
    with hold_lease(lake) as lease:
        written = json.loads(lake.store.get(lake.paths.lease(lease.epoch)))
    assert {k: type(v).__name__ for k, v in written.items()} == {
        "format": "str", "epoch": "int", "writer": "str", "host": "str", "process": "dict",
        "jvm": "NoneType", "created_at": "str",
    }  # fmt: skip
    assert written["format"] == "lakeproof.lease/1"


def test_hidden_columns_are_those_of_the_format() -> None:
    """The hidden columns of each table, in order; the page names each."""
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
        "_lp_from", "_lp_commit_number",
    ]  # fmt: skip
    assert history_columns(numbers) == ["id", *history]
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in {*history, *current_columns(bag)} if name.startswith("_lp_"))
