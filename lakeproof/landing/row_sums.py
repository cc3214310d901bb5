"""The sum of the hashes of rows, as a cut's `history_sum` has it, computed from Arrow while the rows are written.

The same sum of rows that Spark reads is `lakeproof.lake.rows.history_sum`, with its definition; a test holds the two equal.
The loops over values are in `lakeproof.values.xxhash`.

A linked file's rows are in history without anybody having read them, so their sum comes from whoever wrote the file, from
the values before they were encoded. The sum that a proof reads from history is therefore not computed from the same bytes.

A list's elements are mixed by position: the first elements of all rows, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.hidden_columns import HIDDEN_PREFIX
from lakeproof.values.xxhash import (
    SEED,
    Flags,
    Hashes,
    Octets,
    Offsets,
    Words,
    decimal_octets,
    mix_octets,
    mix_tag,
    mix_words,
    sum_hashes,
)

_BITS = 60
_ZERO_TEXTS = ("0.0", "-0.0")
_CANONICAL_NAN = 0x7FF8000000000000


class RowSum:
    """A running sum over batches of rows; `numbers`: column → its attribute number, 0 if the catalog does not know it."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self.rows = 0
        self._total = 0

    @property
    def total(self) -> int:
        """The sum so far, modulo 2**60."""
        return self._total % (1 << _BITS)

    def add(self, rows: pa.RecordBatch, constants: Mapping[str, pa.Scalar] | None = None) -> None:
        """Add rows; `constants` are columns that have one value in all of them."""
        hashes = np.full(rows.num_rows, SEED, np.uint64)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        names = {*columns, *(constants or {})}
        for tag, name in sorted((self._tag(name), name) for name in names):
            column = columns[name] if name in columns else pa.repeat((constants or {})[name], rows.num_rows)
            _mix_tagged(hashes, tag, column)
        self.rows += rows.num_rows
        self._total += int(sum_hashes(hashes))

    def _tag(self, name: str) -> str:
        number = self._numbers.get(name, 0)
        return f"{number:05d}" if number and not name.startswith(HIDDEN_PREFIX) else name


def _mix_tagged(hashes: Hashes, tag: str, column: pa.Array) -> None:
    if column.null_count == len(column):
        return
    valid = _valid(column)
    mix_tag(hashes, valid, np.frombuffer(tag.encode(), np.uint8))
    if pa.types.is_list(column.type):
        _mix_lists(hashes, valid, column)
    else:
        _mix(hashes, valid, column)


def _mix_lists(hashes: Hashes, valid: Flags, column: pa.Array) -> None:
    """Mix each list's size, and for each element whether it is NULL, and its value."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.where(valid, np.diff(offsets), 0)
    mix_words(hashes, valid, sizes, True)
    for position in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > position)
        elements = column.values.take(pa.array(offsets[rows] + position))
        part = hashes[rows]
        present = _valid(elements)
        mix_words(part, np.ones(len(rows), np.bool_), (~present).astype(np.int64), True)
        _mix(part, present, elements)
        hashes[rows] = part


def _mix(hashes: Hashes, valid: Flags, column: pa.Array) -> None:
    kind = column.type
    if pa.types.is_floating(kind):
        _mix_floats(hashes, valid, column)
    elif pa.types.is_decimal128(kind):
        octets, offsets = np.empty(16 * len(column), np.uint8), np.zeros(len(column) + 1, np.int64)
        halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
        decimal_octets(halves, octets, offsets)
        mix_octets(hashes, valid, octets, offsets)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        mix_octets(hashes, valid, *_texts(column))
    elif pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        whole = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int8())
        mix_words(hashes, valid, _words(whole), True)
    else:
        mix_words(hashes, valid, _words(column), False)


def _mix_floats(hashes: Hashes, valid: Flags, column: pa.Array) -> None:
    """Mix floats as doubles by their bits, every NaN alike, and -0 as 0; then the text of a zero, which has its sign."""
    doubles = pc.fill_null(column.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    bits = np.where(doubles == 0, 0.0, doubles).view(np.int64)
    mix_words(hashes, valid, np.where(np.isnan(doubles), _CANONICAL_NAN, bits), False)
    for text, negative in zip(_ZERO_TEXTS, (False, True), strict=True):
        mix_tag(
            hashes, valid & (doubles == 0) & (np.signbit(doubles) == negative), np.frombuffer(text.encode(), np.uint8)
        )


def _valid(column: pa.Array) -> Flags:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _words(column: pa.Array) -> Words:
    """Return whole numbers, days or times as words; those of NULL may be anything."""
    whole = column.view(pa.int64()) if pa.types.is_timestamp(column.type) else column
    return np.asarray(pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)).astype(np.int64, copy=False)


def _texts(column: pa.Array) -> tuple[Octets, Offsets]:
    """Return a text column's octets and offsets."""
    _, offsets, octets = column.buffers()
    places = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(octets or b"", np.uint8), places
