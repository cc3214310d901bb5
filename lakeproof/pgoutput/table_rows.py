"""One table's changes in a batch to its record batch: the walked tuples with their place in the stream, cast by column.

Finding the changes belongs to `batch.py`, walking their bytes to `tuples.py`, the columns' schema to `rows.py`. What is
imported here is compiled: `batch.py` imports it when it first decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeproof.pgoutput.controls import TruncatedTable
from lakeproof.pgoutput.message_buffer import Ints, Wire
from lakeproof.pgoutput.rows import (
    TRUNCATE,
    UPDATE,
    ChangeCounts,
    HiddenColumns,
    TableChanges,
    operations,
    record_batch,
)
from lakeproof.pgoutput.transaction_positions import Places
from lakeproof.pgoutput.tuples import Rows, walk
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import Cast
from lakeproof.values.spans import UNCHANGED, Spans, cast_spans


@dataclass(frozen=True, slots=True)
class Run:
    """Changes of one table under one version: message indices, ascending, and its truncations, likewise."""

    version: SchemaVersion
    messages: Ints
    truncated: list[TruncatedTable]


@dataclass(frozen=True, slots=True)
class Numbers:
    """Of each message of a batch: its first change's seq, its first row's number, and how many rows it makes."""

    seq: Ints
    first_row: Ints
    rows: Ints


def table_changes(wire: Wire, places: Places, numbers: Numbers, run: Run) -> TableChanges:
    """The rows of a run; raises ProtocolError."""
    cut = np.array([table.message for table in run.truncated], np.int64)
    items = np.sort(np.concatenate((run.messages, cut)), kind="stable") if len(cut) else run.messages
    rows = walk(wire, items, int(numbers.rows[run.messages].sum()) + len(cut), len(run.version.columns))
    seq, row = numbers.seq[rows.message], numbers.first_row[rows.message]
    # The second row of a message is the one right below its `before`.
    row[1:] += (rows.message[1:] == rows.message[:-1]) & (rows.operation[1:] == UPDATE)
    if len(cut):
        here = np.flatnonzero(rows.operation == TRUNCATE)
        seq[here] += [table.ordinal for table in run.truncated]
        row[here] += [table.row for table in run.truncated]
    unchanged = _unchanged(rows)
    hidden = HiddenColumns(
        lsn=pa.array(places.lsn[rows.message]),
        seq=pa.array(seq),
        row=pa.array(row),
        operation=operations(pa.array(rows.operation.view(np.int8))),
        xid=pa.array(places.xid[rows.message]),
        commit_time=pa.array(places.time_us[rows.message]).cast(pa.timestamp("us", "UTC")),
        unchanged=unchanged,
    )
    inserts, befores, updates, deletes, truncates = np.bincount(rows.operation, minlength=5).tolist()
    marked = len(unchanged) - unchanged.null_count
    counts = ChangeCounts(inserts, updates, deletes, truncates, befores, marked)
    return TableChanges(run.version, record_batch(run.version, hidden, _values(wire, rows, run.version)), counts)


def _values(wire: Wire, rows: Rows, version: SchemaVersion) -> Iterator[pa.Array | Cast]:
    """Each column's typed values, or its texts where the caster has to look at them; one column at a time."""
    for ordinal, column in enumerate(version.columns):
        spans = Spans(wire.octets, rows.start[ordinal], rows.size[ordinal], int(rows.missing[ordinal]))
        typed = cast_spans(spans, column)
        yield Cast(typed, None) if typed is not None else spans.texts()


def _unchanged(rows: Rows) -> pa.Array:
    """`_lp_unchanged`: the ordinals of each row's unchanged columns."""
    if not rows.unchanged.any():
        return pa.nulls(len(rows.message), pa.list_(pa.int16()))
    row, ordinal = np.nonzero((rows.size == UNCHANGED).T)
    counts = np.bincount(row, minlength=len(rows.message))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    values = pa.array(ordinal.astype(np.int16))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))
