"""Spark's SQL of the exact texts of typed values, as text: Spark is not imported here.

`types.py` gives each kind its form; `lakeproof.lake.rows.columns` frames the texts of a row. Everything is made of public,
deterministic functions: it can be used in a join or an aggregate, and does not depend on the session's time zone or
ANSI mode.

Spark has no function from a float to its bits; `format_string('%a', x)` gives Java's hexadecimal float, which contains the
bits, at six times the cost of a plain cast to text. `lakeproof.proof.lake.jvm_functions` has a cheaper way with internal
names and without SQL text, which proofs use; `reflect` counts as non-deterministic and is refused in aggregates.

Each function takes the SQL of a value; most ignore the typmod of its column.
"""

from __future__ import annotations

# A text that contains one of these is quoted in an array's text, with backslashes.
_QUOTED_FOR = r'[{}",\\ \t\n\x0B\f\r]'
_ESCAPED, _ESCAPE = r'(["\\])', r"\\$1"
_PLAIN_SCALE_MAX = 6  # Java writes a small BigDecimal of a larger scale as 0E-7


def itself(x: str, _typmod: int = 0) -> str:
    """A string is its own text."""
    return x


def as_string(x: str, _typmod: int = 0) -> str:
    """Spark's own text."""
    return f"cast({x} as string)"


def bool_text(x: str, _typmod: int = 0) -> str:
    """A letter."""
    return f"if({x}, 't', if({x} is null, null, 'f'))"


def bytes_text(x: str, _typmod: int = 0) -> str:
    """Hexadecimal digits."""
    return f"concat('\\\\x', lower(hex({x})))"


def decimal_text(x: str, scale: int) -> str:
    """Plain digits in any mode: outside ANSI mode Spark writes 0E-10 for a zero of scale 10."""
    text = as_string(x)
    if scale <= _PLAIN_SCALE_MAX:
        return text
    digits = f"lpad(regexp_replace(substring_index({text}, 'E', 1), '[^0-9]', ''), {scale}, '0')"
    return f"if(contains({text}, 'E'), concat(if(startswith({text}, '-'), '-', ''), '0.', {digits}), {text})"


def timestamptz_text(x: str, _typmod: int = 0) -> str:
    """By way of the microseconds, since a cast would use the session's time zone."""
    utc = f"timestampadd(MICROSECOND, unix_micros({x}), TIMESTAMP_NTZ'1970-01-01 00:00:00')"
    return f"concat({as_string(utc)}, '+00')"


def float_text(digits: int, x: str, _typmod: int = 0) -> str:
    """8 or 16 hexadecimal digits of a float's bits."""
    return _float4_text(x) if digits == 8 else _float8_text(x)


def array_text(x: str, element: str, quote: str | None) -> str:
    """PostgreSQL's text of an array; `element` is the SQL of the text of its element `e`, `quote` as in `TypeKind`."""
    if quote is None:
        escaped = f"regexp_replace({element}, r'{_ESCAPED}', r'{_ESCAPE}')"
        needed = f"{element} = '' or upper({element}) = 'NULL' or {element} rlike r'{_QUOTED_FOR}'"
        element = f"""if({needed}, concat('"', {escaped}, '"'), {element})"""
    elif quote:
        begin = quote.replace("\\", "\\\\")
        element = f"""concat('{begin}', {element}, '"')"""
    return f"concat('{{', array_join(transform({x}, e -> coalesce({element}, 'NULL')), ','), '}}')"


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
