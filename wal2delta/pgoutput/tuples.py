"""The tuples of many messages of one table, walked column by column.

    message   I | oid | N | count | t len ...text... | n | u |
                            at ───►│ column 0 ───────►│ 1 │ 2 │ ◄── end

All messages stand before their column j at once: one read of the tags, one of the lengths, one step. The cost is a few array
operations per column, none per value. Every step is checked against its message's end before the next.

Which row a tuple becomes belongs to `batch.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from wal2delta.pgoutput.wire import Flags, Ints, Octets, Wire

TEXT, NULL, UNCHANGED = ord("t"), ord("n"), ord("u")


@dataclass(frozen=True, slots=True)
class Cells:
    """One column: the tag of each value, and where in the buffer its text stands.

    `start` never decreases along the rows: a value without text has size 0 and the place after its tag.
    """

    tag: Octets
    start: npt.NDArray[np.int32]
    size: npt.NDArray[np.int32]

    @classmethod
    def concatenate(cls, parts: Sequence[Cells], order: Ints) -> Cells:
        """The cells of `parts` one after the other, then taken in `order`."""
        return cls(
            np.concatenate([part.tag for part in parts])[order],
            np.concatenate([part.start for part in parts])[order],
            np.concatenate([part.size for part in parts])[order],
        )

    @classmethod
    def empty(cls, start: Ints) -> Cells:
        """NULLs at these places."""
        rows = len(start)
        return cls(np.full(rows, NULL, np.uint8), start.astype(np.int32), np.zeros(rows, np.int32))


def walk(wire: Wire, messages: Ints, at: Ints, columns: int) -> tuple[list[Cells], Ints]:
    """The cells of one tuple per message, each beginning at `at` with its count, and the offsets after them.

    Raises ProtocolError where a tuple has another count than `columns`, runs past its message, or has an unknown tag.
    """
    end = wire.end[messages]
    _require(wire, messages, at + 2 <= end, "the message ends in a tuple's count")
    _require(wire, messages, wire.uint16(at) == columns, f"a tuple does not have the {columns} columns of its relation")
    at = at + 2
    cells = []
    for _ in range(columns):
        _require(wire, messages, at < end, "the message ends before a value")
        tag = wire.octets[at]
        at = at + 1
        is_text = tag == TEXT
        _require(wire, messages, is_text | (tag == NULL) | (tag == UNCHANGED), "a value's tag is unknown or binary")
        if is_text.all():
            _require(wire, messages, at + 4 <= end, "the message ends in a length")
            size, at = wire.int32(at), at + 4
        else:
            _require(wire, messages, ~is_text | (at + 4 <= end), "the message ends in a length")
            size = np.where(is_text, wire.int32(np.where(is_text, at, 0)), 0)
            at = at + np.where(is_text, 4, 0)
        _require(wire, messages, (size >= 0) & (size <= end - at), "a value is longer than its message")
        cells.append(Cells(tag, at.astype(np.int32), size.astype(np.int32)))
        at = at + size
    return cells, at


def gather(wire: Wire, cells: Cells, source: Ints) -> pa.Array:
    """The texts of a column as a binary array, row i's from the cell `source[i]`; NULL where that has no text.

    The starts and ends are themselves an Arrow array over the buffer: every other element of it is a value, the ones between
    are the bytes in between. So a `take` copies the texts, and nothing is done per value here.
    """
    rows = len(cells.start)
    if rows == 0:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * rows, np.int32)
    bounds[0::2] = cells.start
    bounds[1::2] = cells.start + cells.size
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(wire.data)]
    spans = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, buffers)
    missing = cells.tag[source] != TEXT
    return spans.take(pa.array(2 * source, mask=missing if missing.any() else None))


def _require(wire: Wire, messages: Ints, good: Flags, reason: str) -> None:
    if not good.all():
        wire.refuse(int(messages[np.flatnonzero(~good)[0]]), reason)
