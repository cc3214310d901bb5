r"""Splits COPY's text format, one message per row, into spans: the place of each value of each column in the block.

    1 ⇥ a\tb ⇥ \N ⏎      fields end at a tab or a newline, NULL is `\N`, and a backslash stands before a character that
                         would be taken for one of these: `\b \f \n \r \t \v` are control characters, any other character
                         is itself

A value is unescaped in place, which only makes it shorter: one pass over the block, and nothing is copied here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lakeproof.errors import InvariantError
from lakeproof.pgoutput.message_buffer import Ints, MessageBuffer, Octets
from lakeproof.values.compiled import compiled
from lakeproof.values.parse.spans import NULL, Spans

_TAB, _NEWLINE, _BACKSLASH, _N = b"\t\n\\N"
_MORE_ROWS, _MORE_FIELDS, _FEWER_FIELDS, _CUT_OFF = -1, -2, -3, -4

# The meaning of a byte after a backslash: letters of control characters stand for these, any other byte for itself.
_ESCAPED = np.arange(256, dtype=np.uint8)
_ESCAPED[np.frombuffer(b"bfnrtv", np.uint8)] = np.frombuffer(b"\b\f\n\r\t\v", np.uint8)


def split(wire: MessageBuffer, columns: int) -> list[Spans]:
    """Return the columns of messages that are rows of `columns` fields each; values are unescaped in place.

    Raises InvariantError if a message is no such row.
    """
    rows = len(wire)
    start = np.empty((columns, rows), np.int32)
    size = np.empty((columns, rows), np.int32)
    missing = np.zeros(columns, np.int64)
    wrong = _split(wire.octets, wire.start, wire.end, _ESCAPED, start, size, missing)
    if wrong:
        reason = f"the server's {rows} messages are not rows of {columns} fields each ({wrong})"
        raise InvariantError("COPY", reason, "connect to PostgreSQL directly, without a proxy; else report this")
    return [Spans(wire.octets, *column) for column in zip(start, size, missing.tolist(), strict=True)]


@compiled
def _split(
    octets: Octets,
    begins: Ints,
    ends: Ints,
    escaped: Octets,
    start: npt.NDArray[np.int32],
    size: npt.NDArray[np.int32],
    missing: npt.NDArray[np.int64],
) -> int:
    """Fill the spans; return the fault of the rows, or 0."""
    columns = len(start)
    for row in range(len(begins)):
        place, last = begins[row], ends[row] - 1
        if last < place or octets[last] != _NEWLINE:
            return _CUT_OFF
        column = 0
        while place <= last:
            begin = kept = place
            null = False
            octet = octets[place]
            # The last byte is a newline: a field ends there at the latest, unless that newline is escaped.
            while octet not in (_TAB, _NEWLINE):
                if octet == _BACKSLASH:
                    place += 1
                    if place == last:
                        return _CUT_OFF
                    if octets[place] == _N and place == begin + 1:
                        null = True
                    octet = escaped[octets[place]]
                if kept != place:
                    octets[kept] = octet
                kept += 1
                place += 1
                octet = octets[place]
            if column == columns:
                return _MORE_FIELDS
            if octet == _NEWLINE and place != last:
                return _MORE_ROWS
            start[column, row] = begin
            size[column, row] = NULL if null else kept - begin
            missing[column] += null
            column += 1
            place += 1
        if column != columns:
            return _FEWER_FIELDS
    return 0


def warm_up_copy_text() -> None:
    """Load the loop, or compile it the first time on a machine."""
    split(MessageBuffer(np.frombuffer(bytearray(b"1\n"), np.uint8), np.array([0]), np.array([2])), 1)
