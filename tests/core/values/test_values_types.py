"""The table of kinds: which type gets which kind, and that docs/types.md says the same."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from lakeproof.config.model import TableConfig
from lakeproof.names import Oid
from lakeproof.schema import Column
from lakeproof.values import exact_kinds
from lakeproof.values.catalog_kinds import CatalogType, is_bare_numeric, make_column, resolve_kind, unknown_column
from lakeproof.values.types import (
    KINDS,
    NOTHING,
    arrow_type,
    decimal_typmod,
    fits_decimal,
    precision_scale,
    spark_type,
)
from tests.core.pgoutput.pgoutput_random import KIND_OIDS

PAGE = Path(__file__).parents[3] / "docs" / "types.md"
ENUM = CatalogType(Oid(70000), "public", "mood", "e")
NUMERIC = CatalogType(Oid(1700), "pg_catalog", "numeric", "b")
INT4 = CatalogType(Oid(23), "pg_catalog", "int4", "b")


@dataclass(frozen=True)
class Options:
    """Pins that the configuration itself would refuse."""

    numeric: dict[str, tuple[int, int]]
    as_text: tuple[str, ...] = ()


def builtin(kind: str) -> CatalogType:
    """The built-in type of a kind."""
    return CatalogType(Oid(KIND_OIDS[kind]), "pg_catalog", kind, "b")


def domain(base: CatalogType, typmod: int = -1) -> CatalogType:
    """A domain over it."""
    return CatalogType(Oid(80000), "public", "a domain", "d", base.oid, typmod, base.typtype, base.element)


def array_of(element: CatalogType) -> CatalogType:
    """Return its array type."""
    return CatalogType(Oid(int(element.oid) + 100000), element.schema, f"_{element.name}", "b", element=element)


@pytest.mark.parametrize("kind", sorted(set(KIND_OIDS) - {"numeric", "enum", "exact_text"}))
def test_a_typed_type_has_its_kind_also_below_a_domain(kind: str) -> None:
    """Text kinds too: a domain over varchar is a varchar."""
    assert resolve_kind(builtin(kind), -1)[0] == kind
    assert resolve_kind(domain(builtin(kind), 8), -1) == (kind, 8)


@pytest.mark.parametrize(("precision", "scale"), [(1, 0), (1, 1), (10, 2), (38, 0), (38, 38)])
def test_a_numeric_that_fits_is_a_decimal(precision: int, scale: int) -> None:
    """A domain over numeric takes the domain's modifier."""
    typmod = decimal_typmod(precision, scale)
    column = make_column("a", NUMERIC, typmod, attnum=1, identity=False)
    assert (arrow_type(column), spark_type(column)) == (
        pa.decimal128(precision, scale),
        f"decimal({precision},{scale})",
    )
    assert resolve_kind(domain(NUMERIC, typmod), -1) == ("numeric", typmod)


@pytest.mark.parametrize(("precision", "scale"), [(39, 0), (1000, 2), (3, 5), (3, -2), (38, -1)])
def test_a_numeric_that_does_not_fit_is_exact_text(precision: int, scale: int) -> None:
    """Beyond 38 digits, negative scales, scales beyond the precision."""
    typmod = decimal_typmod(precision, scale)
    assert precision_scale(typmod) == (precision, scale)
    assert not fits_decimal(typmod)
    assert resolve_kind(NUMERIC, typmod)[0] == "exact_text"
    assert resolve_kind(domain(NUMERIC, typmod), -1)[0] == "exact_text"


@pytest.mark.parametrize("kind", sorted(set(KIND_OIDS) - {"numeric", "enum", "exact_text"}))
def test_an_array_of_a_typed_type_has_its_kind_also_below_domains(kind: str) -> None:
    """The modifier is the elements': the column's, that of a domain over the array, or that of the elements' domain."""
    plain = array_of(builtin(kind))
    assert resolve_kind(plain, 9) == (f"{kind}[]", 9)
    assert resolve_kind(domain(plain, 8), -1) == (f"{kind}[]", 8)
    assert resolve_kind(array_of(domain(builtin(kind), 7)), -1) == (f"{kind}[]", 7)
    assert resolve_kind(domain(array_of(domain(builtin(kind), 7))), -1) == (f"{kind}[]", 7)
    column = make_column("a", plain, -1, attnum=1, identity=False)
    assert column.type_name == f"{kind}[]"
    assert arrow_type(column).value_type == KINDS[kind].arrow(-1)
    assert spark_type(column) == f"array<{KINDS[kind].spark(-1)}>"


def test_arrays_of_enums_and_of_domains_over_them_are_arrays_of_labels() -> None:
    """An enum or a domain over it is a label by itself, too."""
    assert resolve_kind(array_of(ENUM), -1)[0] == "enum[]"
    assert resolve_kind(array_of(domain(ENUM)), -1)[0] == "enum[]"
    assert resolve_kind(domain(ENUM), -1)[0] == "enum"


def test_an_array_of_numerics_is_what_its_elements_are() -> None:
    """The element has a modifier that fits a decimal, one that does not, none, or a pin."""
    assert resolve_kind(array_of(NUMERIC), decimal_typmod(10, 2)) == ("numeric[]", decimal_typmod(10, 2))
    assert resolve_kind(array_of(NUMERIC), decimal_typmod(3, 5))[0] == "exact_text"
    assert resolve_kind(array_of(NUMERIC), -1) == ("exact_text", -1)
    pins = TableConfig(numeric={"prices": (12, 3)})
    for bare in (array_of(NUMERIC), domain(array_of(NUMERIC)), array_of(domain(NUMERIC))):
        assert is_bare_numeric(bare, -1)
        assert resolve_kind(bare, -1, pins, "prices") == ("numeric[]", decimal_typmod(12, 3))
    assert not is_bare_numeric(array_of(NUMERIC), decimal_typmod(3, 5))


def test_a_bare_numeric_is_exact_text_unless_pinned() -> None:
    """The pin becomes the column's typmod, below a domain too."""
    pins = TableConfig(numeric={"price": (12, 3)})
    assert resolve_kind(NUMERIC, -1) == ("exact_text", -1)
    assert resolve_kind(NUMERIC, -1, pins, "other") == ("exact_text", -1)
    assert resolve_kind(NUMERIC, -1, pins, "price") == ("numeric", decimal_typmod(12, 3))
    assert resolve_kind(domain(NUMERIC), -1, pins, "price") == ("numeric", decimal_typmod(12, 3))


@pytest.mark.parametrize(
    ("catalog_type", "typmod", "pin"),
    [
        (INT4, -1, (10, 2)),
        (NUMERIC, decimal_typmod(10, 2), (10, 2)),
        (domain(NUMERIC, decimal_typmod(10, 2)), -1, (10, 2)),
        (NUMERIC, -1, (39, 2)),
        (NUMERIC, -1, (0, 0)),
        (NUMERIC, -1, (5, 6)),
        (NUMERIC, -1, (5, -1)),
    ],
)
def test_a_pin_that_can_not_be_is_refused(catalog_type: CatalogType, typmod: int, pin: tuple[int, int]) -> None:
    """Only a bare numeric can be pinned, and only to a decimal."""
    with pytest.raises(ValueError, match="pinned"):
        resolve_kind(catalog_type, typmod, Options({"a": pin}), "a")


def test_a_column_configured_as_text_is_exact_text() -> None:
    """The setting works for every type."""
    table = TableConfig(as_text=("a",))
    assert resolve_kind(INT4, -1, table, "a")[0] == "exact_text"
    assert resolve_kind(INT4, -1, table, "b")[0] == "int4"


@pytest.mark.parametrize(
    "catalog_type",
    [
        CatalogType(Oid(3802), "pg_catalog", "jsonb", "b"),
        array_of(CatalogType(Oid(3802), "pg_catalog", "jsonb", "b")),
        array_of(domain(array_of(INT4))),
        array_of(CatalogType(Oid(90001), "public", "pair", "c")),
        CatalogType(Oid(22), "pg_catalog", "int2vector", "b"),
        CatalogType(Oid(1083), "pg_catalog", "time", "b"),
        CatalogType(Oid(1186), "pg_catalog", "interval", "b"),
        CatalogType(Oid(18), "pg_catalog", "char", "b"),
        CatalogType(Oid(790), "pg_catalog", "money", "b"),
        CatalogType(Oid(90000), "public", "citext", "b"),
        CatalogType(Oid(90001), "public", "pair", "c"),
        CatalogType(Oid(3904), "pg_catalog", "int4range", "r"),
        CatalogType(Oid(4451), "pg_catalog", "int4multirange", "m"),
        CatalogType(Oid(23), "pg_catalog", "int4", "x"),
        domain(CatalogType(Oid(3802), "pg_catalog", "jsonb", "b")),
        domain(CatalogType(Oid(90001), "public", "pair", "c")),
    ],
    ids=lambda catalog_type: catalog_type.name,
)
def test_everything_else_is_exact_text(catalog_type: CatalogType) -> None:
    """Nothing is taken for a type that it is not known to be."""
    assert resolve_kind(catalog_type, -1)[0] == "exact_text"


def test_an_enum_is_its_label_and_a_forgotten_column_exact_text() -> None:
    """A column that the catalog no longer knows has attribute number 0."""
    assert resolve_kind(ENUM, -1)[0] == "enum"
    column = unknown_column("gone", Oid(23), -1, identity=False)
    assert (column.kind, column.attnum, arrow_type(column)) == ("exact_text", 0, pa.string())


def test_a_column_carries_its_types_name() -> None:
    """The name has its schema unless that is pg_catalog."""
    assert make_column("a", INT4, -1, attnum=3, identity=True) == Column("a", Oid(23), -1, "int4", "int4", 3, True)
    assert make_column("a", ENUM, -1, attnum=3, identity=True).type_name == "public.mood"


def test_a_kind_that_is_none_and_a_typmod_that_is_no_decimal_are_refused() -> None:
    """A damaged manifest must not become a type."""
    with pytest.raises(KeyError):
        arrow_type(Column("a", Oid(23), -1, "", "int5", 1, False))
    with pytest.raises(ValueError, match="no decimal"):
        arrow_type(Column("a", Oid(1700), -1, "", "numeric", 1, False))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_kind_says_of_itself_whether_values_overflow(kind: str) -> None:
    """The table in the manual is what the caster does and the lake looks for."""
    says = KINDS[kind].overflows != NOTHING
    assert says is (kind.endswith("[]") or KINDS[kind].beyond is not None)
    assert says is (kind not in exact_kinds.WHOLE_KINDS)


def test_the_page_is_the_table() -> None:
    """docs/types.md has one row per kind, with the same types and the same exact form."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| `")]
    example = decimal_typmod(10, 2)
    expected = [
        [
            f"`{kind.name}`",
            "; ".join(kind.pg_types),
            f"`{kind.spark_name}`",
            f"`{kind.arrow(example)}`".replace("10, 2", "p, s"),
            "yes" if kind.exact else "no",
            kind.exact_form,
            kind.overflows,
        ]
        for kind in KINDS.values()
    ]
    assert [[cell.strip(" |") for cell in row] for row in rows] == expected
