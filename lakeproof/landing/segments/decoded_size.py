"""Counts the memory that a file's decoded rows take: all rows together, and one row at most.

`lakeproof.lake.rows.memory` uses it to choose how the rows are read and written.

A file's size says little about it: a megabyte of equal texts becomes gigabytes for its reader. So the writer of a file
counts before anything is compressed, by column and not by row: no row has more than the largest values of all columns
together.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.landing.segments.manifest import Decoded

_BITS = 8


class DecodedCount:
    """Counts a file's rows while they are written."""

    def __init__(self) -> None:
        self._bytes = 0
        self._largest: dict[str, int] = {}

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Count rows; all have the same columns."""
        self._bytes += rows.nbytes
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            self._largest[name] = max(self._largest.get(name, 0), largest_value(column))

    @property
    def so_far(self) -> Decoded:
        """The count so far."""
        return Decoded(self._bytes, sum(self._largest.values()))


def largest_value(column: pa.Array | pa.ChunkedArray) -> int:
    """Return the bytes of the largest value."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return max((_largest(chunk) for chunk in chunks if len(chunk)), default=0)


def _largest(values: pa.Array) -> int:
    if pa.types.is_list(values.type):
        return _largest_list(values)
    if _has_lengths(values.type):
        return pc.max(pc.binary_length(values)).as_py() or 0
    return _width(values.type)


def _largest_list(values: pa.Array) -> int:
    counts = pc.fill_null(pc.list_value_length(values), 0).to_numpy()
    elements = values.flatten()
    if not _has_lengths(elements.type):
        return int(counts.max()) * _width(elements.type)
    lengths = pc.fill_null(pc.binary_length(elements), 0).to_numpy().astype(np.int64)
    ends = np.concatenate(([0], np.cumsum(lengths)))[np.cumsum(counts)]
    return int(np.diff(ends, prepend=0).max())


def _has_lengths(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_binary(arrow))


def _width(arrow: pa.DataType) -> int:
    if pa.types.is_dictionary(arrow):
        return _width(arrow.index_type)
    return -(-int(arrow.bit_width) // _BITS)
