"""Two schemas of a table: the columns that carry on, whether the change is exact in place, and the message about it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeproof.lake.columns import same_key_columns
from lakeproof.lake.planning.schema_change import compare_schemas, default_fits, describe_change, why_not_in_place
from lakeproof.lake.planning.schema_changes import element_of_one
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.values.types import decimal_typmod

_OIDS = {"int2": 21, "int4": 23, "int8": 20, "float4": 700, "float8": 701, "text": 25, "varchar": 1043, "numeric": 1700}
_OIDS |= {"date": 1082, "uuid": 2950}


def column(name: str, kind: str, attnum: int, typmod: int = -1) -> Column:
    """A column of a built-in type."""
    return Column(name, Oid(_OIDS[kind]), typmod, kind, kind, attnum, identity=name == "id")


ID = column("id", "int4", 1)


def schema(*columns: Column, key: tuple[str, ...] = ("id",), identity: Identity = Identity.DEFAULT) -> SchemaVersion:
    """A table of `id` and these."""
    return SchemaVersion(TableName("s", "t"), Oid(7), identity, (ID, *columns), key)


NUMBER = column("n", "numeric", 2, decimal_typmod(10, 2))
TEXT = column("t", "text", 6)


@pytest.mark.parametrize(
    ("old", "new", "carried"),
    [
        (column("a", "int4", 2), column("b", "int4", 2), True),
        (column("a", "int2", 2), column("a", "int8", 2), True),
        (column("a", "float4", 2), column("a", "float8", 2), True),
        (column("a", "varchar", 2, 14), column("a", "text", 2), True),
        (NUMBER, column("n", "numeric", 2, decimal_typmod(12, 2)), True),
        (NUMBER, column("n", "numeric", 2, decimal_typmod(12, 3)), False),
        (NUMBER, column("n", "numeric", 2, decimal_typmod(8, 2)), False),
        (column("a", "int8", 2), column("a", "int4", 2), False),
        (column("a", "int4", 2), column("a", "float8", 2), False),
        (column("a", "uuid", 2), column("a", "text", 2), False),
        (column("a", "int4", 2), column("a", "int4", 3), False),
    ],
)
def test_a_column_carries_on_by_its_number_and_a_type_that_holds_its_values(
    old: Column, new: Column, carried: bool
) -> None:
    """Names don't matter; a column that does not fit is dropped and added."""
    actual = compare_schemas(schema(old), schema(new))
    assert [(a.name, b.name) for a, b in actual.carried] == [("id", "id"), *([(old.name, new.name)] if carried else [])]
    assert (actual.dropped, actual.added) == (() if carried else (old,), () if carried else (new,))


def test_another_table_of_the_name_carries_columns_by_name_and_type() -> None:
    """Columns are not carried if `_lp_text` or `_lp_from`, which go by numbers, could name them and the numbers differ."""
    old = schema(column("a", "text", 2), column("d", "date", 3), column("n", "int4", 4), column("f", "float4", 5), TEXT)
    new = schema(column("d", "date", 2), column("a", "text", 3), column("f", "float4", 4), column("n", "int8", 5), TEXT)
    actual = compare_schemas(old, replace(new, oid=Oid(8)))
    assert [a.name for a, _ in actual.carried] == ["id", "f", "t"]
    assert why_not_in_place(actual) == "the table was recreated"


@pytest.mark.parametrize(
    ("new", "mixed", "reason"),
    [
        (schema(column("a", "text", 2)), True, None),
        (schema(column("a", "int4", 2)), False, "the type of a is not a wider one"),
        (schema(column("a", "text", 0)), False, "the catalog did not know"),
        (schema(column("a", "text", 2), key=("a",)), False, None),
        (schema(column("a", "text", 2), key=("a",)), True, "in the middle of a transaction"),
        (schema(column("a", "text", 2), key=(), identity=Identity.FULL), True, "in the middle of a transaction"),
        (schema(column("a", "text", 2), key=(), identity=Identity.FULL), False, None),
        (schema(column("a", "text", 2), identity=Identity.FULL), False, "not known to be unique"),
        (schema(column("a", "text", 2), identity=Identity.INDEX), True, None),
    ],
)
def test_what_can_be_given_in_place(new: SchemaVersion, mixed: bool, reason: str | None) -> None:
    """A change that is not possible in place has a reason; `mixed`: rows of both schemas in one transaction."""
    actual = why_not_in_place(compare_schemas(schema(column("a", "text", 2)), new), mixed=mixed)
    assert actual is None if reason is None else reason in str(actual)


def test_hidden_columns_stay_where_what_they_are_made_of_does() -> None:
    """A bag's digest is of all columns, a key's text of the key's."""
    bag = schema(column("f", "float4", 2), key=(), identity=Identity.FULL)
    renamed = replace(bag, columns=(ID, column("g", "float4", 2)))
    widened = replace(bag, columns=(ID, column("f", "float8", 2)))
    dropped = replace(bag, columns=(ID,))
    assert [compare_schemas(bag, new).keeps_hidden for new in (renamed, widened, dropped)] == [True, False, False]
    keyed = schema(column("f", "float4", 2), column("x", "text", 3), key=("f",))
    other = replace(keyed, columns=(ID, column("f", "float4", 2)))
    wider = replace(keyed, columns=(ID, column("f", "float8", 2), column("x", "text", 3)))
    assert [compare_schemas(keyed, new).keeps_hidden for new in (other, wider, bag)] == [True, False, False]


def test_the_change_is_described_in_words() -> None:
    """Names and types, no values."""
    old = schema(column("a", "int4", 2), column("b", "text", 3))
    new = schema(column("c", "int8", 2), column("b", "text", 4))
    message = describe_change(old, new)
    assert message == (
        "its schema changed: a renamed to c; columns added: b; columns dropped: b; the type of c changed from int4 to int8"
    )


@pytest.mark.parametrize(
    ("array", "text"),
    [("{5}", "5"), ('{"a \\"b\\\\, {}"}', 'a "b\\, {}'), ("{NULL}", None), ('{"NULL"}', "NULL"), ('{""}', "")],
)
def test_a_default_is_the_element_of_an_array_of_one(array: str, text: str | None) -> None:
    """The default comes as in `attmissingval`."""
    assert element_of_one(array) == text


def test_a_default_that_the_column_does_not_hold_is_refused() -> None:
    """Such a default would have to stand in `_lp_text`."""
    assert default_fits(column("d", "date", 2), "2026-01-01")
    assert not default_fits(column("d", "date", 2), "infinity")


def test_keys_are_the_same_by_columns_numbers_and_types() -> None:
    """A renamed key column is the same; another column, another type and a bag are not."""
    key = column("k", "int4", 3)
    old = schema(key, TEXT, key=("id", "k"))
    assert same_key_columns(old, schema(column("renamed", "int4", 3), key=("id", "renamed")))
    assert not same_key_columns(old, schema(column("k", "int8", 3), TEXT, key=("id", "k")))
    assert not same_key_columns(old, schema(column("k", "int4", 4), TEXT, key=("id", "k")))
    assert not same_key_columns(old, schema(key, TEXT))
    assert not same_key_columns(old, schema(key, TEXT, key=(), identity=Identity.FULL))
