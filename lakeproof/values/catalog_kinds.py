"""Which kind a column of the catalog gets, by its type and the configuration.

Invariant nothing-guessed: a type that is not in the table, or whose modifier the lake's type can't carry, is `exact_text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from lakeproof.names import Oid
from lakeproof.schema import Column
from lakeproof.values.types import (
    ARRAY,
    DECIMAL_PRECISION_MAX,
    EXACT_TEXT,
    KINDS,
    NO_OID,
    decimal_typmod,
    fits_decimal,
)

_BY_OID: Mapping[int, str] = {int(kind.oid): kind.name for kind in KINDS.values() if kind.oid != NO_OID}


@dataclass(frozen=True, slots=True)
class CatalogType:
    """A row of `pg_type` as the catalog has it.

    `typtype` is the catalog's letter (`b` base, `c` composite, `d` domain, `e` enum, `m` multirange, `p` pseudo, `r` range).
    For a domain `base_oid` and `base_typtype` are of the type below *all* its domains and `base_typmod` is the nearest
    modifier on the way there (-1 if there is none); for other types they are 0, empty and -1. `element` is the type of an
    array's elements (also of an array below domains), None for any other type.
    """

    oid: Oid
    schema: str
    name: str
    typtype: str
    base_oid: Oid = NO_OID
    base_typmod: int = -1
    base_typtype: str = ""
    element: CatalogType | None = None


class TableOptions(Protocol):
    """A person's choices about a table's types; `lakeproof.config.model.TableConfig` has them."""

    @property
    def numeric(self) -> Mapping[str, tuple[int, int]]:
        """Bare numeric columns pinned to (precision, scale)."""

    @property
    def as_text(self) -> tuple[str, ...]:
        """Columns kept as PostgreSQL's exact text."""


def resolve_kind(
    catalog_type: CatalogType, typmod: int, table: TableOptions | None = None, column: str = ""
) -> tuple[str, int]:
    """Return the kind of `column` and the typmod that its `Column` carries.

    The typmod is the column's own, a domain's base typmod, or that of the configured pin. Raises ValueError if the
    configuration pins a column that is no bare numeric, or to a pair that is no decimal of the lake.
    """
    kind, own, bare = _natural(catalog_type, typmod)
    pin = table.numeric.get(column) if table is not None else None
    if pin is not None:
        if not bare:
            raise ValueError(f"column {column} is pinned to decimal{pin}, but is no numeric without precision")
        if not (1 <= pin[0] <= DECIMAL_PRECISION_MAX and 0 <= pin[1] <= pin[0]):
            raise ValueError(
                f"column {column} is pinned to decimal{pin}: it takes 1 ≤ precision ≤ 38, 0 ≤ scale ≤ precision"
            )
        kind, own = bare, decimal_typmod(*pin)
    if table is not None and column in table.as_text:
        return EXACT_TEXT, own
    return kind, own


def is_bare_numeric(catalog_type: CatalogType, typmod: int) -> bool:
    """True if the column is a numeric without precision, or an array of that: the configuration can pin it."""
    return bool(_natural(catalog_type, typmod)[2])


def _natural(catalog_type: CatalogType, typmod: int) -> tuple[str, int, str]:
    """Return kind and typmod without configuration, and the kind that a pin would give (empty if it can't be pinned)."""
    own = catalog_type.base_typmod if catalog_type.typtype == "d" else typmod
    element = catalog_type.element
    if element is None:
        kind, bare = _scalar(catalog_type, own)
        return kind, own, bare
    # A domain's own modifier takes the place of the column's; an array's belongs to its elements.
    own = element.base_typmod if element.typtype == "d" else own
    kind, bare = _scalar(element, own)
    array = EXACT_TEXT if kind == EXACT_TEXT else kind + ARRAY
    return array, own, bare and bare + ARRAY


def _scalar(catalog_type: CatalogType, typmod: int) -> tuple[str, str]:
    """Return the kind of a type that is no array, and the kind that a pin would give."""
    domain = catalog_type.typtype == "d"
    oid = catalog_type.base_oid if domain else catalog_type.oid
    letter = catalog_type.base_typtype if domain else catalog_type.typtype
    if letter == "e":
        return "enum", ""
    kind = _BY_OID.get(oid, EXACT_TEXT) if letter == "b" else EXACT_TEXT
    if kind == "numeric" and not fits_decimal(typmod):
        return EXACT_TEXT, kind if typmod == -1 else ""
    return kind, ""


def make_column(
    name: str,
    catalog_type: CatalogType,
    typmod: int,
    *,
    attnum: int,
    identity: bool,
    table: TableOptions | None = None,
) -> Column:
    """Return the `Column` of a catalog's column; raises ValueError as `resolve_kind` does."""
    kind, own = resolve_kind(catalog_type, typmod, table, name)
    return Column(name, catalog_type.oid, own, type_name(catalog_type), kind, attnum, identity)


def unknown_column(name: str, type_oid: Oid, typmod: int, *, identity: bool) -> Column:
    """Return the `Column` of a column that is in the stream but no longer in the catalog: attnum 0, exact text."""
    return Column(name, type_oid, typmod, "", EXACT_TEXT, 0, identity)


def type_name(catalog_type: CatalogType) -> str:
    """Return the type's name, with its schema unless that is `pg_catalog`; an array's is its element's with `[]`."""
    if catalog_type.element is not None and catalog_type.typtype == "b":
        return type_name(catalog_type.element) + ARRAY
    return catalog_type.name if catalog_type.schema == "pg_catalog" else f"{catalog_type.schema}.{catalog_type.name}"
