"""The one table of kinds: the lake's type for each PostgreSQL type, and all facts that follow from the type alone.

`forms_in_arrow.py` reads and writes the texts of each form, `spark_sql.py` has the longer of Spark's texts, and
`catalog_kinds.py` gives a column its kind. `docs/types.md` is this table for people, and a test keeps the two equal.

A value's *form* is a text that is equal in PostgreSQL, in Arrow and in Spark: proofs, bags and keys are made of it. It is
the text of PostgreSQL's output function, except for floats, which are their bits: Java's digits are not PostgreSQL's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from lakeproof.names import Oid
from lakeproof.schema import Column
from lakeproof.values import spark_sql

if TYPE_CHECKING:
    import pyarrow as pa

DECIMAL_PRECISION_MAX = 38
EXACT_TEXT = "exact_text"
ARRAY = "[]"  # at the end of an array's kind, after its elements' kind
NO_OID = Oid(0)
NOTHING = "nothing"


class Form(Enum):
    """The way in which Arrow reads and writes the texts of some kinds; the value is such a text."""

    TEXT = "a"
    BOOL = "t"
    WHOLE = "1"
    FLOAT = "1.5"
    DECIMAL = "1.50"
    OCTETS = "\\x00"
    DAY = "2000-01-01"
    CLOCK = "2000-01-01 00:00:00"
    INSTANT = "2000-01-01 00:00:00+00"


@dataclass(frozen=True, slots=True)
class LakeType:
    """A type of the lake's columns: its name in Spark's SQL, in Delta's log, and Arrow's function with its arguments.

    `bounded`: Delta keeps the least and the greatest value of each file.
    """

    spark: str
    in_log: str
    in_arrow: str
    bounded: bool = True

    def arrow(self) -> pa.DataType:
        """Return the type in Arrow, and so in Parquet."""
        return _arrow(*self.in_arrow.split())


@dataclass(frozen=True, slots=True)
class TypeKind:
    """One row of the table.

    `pg_types` are the PostgreSQL types it comes from, `arrow` and `spark` give the lake's type from the column's typmod,
    `spark_name` is the Spark type for people. `exact` is true if a key uses the value as it is (equal in Spark if and only
    if equal in its exact text). `exact_form` describes how PostgreSQL's text follows from the typed value, `overflows` the
    values that the lake's type does not hold. `oid` is the type's in every server, 0 if it has none. `fixed_size`: its
    values have a fixed, small size, so that PostgreSQL never stores them out of line (TOAST). An array's typmod is its
    elements', `form` too; `element` is None for any other kind.

    `fits` gives the pattern of the texts that the type holds, None if it holds every text; `beyond` is a pattern of all
    others that PostgreSQL prints, if there are any. It may have some that fit: then `unheld` gives the exact one. Patterns
    are RE2's and Java's.

    `spark_text` is Spark's SQL of the form of a value, from the value's SQL and the typmod. `source` is PostgreSQL's SQL of
    it, if `concat({x})` is not: {s} is a decimal's scale, {limit} the least number with too many digits. `casts_to_text`: a
    cast gives the same, at less cost. `source_octets` is the cheaper form by which a table with a key is proved,
    `source_element` the SQL for an element, and its condition.
    `quote` is put before and after an element in an array's text; None if that depends on the text.
    """

    name: str
    pg_types: tuple[str, ...]
    arrow: Callable[[int], pa.DataType]
    spark: Callable[[int], str]
    spark_name: str
    form: Form
    exact_form: str
    exact: bool = True
    overflows: str = NOTHING
    oid: Oid = NO_OID
    fixed_size: bool = False
    element: TypeKind | None = None
    fits: Callable[[int], str] | None = None
    beyond: str | None = None
    unheld: Callable[[int], str] | None = None
    spark_text: Callable[[str, int], str] = spark_sql.itself
    casts_to_text: bool = False
    source: str | None = None
    source_octets: str | None = None
    source_element: tuple[str, str] | None = None
    quote: str | None = ""

    @property
    def holds_every_value(self) -> bool:
        """True if the lake's type holds every value of the PostgreSQL type, so that `_lp_text` never has one of it."""
        return self.overflows == NOTHING

    @property
    def is_string(self) -> bool:
        """True if the lake keeps the value as a string."""
        return self.spark_name == "string"


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


def decimal_size(typmod: int) -> tuple[int, int]:
    """Return the precision and scale of a column of the kind `numeric`."""
    pair = precision_scale(typmod)
    if pair is None or not fits_decimal(typmod):
        raise ValueError(f"typmod {typmod} is no decimal of the lake: such a numeric is {EXACT_TEXT}")
    return pair


def _arrow(name: str, *arguments: Any) -> Any:
    """Return what Arrow's function of this name returns. Importing Arrow takes 0.2 s, and most who import this need none."""
    import pyarrow as pa

    return getattr(pa, name)(*arguments)


LAKE_TYPES: Mapping[str, LakeType] = MappingProxyType(
    {
        lake_type.spark: lake_type
        for lake_type in (
            LakeType("boolean", "boolean", "bool_", bounded=False),
            LakeType("tinyint", "byte", "int8"),
            LakeType("smallint", "short", "int16"),
            LakeType("int", "integer", "int32"),
            LakeType("bigint", "long", "int64"),
            LakeType("float", "float", "float32"),
            LakeType("double", "double", "float64"),
            LakeType("string", "string", "string"),
            LakeType("binary", "binary", "binary", bounded=False),
            LakeType("date", "date", "date32"),
            LakeType("timestamp", "timestamp", "timestamp us UTC"),
            LakeType("timestamp_ntz", "timestamp_ntz", "timestamp us"),
        )
    }
)

# 0001 to 9999: RE2 has no look-ahead that could exclude 0000 from [0-9]{4}.
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_MONTH_DAY = "-[0-9]{2}-[0-9]{2}"
_DAY = _YEAR + _MONTH_DAY
_FAR_DAY = "[1-9][0-9]{4,6}" + _MONTH_DAY
_HOURS = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_INFINITY = "-?infinity"
_FLOAT = r"NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?(e[+-][0-9]{2,3})?"

_BITS = "{} hexadecimal digits of the bits, every NaN `{}`"
_CLOCK = "`YYYY-MM-DD HH:MM:SS`, then `.` and the microseconds without trailing zeros if they are not 0"
_INSTANT = "as timestamp, in UTC, then `+00`"
_FAR = "`infinity`, `-infinity`, years BC, years after 9999"
_NO_DECIMAL = "`NaN`, `Infinity`, `-Infinity`; in a pinned column also more digits than it has"
# Each value has s digits after its point in the lake; those of a numeric(p, s) have them anyway, which is cheap to see.
_ROUNDED = "round({x}, {s})"
_HAS_DECIMAL = "min_scale({x}) <= {s} AND abs({x}) < {limit}::numeric"


def _decimal_pattern(typmod: int) -> str:
    """Return the pattern of decimal(p,s): at most p - s digits before the point, only zeros after s decimals."""
    precision, scale = decimal_size(typmod)
    before = rf"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    after = rf"(\.[0-9]{{1,{scale}}}0*)?" if scale else r"(\.0+)?"
    return f"-?{before}{after}"


def _no_decimal_pattern(typmod: int) -> str:
    """Return the pattern of all other numbers: more digits before the point than decimal(p,s) has, or another after s."""
    precision, scale = decimal_size(typmod)
    return (
        rf"NaN|-?Infinity|-?0*[1-9][0-9]{{{precision - scale},}}(?:\.[0-9]+)?"
        rf"|-?[0-9]+\.[0-9]{{{scale}}}[0-9]*[1-9][0-9]*"
    )


def _kind(  # noqa: PLR0917  a row of the table below, in the order of its columns
    name: str, oid: int, pg_type: str, spark: str, form: Form, fits: str, **facts: Any
) -> TypeKind:
    lake_type = LAKE_TYPES[spark]
    return TypeKind(
        name,
        (pg_type,),
        lambda _typmod: lake_type.arrow(),
        lambda _typmod: spark,
        spark,
        form,
        oid=Oid(oid),
        fits=lambda _typmod: fits,
        fixed_size=facts.pop("fixed_size", True),
        spark_text=facts.pop("spark_text", spark_sql.as_string),
        **facts,
    )


def _text(name: str, oid: int, pg_type: str, exact_form: str = "the string itself", **facts: Any) -> TypeKind:
    kind = partial(TypeKind, name, (pg_type,), lambda _: _arrow("string"), lambda _: "string", "string", Form.TEXT)
    return kind(exact_form, oid=Oid(oid), quote=None, **facts)


def _whole(name: str, oid: int, pg_type: str, spark: str, digits: int) -> TypeKind:
    fits = f"0|-?[1-9][0-9]{{0,{digits - 1}}}"
    return _kind(name, oid, pg_type, spark, Form.WHOLE, fits, exact_form="decimal digits")


def _float(name: str, oid: int, pg_type: str, spark: str, nan: str) -> TypeKind:
    bits = f"CASE WHEN {{x}} = 'NaN' THEN '{nan}' ELSE encode({name}send({{x}}), 'hex') END"
    return _kind(
        *(name, oid, pg_type, spark, Form.FLOAT, _FLOAT),
        exact_form=_BITS.format(len(nan), nan),
        exact=False,
        spark_text=partial(spark_sql.float_text, len(nan)),
        source=bits,
        source_element=(bits, ""),
    )


def _time(  # noqa: PLR0917  as for `_kind`
    name: str, oid: int, pg_type: str, spark: str, form: Form, zone: str, **facts: Any
) -> TypeKind:
    """Return a kind of days and times; those of other years are texts in the lake, whatever PostgreSQL's octets are."""
    first, after = (f"'{year}-01-01 00:00:00{zone}'::{name}" for year in ("0001", "10000"))
    octets = (
        f"CASE WHEN {{x}} >= {first} AND {{x}} < {after} THEN encode({name}_send({{x}}), 'hex') ELSE concat({{x}}) END"
    )
    end = _HOURS + zone.replace("+", r"\+")
    return _kind(
        *(name, oid, pg_type, spark, form, _DAY + end),
        exact=False,
        overflows=_FAR,
        beyond=f"{_DAY}{end} BC|{_FAR_DAY}{end}|{_INFINITY}",
        source_octets=octets,
        quote='"',  # there is a blank in each
        **facts,
    )


_SCALARS = (
    _kind("bool", 16, "boolean", "boolean", Form.BOOL, "[tf]", exact_form="`t` or `f`", spark_text=spark_sql.bool_text),
    _whole("int2", 21, "smallint", "smallint", 5),
    _whole("int4", 23, "integer", "int", 10),
    _whole("int8", 20, "bigint", "bigint", 19),
    _float("float4", 700, "real", "float", "7fc00000"),
    _float("float8", 701, "double precision", "double", "7ff8000000000000"),
    TypeKind(
        "numeric",
        ("numeric(p,s), p ≤ 38, 0 ≤ s ≤ p", "numeric pinned by configuration"),
        lambda typmod: _arrow("decimal128", *decimal_size(typmod)),
        lambda typmod: "decimal({},{})".format(*decimal_size(typmod)),
        "decimal(p,s)",
        Form.DECIMAL,
        "digits with exactly s decimals",
        exact=False,
        overflows=_NO_DECIMAL,
        oid=Oid(1700),
        fits=_decimal_pattern,
        beyond=r"-?[0-9]+(\.[0-9]+)?|NaN|-?Infinity",
        unheld=_no_decimal_pattern,
        spark_text=lambda x, typmod: spark_sql.decimal_text(x, decimal_size(typmod)[1]),
        source=f"concat(CASE WHEN scale({{x}}) = {{s}} THEN {{x}} WHEN {_HAS_DECIMAL} THEN {_ROUNDED} ELSE {{x}} END)",
        source_element=(_ROUNDED, _HAS_DECIMAL),
    ),
    _text("text", 25, "text", casts_to_text=True),
    _text("bpchar", 1042, "char(n)", "the string itself, with its blanks"),
    _text("varchar", 1043, "varchar(n)", casts_to_text=True),
    _text("name", 19, "name", fixed_size=True),
    _text("uuid", 2950, "uuid", "the string itself, lower case", fixed_size=True),
    _kind(
        *("bytea", 17, "bytea", "binary", Form.OCTETS, r"\\x(?:[0-9a-f]{2})*"),
        exact_form="`\\x` and lower-case hexadecimal digits",
        fixed_size=False,
        spark_text=spark_sql.bytes_text,
        quote='"\\',
    ),
    _kind(
        *("date", 1082, "date", "date", Form.DAY, _DAY),
        exact_form="`YYYY-MM-DD`",
        exact=False,
        overflows=_FAR,
        beyond=f"{_DAY} BC|{_FAR_DAY}|{_INFINITY}",
    ),
    _time("timestamp", 1114, "timestamp", "timestamp_ntz", Form.CLOCK, "", exact_form=_CLOCK),
    _time(
        *("timestamptz", 1184, "timestamp with time zone", "timestamp", Form.INSTANT, "+00"),
        exact_form=_INSTANT,
        spark_text=spark_sql.timestamptz_text,
    ),
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
        kind.form,
        "array output, each element " + ("by its bits" if kind.form is Form.FLOAT else "as above"),
        exact=False,
        overflows=f"anything but one dimension from 1{beyond}",
        element=kind,
        spark_text=lambda x, typmod: spark_sql.array_text(x, kind.spark_text("e", typmod), kind.quote),
        source=None if kind.source_element is None else _array_source(*kind.source_element),
    )


def _array_source(each: str, condition: str) -> str:
    """Return PostgreSQL's SQL of the array of the elements' own forms if the lake has an array; else it is the text."""
    elements = "FROM unnest({x}) WITH ORDINALITY AS lp (e, place)"
    is_list = "array_ndims({x}) = 1 AND array_lower({x}, 1) = 1"
    if condition:
        is_list += (
            f" AND (SELECT bool_and({{x}} IS NULL OR coalesce({condition}, false)) ".replace("{x}", "lp.e")
            + elements
            + ")"
        )
    each = each.replace("{x}", "lp.e")
    return f"CASE WHEN {is_list} THEN concat((SELECT array_agg({each} ORDER BY lp.place) {elements})) ELSE concat({{x}}) END"


KINDS: Mapping[str, TypeKind] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            *_SCALARS,
            *map(_array_of, _SCALARS),
            _text(EXACT_TEXT, 0, "everything else", "the string itself: PostgreSQL's output"),
        )
    }
)


def refuse_form(form: NoReturn) -> NoReturn:
    """End a `match` over all forms: mypy refuses it if one is missing there."""
    raise ValueError(f"{form} is no form of this table")


def kind_of(column: Column) -> TypeKind:
    """Return the column's row of the table; raises KeyError for an unknown kind."""
    return KINDS[column.kind]


def arrow_type(column: Column) -> pa.DataType:
    """Return the Arrow type of the column in landing and snapshot files; raises KeyError for an unknown kind."""
    return KINDS[column.kind].arrow(column.typmod)


def spark_type(column: Column) -> str:
    """Return the name of the column's type in Spark SQL; raises KeyError for an unknown kind."""
    return KINDS[column.kind].spark(column.typmod)
