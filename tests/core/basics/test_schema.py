"""Schema versions: equal schemas share an id, different ones don't, and the JSON form is strict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lakeproof.landing.segments.file_columns import file_names
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion, lake_names

ID = Column("id", Oid(20), -1, "bigint", "int8", 1, identity=True)
NOTE = Column("note", Oid(25), -1, "text", "text", 2, identity=False)
VERSION = SchemaVersion(TableName("shop", "orders"), Oid(16_400), Identity.DEFAULT, (ID, NOTE), ("id",))


def test_the_json_form_and_the_version_are_inverse() -> None:
    """A manifest gives the same version back, with the same id."""
    again = SchemaVersion.from_json(VERSION.to_json())
    assert again == VERSION
    assert again.id == VERSION.id


def test_the_id_is_16_hexadecimal_digits_and_never_changes() -> None:
    """Manifests keep the ID for good, so its computation is pinned."""
    assert VERSION.id == "42ed3c7dcd5d6bf4"


@pytest.mark.parametrize(
    "other",
    [
        replace(VERSION, table=TableName("shop", "order")),
        replace(VERSION, oid=Oid(16_401)),
        replace(VERSION, identity=Identity.FULL),
        replace(VERSION, key=()),
        replace(VERSION, key=("note",)),
        replace(VERSION, columns=(NOTE, ID)),
        replace(VERSION, columns=(ID,)),
        replace(VERSION, columns=(ID, replace(NOTE, name="Note"))),
        replace(VERSION, columns=(ID, replace(NOTE, type_oid=Oid(1043)))),
        replace(VERSION, columns=(ID, replace(NOTE, typmod=14))),
        replace(VERSION, columns=(ID, replace(NOTE, type_name="character varying"))),
        replace(VERSION, columns=(ID, replace(NOTE, kind="exact_text"))),
        replace(VERSION, columns=(ID, replace(NOTE, attnum=0))),
        replace(VERSION, columns=(ID, replace(NOTE, identity=True))),
    ],
)
def test_every_part_of_the_schema_is_in_the_id(other: SchemaVersion) -> None:
    """A difference anywhere is a different version."""
    assert other.id != VERSION.id


@pytest.mark.parametrize("field", ["schema", "name", "oid", "identity", "key", "columns"])
def test_a_document_without_one_of_its_fields_is_refused(field: str) -> None:
    """Missing fields get no default."""
    doc = VERSION.to_json()
    del doc[field]
    with pytest.raises(KeyError):
        SchemaVersion.from_json(doc)


@pytest.mark.parametrize("field", ["name", "type_oid", "typmod", "type_name", "kind", "attnum", "identity"])
def test_a_column_without_one_of_its_fields_is_refused(field: str) -> None:
    """A column of a schema version needs all its fields."""
    doc = VERSION.to_json()
    del doc["columns"][1][field]
    with pytest.raises(KeyError):
        SchemaVersion.from_json(doc)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.update(identity="x"),
        lambda d: d.update(identity=None),
        lambda d: d.update(oid="many"),
        lambda d: d.update(oid=None),
        lambda d: d.update(columns=3),
        lambda d: d.update(key=None),
        lambda d: d["columns"].append(None),
        lambda d: d["columns"][0].update(typmod="wide"),
    ],
)
def test_a_damaged_document_is_refused(damage: Callable[[dict[str, Any]], None]) -> None:
    """A value of the wrong kind is an error, never a guess."""
    doc = VERSION.to_json()
    damage(doc)
    with pytest.raises((TypeError, ValueError)):
        SchemaVersion.from_json(doc)


def test_a_table_without_a_key_is_a_bag() -> None:
    """Rows that nothing distinguishes are a multiset."""
    assert not VERSION.is_bag
    assert replace(VERSION, key=()).is_bag


@pytest.mark.parametrize("name", ["_lp_ord", "_LP_mine", "__lp_net", "__LP_first", "_metadata", "__delta_internal_x"])
def test_a_column_with_a_reserved_name_gets_another_one_in_the_lake(name: str) -> None:
    """The prefixes of hidden and scratch columns, in any case, and what Spark and Delta have for themselves."""
    assert lake_names((replace(ID, name=name), NOTE)) == {name: f"#1#{name}", "note": "note"}


def test_no_two_columns_have_one_name_in_the_lake_or_in_a_file() -> None:
    """A column may be called what another would be called; a version under the lake's names keeps them."""
    named = [replace(NOTE, name=name, attnum=number) for number, name in ((1, "#3#a"), (2, "A"), (3, "a"), (4, "b c"))]
    names = lake_names(named)
    assert names == {"#3#a": "#3#a", "A": "A", "a": "##3#a", "b c": "b c"}
    version = replace(VERSION, columns=tuple(named), key=())
    renamed = replace(version, columns=tuple(replace(c, name=names[c.name]) for c in named))
    assert file_names(version) == file_names(renamed) == ["#3#a", "A", "##3#a", "#4#"]
