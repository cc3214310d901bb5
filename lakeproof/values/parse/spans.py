"""Casts a column's texts inside a buffer to typed values: the fast path of the caster.

Only `cast.py` defines what a text means. A kind has a loop here (`numbers.py`, `texts.py`, `times.py`) only for the form
in which PostgreSQL usually prints it; a column with any other text, and a kind without a loop, returns None and goes
through `cast_column`. Invariant: if both paths return values, the values are equal (tests/core/values/test_values_spans.py).

Memory: a typed column is at most 16 bytes a row, or as large as its texts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.schema import Column
from lakeproof.values.parse.numbers import are_plain_floats, parse_bools, parse_decimals, parse_integers
from lakeproof.values.parse.texts import copy_texts, find_offsets, find_validity, parse_hex
from lakeproof.values.parse.times import parse_days, parse_instants
from lakeproof.values.types import Form, arrow_type, decimal_size, kind_of, refuse_form

# The size of a span without a text: NULL, or a value that the server left out as unchanged.
NULL, UNCHANGED = -1, -2
# Arrow's offsets are 32 bits wide. A batch's messages have fewer bytes than that, but an update's unchanged value is only in
# its old image and becomes two texts.
TEXT_BYTES_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Spans:
    """One column: row i's text has `size[i]` bytes from `start[i]` on in `octets`; a negative size means no text.

    `missing` is the number of rows without a text. Every span lies within `octets`, which becomes read-only: the loops do
    not check the bounds again, and are compiled for read-only arrays.
    """

    octets: npt.NDArray[np.uint8]
    start: npt.NDArray[np.int32]
    size: npt.NDArray[np.int32]
    missing: int

    def __post_init__(self) -> None:
        self.octets.flags.writeable = False

    def __len__(self) -> int:
        return len(self.size)

    def texts(self) -> pa.Array:
        """Return the texts as strings, or as binary if one of them is not UTF-8."""
        offsets = np.empty(len(self) + 1, np.int32)
        total = find_offsets(self.size, offsets)
        if total > TEXT_BYTES_MAX:
            raise pa.ArrowCapacityError(f"a column of a batch has {total} bytes of text")
        out = np.empty(total, np.uint8)
        ascii_alone = copy_texts(self.octets, self.start, self.size, out)
        arrow = pa.string() if ascii_alone else pa.binary()
        texts = self.array(arrow, pa.py_buffer(offsets), pa.py_buffer(out))
        if ascii_alone:
            return texts
        try:
            return texts.cast(pa.string())
        except pa.ArrowInvalid:
            return texts

    def array(self, arrow: pa.DataType, *buffers: pa.Buffer) -> pa.Array:
        """Return an Arrow array of these buffers, NULL for rows without a text."""
        return pa.Array.from_buffers(arrow, len(self), [self._validity(), *buffers], self.missing)

    def _validity(self) -> pa.Buffer | None:
        if not self.missing:
            return None
        bits = np.zeros((len(self) + 7) // 8, np.uint8)
        find_validity(self.size, bits)
        return pa.py_buffer(bits)


def cast_spans(spans: Spans, column: Column) -> pa.Array | None:
    """Return the column's typed values, None if `cast_column` has to read the texts."""
    kind = kind_of(column)
    if kind.element is not None:
        return None
    match kind.form:
        case Form.TEXT:
            return _texts(spans)
        case Form.BOOL:
            return _bools(spans, column)
        case Form.WHOLE:
            return _integers(spans, column)
        case Form.FLOAT:
            return _floats(spans, column)
        case Form.DECIMAL:
            return _decimals(spans, column)
        case Form.OCTETS:
            return _bytes(spans, column)
        case Form.DAY:
            return _days(spans, column)
        case Form.CLOCK | Form.INSTANT:
            return _instants(spans, column, has_zone=kind.form is Form.INSTANT)
        case other:
            return refuse_form(other)


def _texts(spans: Spans) -> pa.Array | None:
    texts = spans.texts()
    return texts if pa.types.is_string(texts.type) else None


def _bools(spans: Spans, column: Column) -> pa.Array | None:
    bits = np.zeros((len(spans) + 7) // 8, np.uint8)
    if not parse_bools(spans.octets, spans.start, spans.size, bits):
        return None
    return spans.array(arrow_type(column), pa.py_buffer(bits))


def _integers(spans: Spans, column: Column) -> pa.Array | None:
    arrow = arrow_type(column)
    limit = 1 << (arrow.bit_width - 1)
    values = np.empty(len(spans), np.int64)
    if not parse_integers(spans.octets, spans.start, spans.size, -limit, limit - 1, values):
        return None
    return spans.array(arrow, pa.py_buffer(values.astype(f"i{arrow.bit_width // 8}", copy=False)))


def _floats(spans: Spans, column: Column) -> pa.Array | None:
    """Parse with Arrow, which is exact; PostgreSQL never prints a text that Arrow reads as infinite."""
    if not are_plain_floats(spans.octets, spans.start, spans.size):
        return None
    values = spans.texts().cast(arrow_type(column))
    return None if pc.any(pc.is_inf(values)).as_py() else values


def _decimals(spans: Spans, column: Column) -> pa.Array | None:
    precision, scale = decimal_size(column.typmod)
    values = np.empty(2 * len(spans), np.uint64)
    if not parse_decimals(spans.octets, spans.start, spans.size, precision, scale, values):
        return None
    return spans.array(arrow_type(column), pa.py_buffer(values))


def _bytes(spans: Spans, column: Column) -> pa.Array | None:
    # Half of the texts' bytes, so that the offsets fit whatever `TEXT_BYTES_MAX` says.
    offsets = np.empty(len(spans) + 1, np.int32)
    out = np.empty(find_offsets(spans.size, offsets) // 2, np.uint8)
    used = parse_hex(spans.octets, spans.start, spans.size, offsets, out)
    if used < 0:
        return None
    return spans.array(arrow_type(column), pa.py_buffer(offsets), pa.py_buffer(out[:used]))


def _days(spans: Spans, column: Column) -> pa.Array | None:
    values = np.empty(len(spans), np.int32)
    if not parse_days(spans.octets, spans.start, spans.size, values):
        return None
    return spans.array(arrow_type(column), pa.py_buffer(values))


def _instants(spans: Spans, column: Column, *, has_zone: bool) -> pa.Array | None:
    values = np.empty(len(spans), np.int64)
    if not parse_instants(spans.octets, spans.start, spans.size, has_zone, values):
        return None
    return spans.array(arrow_type(column), pa.py_buffer(values))
