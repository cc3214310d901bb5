"""The one table of kinds: the lake's type for each PostgreSQL type, and the facts that follow from the type alone.

`cast.py` turns texts into these types. `docs/types.md` is this table for people, and a test keeps the two equal.

Invariant nothing-guessed: a type that is not in the table, or whose modifier the lake's type can't carry, is `exact_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from lakeproof.names import Oid
from lakeproof.schema import Column

if TYPE_CHECKING:
    import pyarrow as pa

DECIMAL_PRECISION_MAX = 38
EXACT_TEXT = "exact_text"
ARRAY = "[]"  # at the end of an array's kind, after its elements' kind
NO_OID = Oid(0)
NOTHING = "nothing"


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


@dataclass(frozen=True, slots=True)
class TypeKind:
    """One row of the table.

    `pg_types` are the PostgreSQL types it comes from, `arrow` and `spark` give the lake's type from the column's typmod,
    `spark_name` is the Spark type for people. `exact` is true if a key uses the value as it is (equal in Spark if and only
    if equal in its exact text). `exact_form` describes how PostgreSQL's text follows from the typed value, `overflows` the
    values that the lake's type does not hold. `oid` is the type's in every server, 0 if it has none. `fixed_size`: its
    values have a fixed, small size, so that PostgreSQL never stores them out of line (TOAST). An array's typmod is its
    elements'.
    """

    name: str
    pg_types: tuple[str, ...]
    arrow: Callable[[int], pa.DataType]
    spark: Callable[[int], str]
    spark_name: str
    exact: bool
    exact_form: str
    overflows: str = NOTHING
    oid: Oid = NO_OID
    fixed_size: bool = False

    @property
    def holds_every_value(self) -> bool:
        """True if the lake's type holds every value of the PostgreSQL type, so that `_lp_text` never has one of it."""
        return self.overflows == NOTHING

    @property
    def is_string(self) -> bool:
        """True if the lake keeps the value as a string."""
        return self.spark_name == "string"


def element_kind(kind: str) -> str | None:
    """Return the kind of an array kind's elements, None for a kind that is no array."""
    return kind.removesuffix(ARRAY) if kind.endswith(ARRAY) else None


def decimal_typmod(precision: int, scale: int) -> int:
    """Return the typmod of `numeric(precision, scale)`."""
    return ((precision << 16) | (scale & 0x7FF)) + 4


def precision_scale(typmod: int) -> tuple[int, int] | None:
    """Invert `decimal_typmod`; None for a bare numeric (-1). A scale may be negative or exceed the precision."""
    if typmod < 4:
        return None
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400


def fits_decimal(typmod: int) -> bool:
    """True if every finite value of `numeric` with this typmod fits a decimal of the lake."""
    pair = precision_scale(typmod)
    if pair is None:
        return False
    precision, scale = pair
    return 1 <= precision <= DECIMAL_PRECISION_MAX and 0 <= scale <= precision


def _decimal_pair(typmod: int) -> tuple[int, int]:
    pair = precision_scale(typmod)
    if pair is None or not fits_decimal(typmod):
        raise ValueError(f"typmod {typmod} is no decimal of the lake: such a numeric is {EXACT_TEXT}")
    return pair


_BITS = "{} hexadecimal digits of the bits, every NaN `{}`"
_CLOCK = "`YYYY-MM-DD HH:MM:SS`, then `.` and the microseconds without trailing zeros if they are not 0"
_INSTANT = "as timestamp, in UTC, then `+00`"
_FAR = "`infinity`, `-infinity`, years BC, years after 9999"
_NO_DECIMAL = "`NaN`, `Infinity`, `-Infinity`; in a pinned column also more digits than it has"


def _arrow(name: str, *arguments: Any) -> Any:
    """Return what Arrow's function of this name returns. Importing Arrow takes 0.2 s, and most who import this need none."""
    import pyarrow as pa

    return getattr(pa, name)(*arguments)


def _kind(  # noqa: PLR0917  a row of the table below, in the order of its columns
    name: str,
    oid: int,
    pg_type: str,
    arrow: str,
    spark: str,
    exact_form: str,
    **facts: Any,
) -> TypeKind:
    return TypeKind(
        name,
        (pg_type,),
        lambda _typmod: _arrow(*arrow.split()),
        lambda _typmod: spark,
        spark,
        exact=facts.pop("exact", True),
        exact_form=exact_form,
        oid=Oid(oid),
        **facts,
    )


def _text(
    name: str, oid: int, pg_type: str, exact_form: str = "the string itself", *, fixed_size: bool = False
) -> TypeKind:
    return _kind(name, oid, pg_type, "string", "string", exact_form, fixed_size=fixed_size)


# PostgreSQL never stores a value of these types out of line.
_FIXED = {"fixed_size": True}
_TIME = {"exact": False, "overflows": _FAR} | _FIXED
_FLOAT = {"exact": False} | _FIXED

_SCALARS = (
    _kind("bool", 16, "boolean", "bool_", "boolean", "`t` or `f`", **_FIXED),
    _kind("int2", 21, "smallint", "int16", "smallint", "decimal digits", **_FIXED),
    _kind("int4", 23, "integer", "int32", "int", "decimal digits", **_FIXED),
    _kind("int8", 20, "bigint", "int64", "bigint", "decimal digits", **_FIXED),
    _kind("float4", 700, "real", "float32", "float", _BITS.format(8, "7fc00000"), **_FLOAT),
    _kind("float8", 701, "double precision", "float64", "double", _BITS.format(16, "7ff8000000000000"), **_FLOAT),
    TypeKind(
        "numeric",
        ("numeric(p,s), p ≤ 38, 0 ≤ s ≤ p", "numeric pinned by configuration"),
        lambda typmod: _arrow("decimal128", *_decimal_pair(typmod)),
        lambda typmod: "decimal({},{})".format(*_decimal_pair(typmod)),
        "decimal(p,s)",
        exact=False,
        exact_form="digits with exactly s decimals",
        overflows=_NO_DECIMAL,
        oid=Oid(1700),
    ),
    _text("text", 25, "text"),
    _text("bpchar", 1042, "char(n)", "the string itself, with its blanks"),
    _text("varchar", 1043, "varchar(n)"),
    _text("name", 19, "name", fixed_size=True),
    _text("uuid", 2950, "uuid", "the string itself, lower case", fixed_size=True),
    _kind("bytea", 17, "bytea", "binary", "binary", "`\\x` and lower-case hexadecimal digits"),
    _kind("date", 1082, "date", "date32", "date", "`YYYY-MM-DD`", **_TIME),
    _kind("timestamp", 1114, "timestamp", "timestamp us", "timestamp_ntz", _CLOCK, **_TIME),
    _kind("timestamptz", 1184, "timestamp with time zone", "timestamp us UTC", "timestamp", _INSTANT, **_TIME),
    _text("enum", 0, "enum", "the label", fixed_size=True),
)


def _array_of(kind: TypeKind) -> TypeKind:
    """Return the kind of one-dimensional arrays of this kind."""
    beyond = "" if kind.overflows == NOTHING else f", an element that overflows as `{kind.name}` does"
    return TypeKind(
        kind.name + ARRAY,
        tuple(f"array of {pg_type}" for pg_type in kind.pg_types),
        lambda typmod: _arrow("list_", _arrow("field", "element", kind.arrow(typmod))),
        lambda typmod: f"array<{kind.spark(typmod)}>",
        f"array<{kind.spark_name}>",
        exact=False,
        exact_form="array output, each element " + ("by its bits" if kind.name.startswith("float") else "as above"),
        overflows=f"anything but one dimension from 1{beyond}",
    )


_ALL = (
    *_SCALARS,
    *map(_array_of, _SCALARS),
    _text(EXACT_TEXT, 0, "everything else", "the string itself: PostgreSQL's output"),
)

KINDS: Mapping[str, TypeKind] = MappingProxyType({kind.name: kind for kind in _ALL})

_BY_OID: Mapping[int, TypeKind] = MappingProxyType({kind.oid: kind for kind in _SCALARS if kind.oid != NO_OID})


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
    kind = _BY_OID[oid].name if letter == "b" and oid in _BY_OID else EXACT_TEXT
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


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of the column in landing and snapshot files; raises KeyError for an unknown kind."""
    return KINDS[column.kind].arrow(column.typmod)


def spark_type(column: Column) -> str:
    """Return the name of the column's type in Spark SQL; raises KeyError for an unknown kind."""
    return KINDS[column.kind].spark(column.typmod)
