"""The exact form of a row's values as Spark expressions: digests of bags, corrections and proofs are computed from it.

The same forms in PostgreSQL's SQL are in `lakeproof.proof.source_form`; using a digest belongs to the callers.

One text per value, equal on both sides (`FORMAT.md`, last section), framed so that the concatenation of a row's values can
be read back in one way only: NULL is `~`, any other value `<octets>:<text>`. In a row, a value whose kind never has an empty
text or a `|` in its text is ended by `|` instead, and NULL is `|` alone: counting octets costs PostgreSQL as much as all the
rest, since it computes each text twice. Everything here is SQL text over public, deterministic functions: it can be used in
a join, an aggregate or a MERGE, and does not depend on the session's time zone or ANSI mode.

Floats are represented by their bits, because Java's decimal digits are not PostgreSQL's. Spark has no function from a float
to its bits; `format_string('%a', x)` gives Java's hexadecimal float, which contains the bits, at six times the cost of a
plain cast to text. `lakeproof.proof.jvm_functions` has a cheaper way with internal names and without SQL text, which proofs
use; `reflect` counts as non-deterministic and is refused in aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeproof.errors import ConfigError, InvariantError
from lakeproof.hidden_columns import TEXT
from lakeproof.lake.columns import quoted
from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import beside_patterns
from lakeproof.values.exact_kinds import END, NULL_FORM, STRING_KINDS, WHOLE_KINDS, is_ended, key_columns
from lakeproof.values.types import element_kind, precision_scale

# A text that contains one of these is quoted in an array's text, with backslashes.
_QUOTED_FOR = r'[{}",\\ \t\n\x0B\f\r]'
_ESCAPED, _ESCAPE = r'(["\\])', r"\\$1"
# An array of one dimension, counted from 1: the lake has it as an array if the element type holds each element.
_PLAIN_ARRAY = r"\A\{[^{]"
_PLAIN_SCALE_MAX = 6  # Java writes a small BigDecimal of a larger scale as 0E-7


def exact_form(column: Column, name: str, text_column: str | None = TEXT) -> SparkColumn:
    """Return the framed exact form of the value of `column` in the Spark column `name`.

    `text_column` names the row's `_lp_text`; None if the rows have none.
    """
    return F.expr(exact_sql(column, name, text_column))


def exact_sql(column: Column, name: str, text_column: str | None = TEXT) -> str:
    """Return the same as Spark SQL text.

    A hidden text counts if the column is null and its type does not hold the value; any other hidden text contradicts what
    readers see, and gives a form that no value of the source has.
    """
    return framed(_text_sql(column, name, text_column))


def exact_text(column: Column, name: str, text_column: str | None = TEXT) -> SparkColumn:
    """Return the exact text alone, not framed; null for NULL."""
    return F.expr(_text_sql(column, name, text_column))


def _text_sql(column: Column, name: str, text_column: str | None) -> str:
    text = _text_of_kind(column, quoted(name))
    beside = _beside(column, text_column)
    if beside is None:
        return text
    return (
        f"case when {beside.none} then {text} when {text} is null and {beside.proper} then {beside.text}"
        f" else concat('{NULL_FORM}', coalesce({text}, ''), '{NULL_FORM}', {beside.text}) end"
    )


@dataclass(frozen=True, slots=True)
class _Beside:
    """SQL: a value's hidden text; the condition that there is none; the condition that the type can't hold such a value."""

    text: str
    none: str
    proper: str


def _beside(column: Column, text_column: str | None) -> _Beside | None:
    """Return the hidden text of the column's value, None if the type holds all values.

    Our writers never put a text beside a value, or in place of a value that readers should see.
    """
    if text_column is None or column.attnum <= 0 or column.kind in WHOLE_KINDS:
        return None
    hidden = f"get_json_object({quoted(text_column)}, '$.{column.attnum}')"
    # Few rows have any hidden text.
    none = f"({quoted(text_column)} is null or {hidden} is null)"
    patterns = beside_patterns(column)
    proper = "true"
    if element_kind(column.kind) in WHOLE_KINDS:
        proper = f"not ({hidden} rlike r'{_PLAIN_ARRAY}')"
    elif patterns is not None:
        proper = f"({hidden} rlike r'{patterns[0]}' and not ({hidden} rlike r'{patterns[1]}'))"
    return _Beside(hidden, none, proper)


def ended_form(
    column: Column, name: str, text_column: str | None = TEXT, typed: SparkColumn | None = None
) -> SparkColumn:
    """`<text>|`, NULL as `|`; `typed` is another text of the typed value than the kind's own.

    A hidden text that the kind can't have does not look like another row's values.
    """
    text = F.expr(_text_of_kind(column, quoted(name))) if typed is None else typed
    beside = _beside(column, text_column)
    if beside is not None:
        hidden = F.expr(f"translate({beside.text}, '{END}', '{NULL_FORM}')")
        wrong = F.concat(F.lit(NULL_FORM), F.coalesce(text, F.lit("")), F.lit(NULL_FORM), hidden)
        text = F.when(F.expr(beside.none), text).when(text.isNull() & F.expr(beside.proper), hidden).otherwise(wrong)
    return F.concat(F.coalesce(text, F.lit("")), F.lit(END))


def typed_text(kind: str, name: str) -> str:
    """The SQL of the exact text of a typed value of a kind without parameters, in the Spark column `name`."""
    return _BY_KIND[kind](quoted(name))


def framed(text: str) -> str:
    """The SQL of `<octets>:<text>` or `~` around the SQL of a text."""
    return f"coalesce(concat(octet_length({text}), ':', {text}), '{NULL_FORM}')"


def row_forms(
    version: SchemaVersion, names: Sequence[str] | None = None, text_column: str | None = TEXT
) -> list[SparkColumn]:
    """The exact forms of all columns of `version`, in its order, framed as in a row.

    `names` are the Spark columns that hold them (`c0`, `c1`, … in the landing); the columns' own names by default.
    """
    spark_names = [c.name for c in version.columns] if names is None else list(names)
    return [
        ended_form(c, n, text_column) if is_ended(c) else exact_form(c, n, text_column)
        for c, n in zip(version.columns, spark_names, strict=True)
    ]


def row_digest(forms: Sequence[SparkColumn]) -> SparkColumn:
    """The MD5 of the concatenated forms, 32 hexadecimal digits; never null."""
    return F.md5(F.concat(*forms) if forms else F.lit(""))


def digest_bits(digest: SparkColumn) -> SparkColumn:
    """The first 60 bits of a digest as a long; a long has no room for the sum of nine of them."""
    return F.conv(F.substring(digest, 1, 15), 16, 10).cast("long")


def key_text(version: SchemaVersion, names: Sequence[str] | None = None, text_column: str | None = TEXT) -> SparkColumn:
    """The framed exact text of the key's columns, in the order of the key; `names` as for `row_forms`.

    Raises InvariantError for a bag, which has no key.
    """
    if version.is_bag:
        raise InvariantError(str(version.table), "has no key to make a text of", "use the row's digest")
    spark_names = [c.name for c in version.columns] if names is None else list(names)
    spark_name = dict(zip((c.name for c in version.columns), spark_names, strict=True))
    return F.concat(*(exact_form(c, spark_name[c.name], text_column) for c in key_columns(version)))


def exact_form_of_type(data_type: T.DataType, name: str) -> SparkColumn:
    """The framed exact form of a Spark value by its own type: for views, whose columns have no PostgreSQL type.

    Arrays and structs are represented by their elements, maps by their sorted entries. Raises ConfigError for a type
    that has no exact form (variant, intervals, user-defined types).
    """
    return F.expr(framed(_text_of_type(data_type, quoted(name), name, 0)))


def _text_of_kind(column: Column, x: str) -> str:
    """The SQL of PostgreSQL's output text of the value `x`, by kind; NULL for NULL."""
    of = element_kind(column.kind)
    if of is not None:
        each = f"coalesce({_element_text(replace(column, kind=of), 'e')}, 'NULL')"
        return f"concat('{{', array_join(transform({x}, e -> {each}), ','), '}}')"
    kind = column.kind
    if kind in STRING_KINDS:
        return x
    if kind in ("int2", "int4", "int8"):
        return f"cast({x} as string)"
    if kind == "numeric":
        size = precision_scale(column.typmod)
        return x if size is None else _decimal_text(x, size[1])
    make = _BY_KIND.get(kind)
    if make is None:
        raise InvariantError(f"column {column.name}", f"the kind {kind} has no exact form", "report this")
    return make(x)


def _element_text(column: Column, x: str) -> str:
    """Return the SQL of an element's text within its array's text: quoted as PostgreSQL quotes it; NULL for NULL."""
    text = _text_of_kind(column, x)
    if column.kind in ("timestamp", "timestamptz"):  # there is a blank in each
        return f"concat('\"', {text}, '\"')"
    if column.kind == "bytea":
        return f"concat('\"\\\\', {text}, '\"')"
    if column.kind not in STRING_KINDS:
        return text
    escaped = f"regexp_replace({x}, r'{_ESCAPED}', r'{_ESCAPE}')"
    quoted_text = f"concat('\"', {escaped}, '\"')"
    needed = f"{x} = '' or upper({x}) = 'NULL' or {x} rlike r'{_QUOTED_FOR}'"
    return f"if({needed}, {quoted_text}, {x})"


def _text_of_type(data_type: T.DataType, x: str, name: str, depth: int) -> str:
    """The SQL of an injective text of the value `x`, by Spark type; `depth` keeps the lambdas' variables apart."""
    if isinstance(data_type, T.StringType):
        return x
    if isinstance(data_type, (T.ByteType, T.ShortType, T.IntegerType, T.LongType)):
        return f"cast({x} as string)"
    if isinstance(data_type, T.DecimalType):
        return _decimal_text(x, data_type.scale)
    for cls, make in _BY_TYPE:
        if isinstance(data_type, cls):
            return make(x)
    var = f"e{depth}"
    if isinstance(data_type, T.ArrayType):
        each = framed(_text_of_type(data_type.elementType, var, name, depth + 1))
        return f"array_join(transform({x}, {var} -> {each}), '')"
    if isinstance(data_type, T.StructType):
        fields = ", ".join(
            framed(_text_of_type(f.dataType, f"{x}.{quoted(f.name)}", name, depth)) for f in data_type.fields
        )
        return f"if({x} is null, null, concat({fields}))"
    if isinstance(data_type, T.MapType):
        key = framed(_text_of_type(data_type.keyType, f"{var}.key", name, depth + 1))
        value = framed(_text_of_type(data_type.valueType, f"{var}.value", name, depth + 1))
        return f"array_join(array_sort(transform(map_entries({x}), {var} -> {framed(f'concat({key}, {value})')})), '')"
    raise ConfigError(
        f"column {name}", f"its type {data_type.simpleString()} has no exact form", "cast it to text in the view's SQL"
    )


def _bool_text(x: str) -> str:
    return f"if({x}, 't', if({x} is null, null, 'f'))"


def _bytes_text(x: str) -> str:
    return f"concat('\\\\x', lower(hex({x})))"


def _decimal_text(x: str, scale: int) -> str:
    """Plain digits in any mode: outside ANSI mode Spark writes 0E-10 for a zero of scale 10."""
    text = f"cast({x} as string)"
    if scale <= _PLAIN_SCALE_MAX:
        return text
    digits = f"lpad(regexp_replace(substring_index({text}, 'E', 1), '[^0-9]', ''), {scale}, '0')"
    return f"if(contains({text}, 'E'), concat(if(startswith({text}, '-'), '-', ''), '0.', {digits}), {text})"


def _timestamptz_text(x: str) -> str:
    """By way of the microseconds, since a cast would use the session's time zone."""
    utc = f"timestampadd(MICROSECOND, unix_micros({x}), TIMESTAMP_NTZ'1970-01-01 00:00:00')"
    return f"concat(cast({utc} as string), '+00')"


def _float8_text(x: str) -> str:
    """16 hexadecimal digits out of `0x1.8p3`: sign and exponent are three digits, the fraction is copied."""
    java = f"format_string('%a', {x})"
    mantissa = f"substring_index({java}, 'p', 1)"
    exponent = f"if(contains({mantissa}, '0x1.'), {_exponent(java)} + 1023, 0)"
    head = f"lpad(lower(hex(if(startswith({java}, '-'), 2048, 0) + {exponent})), 3, '0')"
    bits = f"concat({head}, {_fraction(java)})"
    return _not_finite(java, "7ff8000000000000", "7ff0000000000000", "fff0000000000000", bits)


def _float4_text(x: str) -> str:
    """8 hexadecimal digits; a float that is subnormal is normal as the double that Java shows."""
    java = f"format_string('%a', {x})"
    fraction = f"cast(conv({_fraction(java)}, 16, 10) as bigint)"
    exponent = _exponent(java)
    normal = f"shiftleft(cast({exponent} + 127 as bigint), 23) | shiftright({fraction}, 29)"
    subnormal = f"shiftright(4503599627370496 | {fraction}, 29 - 126 - {exponent})"
    size = f"if({x} = 0, 0L, if({exponent} >= -126, {normal}, {subnormal}))"
    bits = f"lpad(lower(hex(if(startswith({java}, '-'), 2147483648L, 0L) | {size})), 8, '0')"
    return _not_finite(java, "7fc00000", "7f800000", "ff800000", bits)


def _exponent(java: str) -> str:
    return f"cast(substring_index({java}, 'p', -1) as int)"


def _fraction(java: str) -> str:
    return f"rpad(substring_index(substring_index({java}, 'p', 1), '.', -1), 13, '0')"


def _not_finite(java: str, nan: str, infinity: str, minus_infinity: str, otherwise: str) -> str:
    """By Java's text alone, whose first comparison always runs: so Spark formats each value once and shares the text."""
    return (
        f"case when {java} = 'null' then null when {java} = 'NaN' then '{nan}' "
        f"when {java} = 'Infinity' then '{infinity}' when {java} = '-Infinity' then '{minus_infinity}' "
        f"else {otherwise} end"
    )


def _date_text(x: str) -> str:
    return f"cast({x} as string)"


_BY_KIND = {
    "bool": _bool_text,
    "bytea": _bytes_text,
    "float4": _float4_text,
    "float8": _float8_text,
    "date": _date_text,
    "timestamp": _date_text,
    "timestamptz": _timestamptz_text,
}
_BY_TYPE = (
    (T.BooleanType, _bool_text),
    (T.BinaryType, _bytes_text),
    (T.FloatType, _float4_text),
    (T.DoubleType, _float8_text),
    (T.DateType, _date_text),
    (T.TimestampNTZType, _date_text),
    (T.TimestampType, _timestamptz_text),
)
