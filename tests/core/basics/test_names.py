"""Table names: what stands in paths, JSON and asset keys, and that no two tables share it."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from lakeproof.names import TableName

ODD = [
    "a",
    "A",
    "a.b",
    "a b",
    "a/b",
    "..",
    ".",
    "~",
    "%2F",
    "a%",
    'say "x"',
    "ü",
    "表",
    "a\\b",
    "a\nb",
    "-_",
    "a+b",
    "a?b#c",
]


@pytest.mark.parametrize("schema", ODD)
@pytest.mark.parametrize("name", ODD)
def test_key_and_name_are_inverse(schema: str, name: str) -> None:
    """A name comes back from its key whatever characters it has."""
    assert TableName.from_key(TableName(schema, name).key) == TableName(schema, name)


def test_different_tables_have_different_keys() -> None:
    """Keys differ even if a separator stands in a name."""
    tables = [TableName(s, n) for s in ODD for n in ODD]
    assert len({t.key for t in tables}) == len(tables)


@pytest.mark.parametrize("part", ODD)
def test_a_key_is_a_path_of_two_harmless_parts(part: str) -> None:
    """No part is `.` or `..`, holds a separator, or needs quoting in a shell or URL."""
    parts = PurePosixPath(TableName(part, part).key).parts
    assert len(parts) == 2
    for text in parts:
        assert text.isascii()
        assert all(c.isalnum() or c in "-_%" for c in text)


@pytest.mark.parametrize("key", ["", "a", "/", "a/", "/a", "a/b/c", "a//b"])
def test_a_key_without_two_parts_is_refused(key: str) -> None:
    """A schema and a name, no more and no less."""
    with pytest.raises(ValueError, match="not a table key"):
        TableName.from_key(key)


def test_for_people_a_name_is_as_in_the_catalog() -> None:
    """A name for people has no escapes."""
    assert str(TableName("public", "order lines")) == "public.order lines"
    assert TableName("public", "order lines").key == "public/order%20lines"
