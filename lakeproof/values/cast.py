"""The one caster: PostgreSQL's text to the lake's types, whole columns at a time.

`types.py` has a column's type. The stream and COPY share this caster, so a value can't depend on how it arrived.

Invariant nothing-guessed: a text is cast if it has exactly the form PostgreSQL prints and the type holds it exactly. A text
that PostgreSQL prints and the type can't hold (NaN in a decimal, infinity or a year outside 1 to 9999 in a date, an array of
two dimensions) is an *overflow*: NULL in the column, the text itself in `_lp_text`. Every other text is *malformed*, as are
bytes that are not UTF-8: NULL in the column, and in `_lp_text` under a key that marks it (`MARK`), so that applying the row
is refused: it was read with a wrong schema, or the settings are not the pinned ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.schema import Column
from lakeproof.values.arrays import Flags, Ints, joined_octets, split_arrays
from lakeproof.values.types import arrow_type, element_kind, precision_scale

# Begins the key of a malformed text in `_lp_text`, and so the whole JSON object: `{"!3":"a"}`. Bytes that are not UTF-8 are
# written in hexadecimal digits, `{"!x3":"ff"}`.
MARK = "!"
# The beginning of a row's text if one of its values is malformed.
MARKED = f'{{"{MARK}'
_MARK_OCTETS = "!x"


class CastError(ValueError):
    """Texts that PostgreSQL does not print for the column's type; the message has no value in it.

    Raised by callers that can't keep a malformed text.
    """

    def __init__(self, column: Column, count: int) -> None:
        super().__init__(
            f"column {column.name}: {count} text(s) are not of the form of {column.kind} ({column.type_name})"
        )
        self.column = column
        self.count = count


@dataclass(frozen=True, slots=True)
class Cast:
    """A column's typed values, and which texts did not fit.

    `values` has the column's Arrow type and the length of the texts; `overflow` and `malformed` are boolean arrays of that
    length without nulls, or None if no text is one; no text is both.
    """

    values: pa.Array
    overflow: pa.Array | None
    malformed: pa.Array | None = None

    @property
    def fits(self) -> bool:
        """True if every text fitted."""
        return self.overflow is None and self.malformed is None

    def refuse_malformed(self, column: Column) -> Cast:
        """Return this cast; raises CastError if a text is malformed."""
        if self.malformed is not None:
            raise CastError(column, pc.sum(self.malformed).as_py())
        return self


# 0001 to 9999: RE2 has no look-ahead that could exclude 0000 from [0-9]{4}.
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_MONTH_DAY = "-[0-9]{2}-[0-9]{2}"
_DAY = _YEAR + _MONTH_DAY
_FAR_DAY = "[1-9][0-9]{4,6}" + _MONTH_DAY
_TIME = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_INFINITY = "-?infinity"
_NUMBER = r"-?[0-9]+(\.[0-9]+)?"

# The texts that are cast, by kind. RE2: `\z` is the end of the text, so a trailing newline does not pass.
_FITS = MappingProxyType(
    {
        "bool": "[tf]",
        "int2": "0|-?[1-9][0-9]{0,4}",
        "int4": "0|-?[1-9][0-9]{0,9}",
        "int8": "0|-?[1-9][0-9]{0,18}",
        "float4": r"NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?(e[+-][0-9]{2,3})?",
        "float8": r"NaN|-?Infinity|-?[0-9]+(\.[0-9]+)?(e[+-][0-9]{2,3})?",
        "date": _DAY,
        "timestamp": _DAY + _TIME,
        "timestamptz": _DAY + _TIME + r"\+00",
        "bytea": r"\\x(?:[0-9a-f]{2})*",
    }
)
# Other texts that PostgreSQL prints. Kinds that are not here hold every value of their type.
_OVERFLOWS = MappingProxyType(
    {
        "numeric": f"{_NUMBER}|NaN|-?Infinity",
        "date": f"{_DAY} BC|{_FAR_DAY}|{_INFINITY}",
        "timestamp": f"{_DAY}{_TIME} BC|{_FAR_DAY}{_TIME}|{_INFINITY}",
        "timestamptz": rf"{_DAY}{_TIME}\+00 BC|{_FAR_DAY}{_TIME}\+00|{_INFINITY}",
    }
)
_AS_TEXT = frozenset({"text", "bpchar", "varchar", "name", "uuid", "enum", "exact_text"})

_NOT_HEX = 0xFF
_HEX = np.full(256, _NOT_HEX, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


def cast_column(texts: pa.Array, column: Column) -> Cast:
    """Cast PostgreSQL's output texts (an array like strings or binary, NULL for NULL) to the column's type."""
    if pa.types.is_string(texts.type):
        return _cast(texts, column)
    try:
        return _cast(texts.cast(pa.string()), column)
    except pa.ArrowInvalid:
        undecodable = _refused(texts, pa.string())
    cast = _cast(_without(texts, undecodable).cast(pa.string()), column)
    return Cast(cast.values, cast.overflow, _either(cast.malformed, undecodable))


def text_overflow(columns: Sequence[tuple[Column, pa.Array, Cast]], length: int | None = None) -> pa.Array:
    """Return the `_lp_text` column; `columns` has (column, texts, their cast), at least for each column that did not fit.

    A row in which all texts fitted is NULL; any other is a JSON object from attribute number to exact text, marked texts
    first. `length` is the number of rows, needed because `columns` may be empty.
    """
    rows: dict[int, dict[str, str]] = {}
    # Marked ones first, so that the first key shows if there are any.
    for column, texts, cast in columns:
        length = len(texts)
        for row, text in _texts_where(texts, cast.malformed):
            rows.setdefault(row, {}).update([_marked(column, text)])
    for column, texts, cast in columns:
        for row, text in _texts_where(texts, cast.overflow):
            rows.setdefault(row, {})[str(column.attnum)] = text if isinstance(text, str) else text.decode()
    if length is None:
        raise ValueError("the number of rows is unknown: neither columns nor a length")
    result: list[str | None] = [None] * length
    for row, texts_by_attnum in rows.items():
        result[row] = json.dumps(texts_by_attnum, ensure_ascii=False, separators=(",", ":"))
    return pa.array(result, pa.string()) if rows else pa.nulls(length, pa.string())


def _texts_where(texts: pa.Array, chosen: pa.Array | None) -> Iterator[tuple[int, str | bytes]]:
    if chosen is not None:
        rows = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
        yield from zip(rows.tolist(), texts.take(pa.array(rows)).to_pylist(), strict=True)


def _marked(column: Column, text: str | bytes) -> tuple[str, str]:
    """Return the key and text of a malformed text; a column no longer in the catalog has only its name."""
    name = str(column.attnum or column.name)
    if isinstance(text, str):
        return MARK + name, text
    try:
        return MARK + name, text.decode()
    except UnicodeDecodeError:
        return _MARK_OCTETS + name, text.hex()


def _cast(texts: pa.Array, column: Column) -> Cast:
    if column.kind in _AS_TEXT:
        return Cast(texts, None)
    of = element_kind(column.kind)
    if of is not None:
        return _arrays(texts, column, of)
    fits = _fits(texts, column)
    if fits is None:
        return _typed(texts, column)
    beyond = pc.fill_null(pc.invert(fits), False)
    pattern = _OVERFLOWS.get(column.kind)
    printed = None if pattern is None else pc.match_substring_regex(texts, _whole(pattern))
    overflow = None if printed is None else pc.and_(beyond, pc.fill_null(printed, False))
    malformed = beyond if overflow is None else pc.and_not(beyond, overflow)
    cast = _typed(_without(texts, beyond), column)
    return Cast(cast.values, _some(overflow), _either(cast.malformed, malformed))


def _arrays(texts: pa.Array, column: Column, of: str) -> Cast:
    """Cast all elements of all rows in one column; a row that does not fit, or has such an element, is NULL."""
    elements = split_arrays(texts)
    cast = _cast(elements.texts, replace(column, kind=of))
    values, counts = cast.values, np.diff(elements.offsets)
    malformed: Flags = elements.unknown
    overflow: Flags = elements.other
    if not cast.fits:
        row = np.repeat(np.arange(len(texts)), counts)
        malformed = _with_rows(malformed, row, cast.malformed)
        overflow = _with_rows(overflow, row, cast.overflow) & ~malformed
        # Parquet's writer refuses elements in a NULL.
        values = values.filter(pa.array(~(malformed | overflow)[row]))
        counts = np.where(malformed | overflow, 0, counts)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    null = texts.is_null().to_numpy(zero_copy_only=False) | malformed | overflow
    mask = pa.array(null) if null.any() else None
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=arrow_type(column), mask=mask)
    return Cast(lists, _some(pa.array(overflow)), _some(pa.array(malformed)))


def _with_rows(rows: Flags, row: Ints, elements: pa.Array | None) -> Flags:
    """Return `rows`, and the rows that have one of the chosen elements."""
    result: Flags = rows.copy()
    if elements is not None:
        result[row[elements.to_numpy(zero_copy_only=False)]] = True
    return result


def _some(chosen: pa.Array | None) -> pa.Array | None:
    return chosen if chosen is not None and pc.any(chosen, min_count=0).as_py() else None


def _either(one: pa.Array | None, other: pa.Array) -> pa.Array | None:
    return _some(other if one is None else pc.or_(one, other))


def _without(texts: pa.Array, chosen: pa.Array) -> pa.Array:
    return pc.if_else(chosen, pa.scalar(None, texts.type), texts)


def _refused(texts: pa.Array, to: pa.DataType) -> pa.Array:
    """Return the texts that Arrow can't read as the type: it stops at the first, so halves are tried."""
    pieces = []
    waiting = [texts]
    while waiting:
        piece = waiting.pop()
        try:
            piece.cast(to)
        except pa.ArrowInvalid:
            if len(piece) == 1:
                pieces.append(np.ones(1, np.bool_))
            else:
                middle = len(piece) // 2
                waiting += [piece[middle:], piece[:middle]]
        else:
            pieces.append(np.zeros(len(piece), np.bool_))
    return pa.array(np.concatenate(pieces))


def beside_patterns(column: Column) -> tuple[str, str] | None:
    """Return two patterns for a column's texts in `_lp_text`: such a text matches the first and not the second.

    None for kinds without patterns of their own: arrays, and kinds that hold every value.
    """
    printed = _OVERFLOWS.get(column.kind)
    if printed is None:
        return None
    fits = _decimal_pattern(column.typmod) if column.kind == "numeric" else _FITS[column.kind]
    return _whole(printed), _whole(fits)


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _fits(texts: pa.Array, column: Column) -> pa.Array | None:
    """Return the texts that have the form of values that the type holds; None if all have."""
    pattern = _decimal_pattern(column.typmod) if column.kind == "numeric" else _FITS[column.kind]
    if column.kind == "bytea" and _is_hex(texts):
        return None
    fits = pc.match_substring_regex(texts, _whole(pattern))
    return None if pc.all(fits, min_count=0).as_py() else fits


def _decimal_pattern(typmod: int) -> str:
    """Return the pattern of decimal(p,s): at most p - s digits before the point, only zeros after s decimals."""
    precision, scale = precision_scale(typmod) or (0, 0)
    before = rf"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    after = rf"(\.[0-9]{{1,{scale}}}0*)?" if scale else r"(\.0+)?"
    return f"-?{before}{after}"


def _typed(texts: pa.Array, column: Column) -> Cast:
    """Cast texts of the right form; those that are no values all the same (2023-02-30, 40000 as int2) are malformed."""
    if column.kind == "bool":
        return Cast(pc.equal(texts, "t"), None)
    if column.kind == "bytea":
        return Cast(_bytes_of_hex(texts), None)
    to = arrow_type(column)
    try:
        values = texts.cast(to)
    except pa.ArrowInvalid:
        wrong = _refused(texts, to)
        return Cast(_without(texts, wrong).cast(to), None, wrong)
    if column.kind in ("float4", "float8"):
        infinite = pc.fill_null(pc.is_inf(values), False)
        if pc.any(infinite, min_count=0).as_py():
            rounded = _some(pc.and_not(infinite, pc.fill_null(pc.ends_with(texts, "Infinity"), False)))
            return Cast(values if rounded is None else _without(values, rounded), None, rounded)
    return Cast(values, None)


def _is_hex(texts: pa.Array) -> bool:
    r"""True if every text is `\x` and pairs of digits: the pattern, over all bytes at once."""
    filled = pc.fill_null(texts, "\\x") if texts.null_count else texts
    data, starts, sizes = joined_octets(filled)
    if not ((sizes >= 2) & (sizes % 2 == 0)).all():
        return False
    if not ((data[starts] == ord("\\")) & (data[starts + 1] == ord("x"))).all():
        return False
    digits = _HEX[data]
    digits[starts] = digits[starts + 1] = 0
    return bool((digits != _NOT_HEX).all())


def _bytes_of_hex(texts: pa.Array) -> pa.Array:
    r"""Cast `\x6869` to `hi`: all pairs of digits of the joined texts at once, then the prefix's byte is dropped."""
    missing = texts.is_null()
    filled = pc.fill_null(texts, "\\x") if texts.null_count else texts
    data, starts, sizes = joined_octets(filled)
    digits = _HEX[data]
    digits[starts] = digits[starts + 1] = 0
    octets = np.delete((digits[0::2] << 4) | digits[1::2], starts // 2)
    ends = np.concatenate(([0], np.cumsum(sizes // 2 - 1))).astype(np.int32)
    values = pa.Array.from_buffers(pa.binary(), len(filled), [None, pa.py_buffer(ends), pa.py_buffer(octets)])
    return pc.if_else(missing, pa.scalar(None, pa.binary()), values) if texts.null_count else values
