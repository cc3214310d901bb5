r"""COPY's text format, a block of whole rows, to spans: where each value of each column stands in the block.

Reading blocks from a connection belongs to `copy.py`, the values to `wal2delta.values`.

    1 ⇥ a\tb ⇥ \N ⏎      fields end at a tab or a newline, a NULL is `\N`, and a backslash stands before what would be taken
                         for one of these: `\b \f \n \r \t \v` are control characters, any other character is itself

A value is unescaped where it stands, which only makes it shorter: one pass over the block, and nothing is copied here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from wal2delta.values.compiled import compiled
from wal2delta.values.spans import NULL, Spans

_TAB, _NEWLINE, _BACKSLASH, _N = b"\t\n\\N"
_MORE_ROWS, _MORE_FIELDS, _FEWER_FIELDS, _CUT_OFF = -1, -2, -3, -4

# What stands after a backslash, by its byte: the control characters by their letters, any other byte for itself.
_ESCAPED = np.arange(256, dtype=np.uint8)
_ESCAPED[np.frombuffer(b"bfnrtv", np.uint8)] = np.frombuffer(b"\b\f\n\r\t\v", np.uint8)


def split(block: bytearray, rows: int, columns: int) -> list[Spans]:
    """The columns of a block of exactly `rows` rows of `columns` fields; the block is unescaped in place.

    Raises ValueError where the block is not that.
    """
    octets = np.frombuffer(block, np.uint8)
    start = np.empty((columns, rows), np.int32)
    size = np.empty((columns, rows), np.int32)
    missing = np.zeros(columns, np.int64)
    found = _split(octets, _ESCAPED, start, size, missing)
    if found != rows:
        raise ValueError(f"a block of COPY is not {rows} rows of {columns} fields ({found})")
    return [Spans(octets, *column) for column in zip(start, size, missing.tolist(), strict=True)]


@compiled
def _split(
    octets: npt.NDArray[np.uint8],
    escaped: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int32],
    size: npt.NDArray[np.int32],
    missing: npt.NDArray[np.int64],
) -> int:
    """Fill the spans; how many rows there were, or what is wrong with the block."""
    columns, most = start.shape
    end = len(octets)
    if end and octets[end - 1] != _NEWLINE:
        return _CUT_OFF
    row = column = at = 0
    while at < end:
        if row == most:
            return _MORE_ROWS
        begin = kept = at
        null = False
        octet = octets[at]
        # The last byte is a newline: a field ends there at the latest, unless that newline is escaped.
        while octet not in (_TAB, _NEWLINE):
            if octet == _BACKSLASH:
                at += 1
                if at == end - 1:
                    return _CUT_OFF
                if octets[at] == _N and at == begin + 1:
                    null = True
                octet = escaped[octets[at]]
            if kept != at:
                octets[kept] = octet
            kept += 1
            at += 1
            octet = octets[at]
        if column == columns:
            return _MORE_FIELDS
        start[column, row] = begin
        size[column, row] = NULL if null else kept - begin
        missing[column] += null
        column += 1
        if octet == _NEWLINE:
            if column != columns:
                return _FEWER_FIELDS
            column = 0
            row += 1
        at += 1
    return row
