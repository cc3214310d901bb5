"""Builds the record batch of one table's changes: walked tuples with their place in the stream, cast by column.

This module imports compiled loops, so `batch.py` imports it only when it first decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeproof.change_counts import ChangeCounts
from lakeproof.pgoutput.controls import TruncatedTable
from lakeproof.pgoutput.message_buffer import Ints, MessageBuffer
from lakeproof.pgoutput.rows import (
    TRUNCATE,
    UPDATE,
    HiddenColumns,
    TableBatch,
    operations,
    record_batch,
)
from lakeproof.pgoutput.transaction_positions import TransactionPositions
from lakeproof.pgoutput.tuples import TupleRows, walk
from lakeproof.schema import SchemaVersion
from lakeproof.values.cast import Cast
from lakeproof.values.commit_times import EARLIEST_US, LATEST_US, POSTGRES_EPOCH_US, number_of
from lakeproof.values.parse.spans import UNCHANGED, Spans, cast_spans


@dataclass(frozen=True, slots=True)
class TableRun:
    """Changes of one table under one version: message indices, ascending, and its truncations, likewise."""

    version: SchemaVersion
    messages: Ints
    truncated: list[TruncatedTable]


@dataclass(frozen=True, slots=True)
class Numbers:
    """For each message of a batch: its first change's seq, its first row's number, and its number of rows."""

    seq: Ints
    first_row: Ints
    rows: Ints


def table_changes(
    buffer: MessageBuffer, positions: TransactionPositions, numbers: Numbers, run: TableRun
) -> TableBatch:
    """Return the rows of a run; raises ProtocolError."""
    cut = np.array([table.message for table in run.truncated], np.int64)
    items = np.sort(np.concatenate((run.messages, cut)), kind="stable") if len(cut) else run.messages
    rows = walk(buffer, items, int(numbers.rows[run.messages].sum()) + len(cut), len(run.version.columns))
    seq, row = numbers.seq[rows.message], numbers.first_row[rows.message]
    # The second row of a message is the one right below its `before`.
    row[1:] += (rows.message[1:] == rows.message[:-1]) & (rows.operation[1:] == UPDATE)
    if len(cut):
        here, ordinals = np.flatnonzero(rows.operation == TRUNCATE), [table.ordinal for table in run.truncated]
        seq[here] += ordinals
        row[here] += ordinals
    unchanged = _unchanged(rows)
    time, number = _commit_times(positions.time[rows.message])
    hidden = HiddenColumns(
        lsn=pa.array(positions.lsn[rows.message]),
        seq=pa.array(seq),
        row=pa.array(row),
        operation=operations(pa.array(rows.operation.view(np.int8))),
        xid=pa.array(positions.xid[rows.message]),
        commit_time=time,
        commit_number=number,
        unchanged=unchanged,
    )
    inserts, befores, updates, deletes, truncates = np.bincount(rows.operation, minlength=5).tolist()
    marked = len(unchanged) - unchanged.null_count
    counts = ChangeCounts(inserts, updates, deletes, truncates, befores, marked)
    return TableBatch(run.version, record_batch(run.version, hidden, _values(buffer, rows, run.version)), counts)


def _values(buffer: MessageBuffer, rows: TupleRows, version: SchemaVersion) -> Iterator[pa.Array | Cast]:
    """Yield each column's typed values, or its texts if the caster has to read them; one column at a time."""
    for ordinal, column in enumerate(version.columns):
        spans = Spans(buffer.octets, rows.start[ordinal], rows.size[ordinal], int(rows.missing[ordinal]))
        typed = cast_spans(spans, column)
        yield Cast(typed, None) if typed is not None else spans.texts()


def _commit_times(numbers: Ints) -> tuple[pa.Array, pa.Array]:
    """Return `_lp_commit_time` and `_lp_commit_number`: each row has one of them."""
    beyond = (numbers < number_of(EARLIEST_US)) | (numbers > number_of(LATEST_US))
    moments = pa.timestamp("us", "UTC")
    if not beyond.any():
        return pa.array(numbers + POSTGRES_EPOCH_US).cast(moments), pa.nulls(len(numbers), pa.int64())
    # Of a time beyond the calendars the moment is anything: it is masked.
    times = np.where(beyond, 0, numbers) + POSTGRES_EPOCH_US
    return pa.array(times, mask=beyond).cast(moments), pa.array(numbers, mask=~beyond)


def _unchanged(rows: TupleRows) -> pa.Array:
    """Return `_lp_unchanged`: the ordinals of each row's unchanged columns."""
    if not rows.unchanged.any():
        return pa.nulls(len(rows.message), pa.list_(pa.int16()))
    row, ordinal = np.nonzero((rows.size == UNCHANGED).T)
    counts = np.bincount(row, minlength=len(rows.message))
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    values = pa.array(ordinal.astype(np.int16))
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=pa.array(counts == 0))
