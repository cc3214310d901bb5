"""A table's name as people write it, alone and in a list."""

from __future__ import annotations

import pytest

from lakeproof.config.table_names import Selection, TablePattern, parse_selected, parse_table, parse_tables, table_text
from lakeproof.names import TableName


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
    assert parse_table(table_text(TableName(schema, name))) == TableName(schema, name)


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
    """The parser guesses no schema and closes no quote."""
    with pytest.raises(ValueError, match=r"not a table: .* \(the form is schema\.table"):
        parse_table(text)


@pytest.mark.parametrize(("text", "count"), [("a.b", 1), ("a.b,c.d", 2), (" a.b , c.d ", 2), ('"x,y"."z, w",c.d', 2)])
def test_a_list_has_commas_between(text: str, count: int) -> None:
    """Blanks around a comma don't matter."""
    assert len(parse_tables(text)) == count


@pytest.mark.parametrize("text", ["", ",", "a.b,", ",a.b", "a.b,,c.d", "a.b c.d", "a.b;c.d", 'a.b,"c.d'])
def test_a_wrong_list_is_refused(text: str) -> None:
    """A list with a comma too many is refused, too."""
    with pytest.raises(ValueError, match="not a list of tables"):
        parse_tables(text)


def test_a_table_that_stands_twice_is_refused() -> None:
    """The two spellings may differ."""
    with pytest.raises(ValueError, match=r"appears twice: a\.b"):
        parse_tables('a.b,"a".b')


@pytest.mark.parametrize(
    ("text", "name", "matches"),
    [
        ("erp.*", "orders", True),
        ("erp.*", "odd\nname", True),
        ("erp.*", "", True),
        ("erp.tmp_*", "tmp_", True),
        ("erp.tmp_*", "atmp_1", False),
        ("erp.*_log_*", "a_log_b", True),
        ("erp.*.", "", None),
        ("erp.a+*", "a+b", True),
        ("erp.a+*", "aab", False),
        ('"erp".*', "orders", True),
    ],
)
def test_a_star_stands_for_any_characters(text: str, name: str, matches: bool | None) -> None:
    """A star matches any characters; a schema's name and all other characters match only themselves."""
    if matches is None:
        with pytest.raises(ValueError, match="not a table"):
            parse_selected(text)
        return
    pattern = parse_selected(text)
    assert isinstance(pattern, TablePattern)
    assert pattern.matches(TableName("erp", name)) is matches
    assert not pattern.matches(TableName("ERP", name))
    assert parse_selected(str(pattern)) == pattern


@pytest.mark.parametrize("text", ["*", "*.a", "er*.a", "a.b*.c", 'a."b"*', "a. *", "a.*,b"])
def test_a_star_elsewhere_is_refused(text: str) -> None:
    """A schema is named, or is every one, and one pattern is one entry."""
    with pytest.raises(ValueError, match="not a table"):
        parse_selected(text)


def test_a_star_for_the_schema_is_every_schema() -> None:
    """It is written without quotes; a schema of that name can't be in a pattern."""
    pattern = parse_selected("*.log_*")
    assert isinstance(pattern, TablePattern)
    assert str(pattern) == "*.log_*"
    assert [pattern.matches(TableName(*name)) for name in (("a", "log_1"), ("B c", "log_"), ("a", "blog_1"))] == [
        True,
        True,
        False,
    ]
    with pytest.raises(ValueError, match="can't be in a pattern"):
        parse_selected('"*".log_*')


def test_a_table_with_a_star_in_its_name_is_quoted() -> None:
    """Unquoted it is a pattern, which is no table's name."""
    odd = TableName("a", "b*c")
    assert table_text(odd) == 'a."b*c"'
    assert parse_selected(table_text(odd)) == odd
    with pytest.raises(ValueError, match=r"patterns are allowed only in `tables` and `exclude`"):
        parse_table("a.b*c")


def test_what_is_selected() -> None:
    """Names always, what a pattern matches unless it is left out; the first pattern that matches is named."""
    a, b, log = (TableName("erp", name) for name in ("a", "b", "b_log"))
    every, some = TablePattern("erp", "*"), TablePattern("erp", "b*")
    selection = Selection((TableName("x", "y"),), (some, every), (TablePattern("erp", "*_log"), TableName("erp", "a")))
    assert [selection.matching(table) for table in (a, b, log)] == [None, some, None]
    assert [selection.selected(table) for table in (a, b, log, TableName("x", "y"))] == [False, True, False, True]
    assert (bool(selection), bool(Selection(exclude=(a,)))) == (True, False)


class _Compared(TableName):
    """A name that counts how often it is compared with another."""

    times = 0

    def __eq__(self, other: object) -> bool:
        type(self).times += 1
        return super().__eq__(other)

    __hash__ = TableName.__hash__


def test_a_selection_of_many_names_is_not_searched_name_by_name() -> None:
    """A schema for each tenant: to ask about each of its tables costs a comparison or two each."""
    names = tuple(_Compared("tenant", f"t{number}") for number in range(500))
    selection = Selection(names, (), ())
    _Compared.times = 0
    assert all(selection.selected(_Compared("tenant", name.name)) for name in names)
    assert not selection.selected(TableName("tenant", "other"))
    assert _Compared.times < 5 * len(names)
