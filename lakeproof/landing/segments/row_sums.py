"""The sum of the hashes of rows, as a cut's `history_sum` has it, computed from Arrow while the rows are written.

The same sum of rows that Spark reads is `lakeproof.lake.rows.history_sum`, with its definition; a test holds the two equal.
The loops over values are in `lakeproof.values.xxhash`.

A linked file's rows are in history without anybody having read them, so their sum comes from whoever wrote the file, from
the values before they were encoded. The sum that a proof reads from history is therefore not computed from the same bytes.

A list's elements are mixed by position: the first elements of all rows, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeproof.landing.segments.row_tags import Tag, attribute_number, tagged
from lakeproof.values.compiled import frozen, text_buffers
from lakeproof.values.loading import loading
from lakeproof.values.xxhash import (
    NO_TAG,
    SEED,
    Flags,
    Hashes,
    Words,
    mix_chosen,
    mix_decimals,
    mix_octets,
    mix_words,
    sum_hashes,
)

_BITS = 60
_ZERO_TEXTS = ("0.0", "-0.0")
_CANONICAL_NAN = 0x7FF8000000000000
# Of so many rows at a time the hashes stay in the processor's cache, and a column's words take little memory.
_ROWS_AT_ONCE = 1 << 14
# More octets than this are not copied to have them in one piece.
_BYTES_AT_ONCE = 16 << 20
_EVERY = np.zeros(0, np.bool_)


class RowSum:
    """A running sum over batches of rows.

    `numbers`: column → its attribute number, 0 if the catalog does not know it. `constants` are hidden columns that have one
    value in all rows.
    """

    def __init__(self, numbers: Mapping[str, int], constants: Mapping[str, pa.Scalar] | None = None) -> None:
        self._numbers = dict(numbers)
        self._constants = dict(constants or {})
        self._order: list[tuple[Tag, str]] = []
        self._seed = SEED
        self.rows = 0
        self._total = 0

    @property
    def total(self) -> int:
        """The sum so far, modulo 2**60."""
        return self._total % (1 << _BITS)

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Add rows; all have the same columns. A table's batches may be small."""
        if not self._order:
            self._begin(rows.schema.names)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            hashes = np.full(min(_ROWS_AT_ONCE, rows.num_rows - start), self._seed, np.uint64)
            for tag, name in self._order:
                column = columns[name].slice(start, _ROWS_AT_ONCE)
                first = 0
                for part in _parts(column):
                    _mix_tagged(hashes[first : first + len(part)], tag, part)
                    first += len(part)
            self._total += int(sum_hashes(hashes))
        self.rows += rows.num_rows

    def _begin(self, names: Iterable[str]) -> None:
        """Put the columns in order; take the constants at its beginning once for all rows."""
        names = [*names, *self._constants]
        self._order = tagged({name: attribute_number(name, self._numbers) for name in names})
        seed = np.full(1, SEED, np.uint64)
        for tag, name in self._order[: len(self._constants)]:
            if name not in self._constants:
                raise ValueError(f"{name} comes before a constant")
            _mix_tagged(seed, tag, pa.array([self._constants[name].as_py()], self._constants[name].type))
        self._seed = seed[0]
        self._order = self._order[len(self._constants) :]


def warm_up_sums() -> None:
    """Run every loop once, so that no row waits for the compiler; raises InvariantError if one can't be loaded."""
    values = [pa.array([1]), pa.array(["a"]), pa.array(["a"]).dictionary_encode(), pa.array([Decimal(10**20)])]
    with loading():
        RowSum({}).add(pa.record_batch(values, [str(n) for n in range(len(values))]))


def _parts(column: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """Return the column in pieces: one, unless that would be large."""
    if isinstance(column, pa.Array):
        return [column]
    if column.num_chunks == 1 or column.nbytes > _BYTES_AT_ONCE:
        return list(column.chunks)
    return [column.combine_chunks()]


def _mix_tagged(hashes: Hashes, tag: Tag, column: pa.Array) -> None:
    if column.null_count == len(column):
        return
    valid = _valid(column)
    if isinstance(tag, str):
        _mix_text(hashes, valid, tag)
    number = tag if isinstance(tag, int) else NO_TAG
    if pa.types.is_list(column.type):
        _mix_lists(hashes, valid, column, number)
    else:
        _mix(hashes, valid, column, number)


def _mix_lists(hashes: Hashes, valid: Flags, column: pa.Array, tag: int) -> None:
    """Mix each list's size, and for each element whether it is NULL, and its value."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    sizes = np.diff(offsets)
    if len(valid):
        sizes = np.where(valid, sizes, 0)
    mix_words(hashes, valid, frozen(sizes), True, tag)
    for position in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > position)
        elements = column.values.take(pa.array(offsets[rows] + position))
        part = hashes[rows]
        present = _valid(elements)
        absent = (~present).astype(np.int64) if len(present) else np.zeros(len(rows), np.int64)
        mix_words(part, _EVERY, frozen(absent), True, NO_TAG)
        if elements.null_count < len(elements):
            _mix(part, present, elements, NO_TAG)
        hashes[rows] = part


def _mix(hashes: Hashes, valid: Flags, column: pa.Array, tag: int) -> None:
    kind = column.type
    if pa.types.is_floating(kind):
        _mix_floats(hashes, valid, column, tag)
    elif pa.types.is_decimal128(kind):
        halves = np.frombuffer(column.buffers()[1], np.int64)[2 * column.offset : 2 * (column.offset + len(column))]
        mix_decimals(hashes, valid, frozen(halves), tag)
    elif pa.types.is_dictionary(kind):
        mix_chosen(hashes, valid, _words(column.indices), *text_buffers(column.dictionary), tag)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        mix_octets(hashes, valid, *text_buffers(column), tag)
    elif pa.types.is_boolean(kind):
        mix_words(hashes, valid, _words(column.cast(pa.int8())), True, tag)
    else:
        mix_words(hashes, valid, _words(column), pa.types.is_date32(kind), tag)


def _mix_floats(hashes: Hashes, valid: Flags, column: pa.Array, tag: int) -> None:
    """Mix floats as doubles by their bits, every NaN alike, and -0 as 0; then the text of a zero, which has its sign."""
    doubles = _values(column, np.float32 if pa.types.is_float32(column.type) else np.float64).astype(np.float64)
    zero, nan = doubles == 0, np.isnan(doubles)
    bits = doubles.view(np.int64).copy()
    bits[zero] = 0
    bits[nan] = _CANONICAL_NAN
    mix_words(hashes, valid, frozen(bits), False, tag)
    if zero.any():
        present = zero & valid if len(valid) else zero
        for text, negative in zip(_ZERO_TEXTS, (False, True), strict=True):
            _mix_text(hashes, present & (np.signbit(doubles) == negative), text)


def _mix_text(hashes: Hashes, valid: Flags, text: str) -> None:
    """Mix one text into the hashes of the rows that have a value."""
    rows = np.flatnonzero(valid) if len(valid) else np.arange(len(hashes))
    part = hashes[rows]
    mix_chosen(part, _EVERY, frozen(np.zeros(len(part), np.int64)), *text_buffers(pa.array([text])), NO_TAG)
    hashes[rows] = part


def _valid(column: pa.Array) -> Flags:
    """Return which rows have a value; nothing if all have."""
    if not column.null_count:
        return _EVERY
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def _values(column: pa.Array, kind: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """Return the values as the buffer has them; those of NULL may be anything."""
    values: npt.NDArray[np.generic] = np.frombuffer(column.buffers()[1], kind)
    return values[column.offset : column.offset + len(column)]


def _words(column: pa.Array) -> Words:
    """Return whole numbers, days or times as words."""
    return frozen(_values(column, f"i{column.type.bit_width // 8}").astype(np.int64, copy=False))
