"""A time in a document that is none, one letter being another: the document is damaged, whoever reckons with the time."""

from __future__ import annotations

import re

import pytest

from lakeproof.errors import LakeError
from lakeproof.storage.document import Document
from tests.core.lake.lake_document_samples import AGES, CUT_DOC, END, PROVED, REQUEST, VIEW_CUT

_TIME = re.compile(rb'"2026-[^"]*"')


@pytest.mark.parametrize("document", [REQUEST, END, CUT_DOC, PROVED, AGES, VIEW_CUT], ids=lambda d: type(d).__name__)
@pytest.mark.parametrize("other", [b'"2O26-01-01T00:00:00.000000Z"', b'"2026-19-01T00:00:00.000000Z"', b'"2026-01-01"'])
def test_what_is_no_time_is_damage(document: Document, other: bytes) -> None:
    """Its text is not repeated."""
    data = document.to_bytes()
    assert _TIME.search(data)
    for place in _TIME.finditer(data):
        with pytest.raises(LakeError, match="is not a time") as error:
            type(document).from_bytes(data[: place.start()] + other + data[place.end() :], "thing")
        assert "01T" not in str(error.value)
