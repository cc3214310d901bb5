"""The one caster: PostgreSQL's text to the lake's types, whole columns at a time.

Which type a column has belongs to `types.py`; where the texts come from (the stream, COPY) to the callers, who share this
so that a value can't depend on the road it came by.

Invariant nothing-guessed: a text is cast if it has exactly the shape PostgreSQL prints and the type holds it exactly. A text
that PostgreSQL prints and the type can't hold (NaN in a decimal, infinity or a year outside 1 to 9999 in a date) is an
*overflow*: NULL in the column, the text itself in `_w2d_text`. Every other text is a `CastError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wal2delta.names import TableName
from wal2delta.schema import Column
from wal2delta.values.types import arrow_type, precision_scale

PINNED_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        # What the output functions read: the texts below are these settings' texts.
        "client_encoding": "UTF8",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "TimeZone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "quote_all_identifiers": "off",
        # Nothing on the path: reg* values are printed with their schema, and no one's function shadows a name.
        "search_path": "",
        # A policy that would hide rows is an error instead.
        "row_security": "off",
        # A snapshot's transaction lives as long as its copy.
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
)


class CastError(ValueError):
    """A text that PostgreSQL does not print for the column's type; the message has no value in it.

    `table` is named where the caller knows it.
    """

    def __init__(self, column: Column, count: int, table: TableName | None = None) -> None:
        super().__init__(
            f"column {column.name}: {count} text(s) are not of the shape of {column.kind} ({column.type_name})"
        )
        self.column = column
        self.count = count
        self.table = table


@dataclass(frozen=True, slots=True)
class Cast:
    """A column's typed values, and which of them did not fit.

    `values` has the column's Arrow type and the length of the texts; `overflow` is a boolean array of that length without
    nulls, or None where every text fitted.
    """

    values: pa.Array
    overflow: pa.Array | None


# 0001 to 9999: RE2 has no look-ahead to take 0000 out of [0-9]{4} with.
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_MONTH_DAY = "-[0-9]{2}-[0-9]{2}"
_DAY = _YEAR + _MONTH_DAY
_FAR_DAY = "[1-9][0-9]{4,6}" + _MONTH_DAY
_TIME = r" [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_INFINITY = "-?infinity"
_NUMBER = r"-?[0-9]+(\.[0-9]+)?"

# What is cast, by kind. RE2: `\z` is the end of the text, so a trailing newline does not pass.
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
    }
)
# What PostgreSQL prints beside it. Kinds that are missing hold every value of their type.
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
    """Cast PostgreSQL's output texts (a string-like array, NULL for NULL) to the column's type.

    Raises CastError for a text that PostgreSQL does not print for the type.
    """
    if not pa.types.is_string(texts.type):
        texts = texts.cast(pa.string())
    if column.kind in _AS_TEXT:
        return Cast(texts, None)
    if column.kind == "bytea":
        return Cast(_bytes_of_hex(texts, column), None)
    fits = pc.match_substring_regex(texts, _whole(_fits_pattern(column)))
    if pc.all(fits, min_count=0).as_py():
        return Cast(_typed(texts, column), None)
    overflow = pc.fill_null(pc.invert(fits), False)
    _refuse_unprintable(texts.filter(overflow), column)
    kept = pc.if_else(overflow, pa.scalar(None, pa.string()), texts)
    return Cast(_typed(kept, column), overflow)


def text_overflow(columns: Sequence[tuple[Column, pa.Array, pa.Array | None]], length: int | None = None) -> pa.Array:
    """The `_w2d_text` column: one (column, texts, overflow) for each column of the table.

    A row without overflow is NULL; another is a JSON object from attribute number to exact text. `length` is the number of
    rows, needed where `columns` may be empty.
    """
    rows: dict[int, dict[str, str]] = {}
    for column, texts, overflow in columns:
        length = len(texts)
        if overflow is None:
            continue
        where = np.flatnonzero(overflow.to_numpy(zero_copy_only=False))
        for row, text in zip(where.tolist(), texts.take(pa.array(where)).to_pylist(), strict=True):
            rows.setdefault(row, {})[str(column.attnum)] = text
    if length is None:
        raise ValueError("the number of rows is unknown: neither columns nor a length")
    result: list[str | None] = [None] * length
    for row, texts_by_attnum in rows.items():
        result[row] = json.dumps(texts_by_attnum, ensure_ascii=False, separators=(",", ":"))
    return pa.array(result, pa.string()) if rows else pa.nulls(length, pa.string())


def _whole(pattern: str) -> str:
    return rf"\A(?:{pattern})\z"


def _fits_pattern(column: Column) -> str:
    return _decimal_pattern(column.typmod) if column.kind == "numeric" else _FITS[column.kind]


def _decimal_pattern(typmod: int) -> str:
    """Numbers that decimal(p,s) holds exactly: at most p - s digits before the point, zeros alone after s decimals."""
    precision, scale = precision_scale(typmod) or (0, 0)
    before = rf"0*[0-9]{{1,{precision - scale}}}" if precision > scale else "0+"
    after = rf"(\.[0-9]{{1,{scale}}}0*)?" if scale else r"(\.0+)?"
    return f"-?{before}{after}"


def _refuse_unprintable(texts: pa.Array, column: Column) -> None:
    pattern = _OVERFLOWS.get(column.kind)
    if pattern is None:
        raise CastError(column, len(texts))
    printed = pc.sum(pc.match_substring_regex(texts, _whole(pattern))).as_py()
    if printed != len(texts):
        raise CastError(column, len(texts) - printed)


def _typed(texts: pa.Array, column: Column) -> pa.Array:
    if column.kind == "bool":
        return pc.equal(texts, "t")
    try:
        values = texts.cast(arrow_type(column))
    except pa.ArrowInvalid:  # 2023-02-30, 40000 as int2: of the shape, but not a value
        # Arrow's own words quote the text.
        raise CastError(column, 1) from None
    if column.kind in ("float4", "float8"):
        _refuse_rounded_to_infinity(values, texts, column)
    return values


def _refuse_rounded_to_infinity(values: pa.Array, texts: pa.Array, column: Column) -> None:
    infinite = pc.is_inf(values)
    if pc.any(infinite).as_py():
        rounded = pc.sum(pc.invert(pc.ends_with(texts.filter(infinite), "Infinity"))).as_py()
        if rounded:
            raise CastError(column, rounded)


def _bytes_of_hex(texts: pa.Array, column: Column) -> pa.Array:
    r"""`\x6869` to `hi`: every pair of digits at once over the joined texts, then the prefix's byte is dropped."""
    missing = texts.is_null()
    filled = pc.fill_null(texts, "\\x") if texts.null_count else texts
    length = len(filled)
    if length == 0:
        return pa.array([], pa.binary())
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + length + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(filled.buffers()[2] or b"", np.uint8)[first:last]
    starts = offsets[:-1] - first
    sizes = np.diff(offsets)
    shaped = (sizes >= 2) & (sizes % 2 == 0)
    if not shaped.all():
        raise CastError(column, int((~shaped).sum()))
    shaped = (data[starts] == ord("\\")) & (data[starts + 1] == ord("x"))
    digits = _HEX[data]
    digits[starts] = digits[starts + 1] = 0
    if not shaped.all() or digits.max() == _NOT_HEX:
        raise CastError(column, max(1, int((~shaped).sum())))
    octets = np.delete((digits[0::2] << 4) | digits[1::2], starts // 2)
    ends = np.concatenate(([0], np.cumsum(sizes // 2 - 1))).astype(np.int32)
    values = pa.Array.from_buffers(pa.binary(), length, [None, pa.py_buffer(ends), pa.py_buffer(octets)])
    return pc.if_else(missing, pa.scalar(None, pa.binary()), values) if texts.null_count else values
