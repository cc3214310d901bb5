"""A table's name as people write it, alone and in a list."""

from __future__ import annotations

import pytest

from wal2delta.config.table_names import parse_table, parse_tables, write_table
from wal2delta.names import TableName


@pytest.mark.parametrize(
    ("text", "schema", "name"),
    [
        ("shop.orders", "shop", "orders"),
        ("Shop.Orders", "Shop", "Orders"),
        ('"my schema"."odd.name"', "my schema", "odd.name"),
        ('a."b"', "a", "b"),
        ('"a""b".c', 'a"b', "c"),
        ('"a/b"."c,d"', "a/b", "c,d"),
        ("ü.表", "ü", "表"),
        ("a-b.c$d", "a-b", "c$d"),
        ('" "."."', " ", "."),
    ],
)
def test_a_name_is_a_schema_and_a_table(text: str, schema: str, name: str) -> None:
    """Case is kept; double quotes hold what would part them."""
    assert parse_table(text) == TableName(schema, name)
    assert parse_table(write_table(TableName(schema, name))) == TableName(schema, name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a",
        "a.",
        ".a",
        "a.b.c",
        '"a".',
        'a.""',
        '"".b',
        '"a.b',
        'a"b.c',
        "a .b",
        "a. b",
        " a.b",
        "a.b\n",
        'a."b"c',
        "a/b.c",
        "a.b,c",
    ],
)
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    """No schema is guessed, no quote closed."""
    with pytest.raises(ValueError, match=r"not a table: .* \(the form is schema\.table"):
        parse_table(text)


@pytest.mark.parametrize(("text", "count"), [("a.b", 1), ("a.b,c.d", 2), (" a.b , c.d ", 2), ('"x,y"."z, w",c.d', 2)])
def test_a_list_has_commas_between(text: str, count: int) -> None:
    """Blanks around a comma don't matter."""
    assert len(parse_tables(text)) == count


@pytest.mark.parametrize("text", ["", ",", "a.b,", ",a.b", "a.b,,c.d", "a.b c.d", "a.b;c.d", 'a.b,"c.d'])
def test_a_wrong_list_is_refused(text: str) -> None:
    """Also for one comma too many."""
    with pytest.raises(ValueError, match="not a list of tables"):
        parse_tables(text)


def test_a_table_that_stands_twice_is_refused() -> None:
    """However it is written."""
    with pytest.raises(ValueError, match=r"stands twice: a\.b"):
        parse_tables('a.b,"a".b')
