r"""Each form in Arrow: PostgreSQL's texts to typed values, and back. Whole columns at a time.

The texts of a kind are in `types.py`; keeping a text that does not fit is in `cast.py`. A text of the lake is used as its
octets, which damage may have made no UTF-8: no function here looks at the letters of a text that is no array's element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.values.parse.arrays import joined_octets
from lakeproof.values.types import Form, TypeKind, refuse_form

Flags: TypeAlias = npt.NDArray[np.bool_]
Part: TypeAlias = "pa.Array | str"

_MICROS_TO_2000 = 10_957 * 86_400_000_000
# By the bits of a float: how it is stored, its bits, and those of every NaN.
_FLOATS = {32: ("f4", "u4", 0x7FC00000), 64: ("f8", "u8", 0x7FF8000000000000)}
_QUOTED_FOR = r'\A\z|\A(?i:null)\z|[{}",\\ \t\n\v\f\r]'
_PAIRS = np.frombuffer("".join(f"{n:02x}" for n in range(256)).encode(), np.uint16)
_NOT_HEX = 0xFF
_HEX = np.full(256, _NOT_HEX, np.uint8)
_HEX[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16, dtype=np.uint8)


def typed_values(texts: pa.Array, form: Form, to: pa.DataType) -> pa.Array:
    """Return the values of texts that have the kind's pattern; raises ArrowInvalid if one is no value all the same."""
    match form:
        case Form.TEXT:
            return texts
        case Form.BOOL:
            return pc.equal(texts, "t")
        case Form.OCTETS:
            return _bytes_of_hex(texts)
        case Form.WHOLE | Form.FLOAT | Form.DECIMAL | Form.DAY | Form.CLOCK | Form.INSTANT:
            return texts.cast(to)
        case other:
            return refuse_form(other)


def texts_of(values: pa.Array, kind: TypeKind) -> pa.Array:
    """Return the forms of typed values; NULL for NULL."""
    if kind.element is not None:
        return _array_texts(values, kind.element)
    match kind.form:
        case Form.TEXT:
            return values
        case Form.BOOL:
            return pc.if_else(values, "t", "f")
        case Form.OCTETS:
            return joined(["\\x", _hex_texts(values)])
        case Form.FLOAT:
            return _float_texts(values)
        case Form.DECIMAL:
            return _decimal_texts(values)
        case Form.WHOLE | Form.DAY:
            return values.cast(pa.string())
        case Form.CLOCK:
            return _clock_texts(values)
        case Form.INSTANT:
            return joined([_clock_texts(values), "+00"])
        case other:
            return refuse_form(other)


def octets_of(values: pa.Array) -> pa.Array:
    """Return the hexadecimal digits of PostgreSQL's octets of instants: microseconds since 2000."""
    return _fixed_texts(_numbers(values, "i8") - _MICROS_TO_2000, ">i8", values)


def joined(parts: Sequence[Part]) -> pa.Array:
    """Return each row's parts as one text."""
    texts = pc.binary_join_element_wise(*parts, "")
    return texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts


def is_hex(texts: pa.Array) -> bool:
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


def _array_texts(column: pa.Array, element: TypeKind) -> pa.Array:
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    texts = pc.fill_null(_element_texts(texts_of(column.values.slice(first, last - first), element), element), "NULL")
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), texts)
    whole = joined(["{", pc.binary_join(lists, ","), "}"])
    return pc.if_else(column.is_valid(), whole, pa.scalar(None, pa.string())) if column.null_count else whole


def _element_texts(texts: pa.Array, element: TypeKind) -> pa.Array:
    """Return elements' texts within their array's text, quoted as PostgreSQL quotes them."""
    if element.quote is not None:
        return joined([element.quote, texts, '"']) if element.quote else texts
    escaped = pc.replace_substring_regex(texts, r'(["\\])', r"\\\1")
    return pc.if_else(pc.match_substring_regex(texts, _QUOTED_FOR), joined(['"', escaped, '"']), texts)


def _decimal_texts(values: pa.Array) -> pa.Array:
    # numba takes 0.15 s and 60 MB: only where there are decimals.
    from lakeproof.values.decimal_texts import ROOM, write_decimals

    halves: npt.NDArray[np.uint64] = np.frombuffer(values.buffers()[1] or b"", np.uint64)
    halves = halves[2 * values.offset : 2 * (values.offset + len(values))].copy()
    if values.null_count:
        halves.reshape(-1, 2)[~flags_of(values)] = 0
    octets, offsets = np.empty(len(values) * ROOM, np.uint8), np.zeros(len(values) + 1, np.int32)
    write_decimals(halves, values.type.scale, octets, offsets)
    return _strings(octets[: offsets[-1]].copy(), offsets, values)


def _clock_texts(values: pa.Array) -> pa.Array:
    """Return days and times, with the microseconds without trailing zeros."""
    return pc.utf8_rtrim(pc.utf8_rtrim(values.cast(pa.timestamp("us")).cast(pa.string()), "0"), ".")


def _float_texts(values: pa.Array) -> pa.Array:
    stored, bits, nan = _FLOATS[values.type.bit_width]
    numbers = _numbers(values, stored)
    words = numbers.view(bits).copy()
    words[np.isnan(numbers)] = nan
    return _fixed_texts(words, f">{bits}", values)


def _fixed_texts(numbers: npt.NDArray[np.generic], stored: str, values: pa.Array) -> pa.Array:
    """Return the hexadecimal digits of numbers that are stored like this; NULL where `values` is."""
    octets = np.ascontiguousarray(numbers.astype(stored)).view(np.uint8)
    size = 2 * np.dtype(stored).itemsize
    offsets = np.arange(0, (len(values) + 1) * size, size, dtype=np.int32)
    return _strings(_PAIRS[octets], offsets, values)


def _hex_texts(values: pa.Array) -> pa.Array:
    _, offsets, octets = values.buffers()
    places = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(octets or b"", np.uint8)[places[0] : places[-1]]
    return _strings(_PAIRS[data], 2 * (places - places[0]), values)


def _strings(octets: npt.NDArray[np.generic], offsets: npt.NDArray[np.int32], values: pa.Array) -> pa.Array:
    validity = pa.array(flags_of(values)).buffers()[1] if values.null_count else None
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(octets))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _numbers(values: pa.Array, stored: str) -> npt.NDArray[np.generic]:
    """Return the values as the buffer has them; those of NULL may be anything."""
    numbers: npt.NDArray[np.generic] = np.frombuffer(values.buffers()[1], stored)
    return numbers[values.offset : values.offset + len(values)]


def flags_of(values: pa.Array) -> Flags:
    """Return which values are not NULL."""
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid
