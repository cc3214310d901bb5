"""Walks the tuples of one table's messages row by row into cells, in one compiled pass over the bytes.

    message   I | oid | N | count | t len ...text... | n | u |
    cells     start, size by column and row: a text's offset, or NULL, or UNCHANGED (`lakeproof.values.parse.spans`)

Every length is checked against its message's end before anything after it is read, so nothing outside a message is touched.
An unchanged value takes the text of the old image if that has one.

Memory: 8 bytes per cell; a cell has at least one byte in its message, so at most 8 times the messages.

`lakeproof.values` gives the texts a meaning; `table_rows.py` adds each row's place in the stream.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lakeproof.pgoutput.message_buffer import Ints, MessageBuffer, Octets
from lakeproof.pgoutput.messages import Delete, Insert, Truncate
from lakeproof.pgoutput.rows import BEFORE, DELETE, INSERT, TRUNCATE, UPDATE
from lakeproof.pgoutput.tags import tags_of
from lakeproof.values.compiled import compiled
from lakeproof.values.parse.spans import NULL, UNCHANGED

_TEXT_TAG, _NULL_TAG, _UNCHANGED_TAG = b"tnu"
_INSERT_TAG, _DELETE_TAG, _TRUNCATE_TAG = tags_of(Insert, Delete, Truncate)
_NEW, _KEY, _ROW = b"NKO"

# The loop returns the negative of an index into these.
_REASONS = (
    "",
    "the message ends in a tuple's count",
    "a tuple does not have the columns of its relation",
    "the message ends before a value",
    "the message ends in a length",
    "a value is longer than its message",
    "a value's tag is unknown or binary",
    "a tuple begins with an unknown letter",
    "an old image has an unchanged value",
    "no new tuple follows the old one",
    "a value is unchanged that the old row does not have",
    "bytes are left over",
)
(
    _NO_COUNT,
    _WRONG_COUNT,
    _NO_VALUE,
    _NO_LENGTH,
    _TOO_LONG,
    _WRONG_TAG,
    _WRONG_LETTER,
    _OLD_UNCHANGED,
    _NO_NEW,
    _NEVER_HAD,
    _LEFT_OVER,
) = range(-1, -len(_REASONS), -1)

Cells = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TupleRows:
    """Rows in stream order: the message and the operation of each, and the cells by column and row.

    `missing` counts for each column the rows without a text, `unchanged` those of them that are UNCHANGED.
    """

    message: Ints
    operation: Octets
    start: Cells
    size: Cells
    missing: Ints
    unchanged: Ints


def walk(buffer: MessageBuffer, items: Ints, rows: int, columns: int) -> TupleRows:
    """Return the rows of these messages, ascending, of one table with so many columns.

    Changes have 8 bytes at least. A Truncate message is among `items` once for each of its rows of this table. `rows` is the
    total number of rows. Raises ProtocolError.
    """
    message, operation = np.empty(rows, np.int64), np.empty(rows, np.uint8)
    start, size = np.empty((columns, rows), np.int32), np.empty((columns, rows), np.int32)
    missing, unchanged = np.zeros(columns, np.int64), np.zeros(columns, np.int64)
    failed, reason = _walk(
        buffer.octets, buffer.start, buffer.end, items, message, operation, start, size, missing, unchanged
    )
    if reason:
        buffer.refuse(int(failed), _REASONS[-reason])
    return TupleRows(message, operation, start, size, missing, unchanged)


@compiled
def _walk(
    octets: Octets,
    begins: Ints,
    end: Ints,
    items: Ints,
    message: Ints,
    operation: Octets,
    start: Cells,
    size: Cells,
    missing: Ints,
    unchanged: Ints,
) -> tuple[int, int]:
    """Fill the arrays; returns the message at which it failed and the reason, or (0, 0)."""
    # Typed, since a bare 0 has its own type: the functions called with it would be compiled twice.
    row = np.int64(0)
    for item in items:
        tag = octets[begins[item]]
        message[row] = item
        if tag == _TRUNCATE_TAG:
            operation[row] = TRUNCATE
            _no_values(row, start, size, missing)
            row += 1
            continue
        stop = end[item]
        letter = octets[begins[item] + 5]
        is_old = letter in (_KEY, _ROW)
        if (letter != _NEW and not is_old) or (tag == _INSERT_TAG and is_old) or (tag == _DELETE_TAG and not is_old):
            return item, _WRONG_LETTER
        place = _tuple(octets, begins[item] + 6, stop, row, start, size, missing, unchanged)
        if place >= 0 and is_old and _has_unchanged(row, size):
            place = _OLD_UNCHANGED
        operation[row] = INSERT if tag == _INSERT_TAG else DELETE if tag == _DELETE_TAG else UPDATE
        if place >= 0 and is_old and tag != _DELETE_TAG:
            operation[row] = BEFORE
            row += 1
            message[row] = item
            operation[row] = UPDATE
            place = _second_tuple(octets, place, stop, row, letter == _ROW, start, size, missing, unchanged)
        if place < 0:
            return item, place
        if place != stop:
            return item, _LEFT_OVER
        row += 1
    return 0, 0


@compiled
def _no_values(row: int, start: Cells, size: Cells, missing: Ints) -> None:
    for column in range(len(start)):
        start[column, row] = 0
        size[column, row] = NULL
        missing[column] += 1


@compiled
def _has_unchanged(row: int, size: Cells) -> bool:
    unchanged = False
    for column in range(len(size)):
        unchanged |= size[column, row] == UNCHANGED
    return unchanged


@compiled
def _tuple(
    octets: Octets, place: int, stop: int, row: int, start: Cells, size: Cells, missing: Ints, unchanged: Ints
) -> int:
    """Fill the cells of the tuple whose count is at `place`; returns the offset after it, or a reason."""
    if place + 2 > stop:
        return _NO_COUNT
    if (np.int64(octets[place]) << 8) + np.int64(octets[place + 1]) != len(start):
        return _WRONG_COUNT
    place += 2
    for column in range(len(start)):
        if place >= stop:
            return _NO_VALUE
        tag = octets[place]
        place += 1
        if tag == _TEXT_TAG:
            if place + 4 > stop:
                return _NO_LENGTH
            length = np.int64(octets[place]) << 24 | np.int64(octets[place + 1]) << 16
            length |= np.int64(octets[place + 2]) << 8 | np.int64(octets[place + 3])
            place += 4
            if length > stop - place:
                return _TOO_LONG
            start[column, row] = place
            size[column, row] = length
            place += length
        elif tag == _NULL_TAG:
            start[column, row] = place
            size[column, row] = NULL
            missing[column] += 1
        elif tag == _UNCHANGED_TAG:
            start[column, row] = place
            size[column, row] = UNCHANGED
            missing[column] += 1
            unchanged[column] += 1
        else:
            return _WRONG_TAG
    return place


@compiled
def _second_tuple(
    octets: Octets,
    place: int,
    stop: int,
    row: int,
    whole_old: bool,
    start: Cells,
    size: Cells,
    missing: Ints,
    unchanged: Ints,
) -> int:
    """Read the new tuple after an old one; unchanged values take the texts of the row above. Returns as `_tuple`."""
    if place >= stop or octets[place] != _NEW:
        return _NO_NEW
    place = _tuple(octets, place + 1, stop, row, start, size, missing, unchanged)
    if place < 0:
        return place
    for column in range(len(start)):
        if size[column, row] == UNCHANGED:
            if size[column, row - 1] >= 0:
                start[column, row] = start[column, row - 1]
                size[column, row] = size[column, row - 1]
                missing[column] -= 1
                unchanged[column] -= 1
            elif whole_old:
                return _NEVER_HAD
    return place
