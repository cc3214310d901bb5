r"""The exact form of a row's values, from the lake's Arrow arrays: the texts that digests of rows are computed from.

The same forms are in PostgreSQL's SQL in `lakeproof.proof.source_form` and in Spark in `lakeproof.lake.rows.exact`, which
says how a form is made; one suite over all kinds holds the three equal. Reading the arrays does not belong here.

Whole columns at a time. A text of the lake is used as its octets, which damage may have made no UTF-8: no function here
looks at the letters of a text that is no array's element.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.schema import Column, SchemaVersion
from lakeproof.values.cast import beside_patterns
from lakeproof.values.exact_kinds import END, NULL_FORM, STRING_KINDS, WHOLE_KINDS, is_ended, key_columns
from lakeproof.values.md5 import digest_bits
from lakeproof.values.types import element_kind

_WRONG = NULL_FORM.encode()
_INSTANTS = frozenset({"timestamp", "timestamptz"})
_MICROS_TO_2000 = 10_957 * 86_400_000_000
_FLOATS = {"float4": ("f4", "u4", 0x7FC00000), "float8": ("f8", "u8", 0x7FF8000000000000)}
# An array of one dimension, counted from 1: the lake has it as an array if the element type holds each element.
_PLAIN_ARRAY = r"\A\{[^{]"
_QUOTED_FOR = r'\A\z|\A(?i:null)\z|[{}",\\ \t\n\v\f\r]'
_PAIRS = np.frombuffer("".join(f"{n:02x}" for n in range(256)).encode(), np.uint16)

Flags: TypeAlias = npt.NDArray[np.bool_]
Bits: TypeAlias = npt.NDArray[np.int64]
Part: TypeAlias = "pa.Array | str"


@dataclass(frozen=True, slots=True)
class HiddenTexts:
    """The exact texts of a batch's `_lp_text`: by attribute number, those of the rows that have one."""

    by_attnum: Mapping[str, Mapping[int, str]]

    @classmethod
    def of(cls, texts: pa.Array | None) -> HiddenTexts:
        """Read a batch's `_lp_text`, None if it has none; what is no JSON object has no text, as for Spark."""
        by_attnum: dict[str, dict[int, str]] = {}
        if texts is None or texts.null_count == len(texts):
            return cls(by_attnum)
        for row in np.flatnonzero(_valid(texts)).tolist():
            for name, text in _entries(texts[row]).items():
                if text is not None:
                    shown = text if isinstance(text, str) else json.dumps(text, separators=(",", ":"))
                    by_attnum.setdefault(name, {})[row] = shown
        return cls(by_attnum)

    def beside(self, column: Column) -> Mapping[int, str]:
        """Return the texts of a column's values, by row; none of a kind whose type holds every value."""
        if column.attnum <= 0 or column.kind in WHOLE_KINDS:
            return {}
        return self.by_attnum.get(str(column.attnum), {})


def row_bits(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> Bits:
    """Return the first 60 bits of each row's digest, as a proof has it: instants of a table with a key by their octets."""
    return _bits(_row_parts(version, columns, hidden, by_octets=not version.is_bag), rows)


def row_digests(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> pa.Array:
    """Return each row's digest, 32 hexadecimal digits: a bag's `_lp_key`."""
    parts = _row_parts(version, columns, hidden, by_octets=False)
    texts = _joined(parts).cast(pa.binary()).to_pylist() if parts else [b""] * rows
    return pa.array([hashlib.md5(text, usedforsecurity=False).hexdigest() for text in texts], pa.string())


def key_texts(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts) -> pa.Array:
    """Return the framed exact text of each row's key: the `_lp_key` of a table with a key that has one."""
    return _joined(_key_parts(version, columns, hidden))


def key_bits(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, rows: int) -> Bits:
    """Return the first 60 bits of the digest of each row's key."""
    return _bits(_key_parts(version, columns, hidden), rows)


def _row_parts(
    version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts, *, by_octets: bool
) -> list[Part]:
    """Return what the texts of rows are joined from; `by_octets`: instants are eight octets, which cost less than texts."""
    parts: list[Part] = []
    for column in version.columns:
        values = columns[column.name]
        if by_octets and column.kind in _INSTANTS:
            parts += _ended(_instants(values), column, hidden)
        elif is_ended(column):
            parts += _ended(_texts(values, column), column, hidden)
        else:
            parts += _framed(exact_texts(column, values, hidden))
    return parts


def _key_parts(version: SchemaVersion, columns: Mapping[str, pa.Array], hidden: HiddenTexts) -> list[Part]:
    parts: list[Part] = []
    for column in key_columns(version):
        parts += _framed(exact_texts(column, columns[column.name], hidden))
    return parts


def exact_texts(column: Column, values: pa.Array, hidden: HiddenTexts) -> pa.Array:
    """Return the exact texts of a column's values, NULL for NULL."""
    return _with_hidden(_texts(values, column), column, hidden.beside(column))


def warm_up() -> None:
    """Run the loop once, so that no row waits for the compiler."""
    _bits([pa.array(["a"])], 1)


def _bits(parts: Sequence[Part], rows: int) -> Bits:
    bits = np.zeros(rows, np.int64)
    texts = _joined(parts) if parts else pa.array([""] * rows, pa.string())
    if rows:
        _, offsets, octets = texts.buffers()
        places = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + rows + 1]
        digest_bits(_frozen(np.frombuffer(octets or b"", np.uint8)), _frozen(places), bits)
    return bits


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array as the loop reads it, which is compiled for one kind of argument."""
    view: npt.NDArray[Any] = array.view()
    view.flags.writeable = False
    return view


def _joined(parts: Sequence[Part]) -> pa.Array:
    joined = pc.binary_join_element_wise(*parts, "")
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined


def _framed(texts: pa.Array) -> list[Part]:
    """Return `<octets>:<text>`, or `~` for NULL."""
    sizes = pc.binary_length(texts).cast(pa.string())
    if not texts.null_count:
        return [sizes, ":", texts]
    return [pc.fill_null(_joined([sizes, ":", texts]), NULL_FORM)]


def _ended(texts: pa.Array, column: Column, hidden: HiddenTexts) -> list[Part]:
    """Return `<text>|`, NULL as `|`; a hidden text that the kind can't have does not look like another row's values."""
    beside = {row: text.replace(END, NULL_FORM) for row, text in hidden.beside(column).items()}
    texts = _with_hidden(texts, column, beside, hidden.beside(column))
    return [pc.fill_null(texts, "") if texts.null_count else texts, END]


def _with_hidden(
    texts: pa.Array, column: Column, beside: Mapping[int, str], read: Mapping[int, str] | None = None
) -> pa.Array:
    """Put hidden texts where the value is NULL and the type can't hold them; any other gives a form that no value has.

    `beside` are the texts to put, `read` the same as they were read.
    """
    if not beside:
        return texts
    rows = sorted(beside)
    hidden = [(read or beside)[row] for row in rows]
    typed = texts.take(pa.array(rows)).cast(pa.binary()).to_pylist()
    put = []
    for row, value, proper in zip(rows, typed, _are_proper(column, hidden), strict=True):
        text = beside[row].encode(errors="surrogatepass")
        put.append(text if value is None and proper else b"".join((_WRONG, value or b"", _WRONG, text)))
    mask = np.zeros(len(texts), np.bool_)
    mask[rows] = True
    return pc.replace_with_mask(texts.cast(pa.binary()), pa.array(mask), pa.array(put, pa.binary())).view(pa.string())


def _are_proper(column: Column, texts: Sequence[str]) -> list[bool]:
    """Return which texts are of values that the column's type does not hold."""
    array = pa.array([text.encode(errors="replace") for text in texts], pa.binary()).cast(pa.string())
    patterns = beside_patterns(column)
    if element_kind(column.kind) in WHOLE_KINDS:
        proper = pc.invert(pc.match_substring_regex(array, _PLAIN_ARRAY))
    elif patterns is None:
        return [True] * len(texts)
    else:
        printed, fits = (pc.match_substring_regex(array, pattern) for pattern in patterns)
        proper = pc.and_not(printed, fits)
    return [bool(each) for each in proper.to_pylist()]


def _entries(text: pa.Scalar) -> Mapping[str, Any]:
    try:
        entries = json.loads(text.as_buffer().to_pybytes())
    except ValueError:
        return {}
    return entries if isinstance(entries, dict) else {}


def _texts(values: pa.Array, column: Column) -> pa.Array:
    """Return PostgreSQL's output text of the typed values, floats by their bits; NULL for NULL."""
    of = element_kind(column.kind)
    if of is not None:
        return _array_texts(values, replace(column, kind=of))
    kind = column.kind
    if kind in _FLOATS:
        return _float_texts(values, *_FLOATS[kind])
    if kind == "bool":
        return pc.if_else(values, "t", "f")
    if kind == "bytea":
        return _joined(["\\x", _hex_texts(values)])
    if kind == "timestamp":
        return _clock_texts(values)
    if kind == "timestamptz":
        return _joined([_clock_texts(values), "+00"])
    if kind in STRING_KINDS:
        return values
    return _decimal_texts(values) if pa.types.is_decimal(values.type) else values.cast(pa.string())


def _array_texts(column: pa.Array, element: Column) -> pa.Array:
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    texts = pc.fill_null(_element_texts(_texts(column.values.slice(first, last - first), element), element), "NULL")
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, offsets[0]), texts)
    joined = _joined(["{", pc.binary_join(lists, ","), "}"])
    return pc.if_else(column.is_valid(), joined, pa.scalar(None, pa.string())) if column.null_count else joined


def _element_texts(texts: pa.Array, element: Column) -> pa.Array:
    """Return elements' texts within their array's text, quoted as PostgreSQL quotes them."""
    if element.kind in _INSTANTS:  # there is a blank in each
        return _joined(['"', texts, '"'])
    if element.kind == "bytea":
        return _joined(['"\\', texts, '"'])
    if element.kind not in STRING_KINDS:
        return texts
    escaped = pc.replace_substring_regex(texts, r'(["\\])', r"\\\1")
    return pc.if_else(pc.match_substring_regex(texts, _QUOTED_FOR), _joined(['"', escaped, '"']), texts)


def _decimal_texts(values: pa.Array) -> pa.Array:
    """Return plain digits: Arrow writes a small one as 1E-7."""
    scale = values.type.scale
    whole = pa.Array.from_buffers(pa.decimal128(38, 0), len(values), values.buffers(), values.null_count, values.offset)
    digits = whole.cast(pa.string())
    if not scale:
        return digits
    sign = pc.if_else(pc.starts_with(digits, "-"), "-", "")
    digits = pc.utf8_lpad(pc.utf8_ltrim(digits, "-"), scale + 1, "0")
    before, after = (pc.utf8_slice_codeunits(digits, *ends) for ends in ((0, -scale), (-scale, None)))
    return _joined([sign, before, ".", after])


def _clock_texts(values: pa.Array) -> pa.Array:
    """Return days and times, with the microseconds without trailing zeros."""
    return pc.utf8_rtrim(pc.utf8_rtrim(values.cast(pa.timestamp("us")).cast(pa.string()), "0"), ".")


def _instants(values: pa.Array) -> pa.Array:
    """Return the hexadecimal digits of PostgreSQL's octets of instants: microseconds since 2000."""
    return _fixed_texts(_numbers(values, "i8") - _MICROS_TO_2000, ">i8", values)


def _float_texts(values: pa.Array, stored: str, bits: str, nan: int) -> pa.Array:
    numbers = _numbers(values, stored)
    words = numbers.view(bits).copy()
    words[np.isnan(numbers)] = nan
    return _fixed_texts(words, f">{bits}", values)


def _fixed_texts(numbers: npt.NDArray[Any], stored: str, values: pa.Array) -> pa.Array:
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


def _strings(octets: npt.NDArray[Any], offsets: npt.NDArray[np.int32], values: pa.Array) -> pa.Array:
    validity = pa.array(_valid(values)).buffers()[1] if values.null_count else None
    buffers = [validity, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(np.ascontiguousarray(octets))]
    return pa.Array.from_buffers(pa.string(), len(values), buffers)


def _numbers(values: pa.Array, stored: str) -> npt.NDArray[Any]:
    """Return the values as the buffer has them; those of NULL may be anything."""
    numbers: npt.NDArray[Any] = np.frombuffer(values.buffers()[1], stored)
    return numbers[values.offset : values.offset + len(values)]


def _valid(values: pa.Array) -> Flags:
    valid: Flags = values.is_valid().to_numpy(zero_copy_only=False)
    return valid
