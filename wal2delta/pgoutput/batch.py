"""Whole transactions of pgoutput to Arrow record batches, by column: the fast road.

    frames ─join─► one buffer ─► places (B, C)  ─► runs: the messages of one table under one version
                                 controls (R, T)    └─► walk the columns ─► gather texts ─► cast ─► TableChanges

Invariant: for the same frames the result equals `assemble.py`'s, which reads one message at a time (tests/core holds the two
together on random batches). Cost: a few dozen array operations per batch, table and column; no Python per change but for
control messages. Weakness: many tables with few changes each pay those array operations for each table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from wal2delta.names import Oid
from wal2delta.pgoutput.controls import CHANGES, Controls, TruncatedTable, read_controls
from wal2delta.pgoutput.places import Places, part_of, whole_transactions
from wal2delta.pgoutput.relations import RelationCache, Shape
from wal2delta.pgoutput.rows import (
    BEFORE,
    DELETE,
    INSERT,
    TRUNCATE,
    UPDATE,
    Batch,
    ChangeCounts,
    HiddenColumns,
    SchemaInForce,
    TableChanges,
    TransactionInfo,
    operations,
    record_batch,
)
from wal2delta.pgoutput.tuples import NULL, TEXT, UNCHANGED, Cells, gather, walk
from wal2delta.pgoutput.wire import Flags, Frame, Ints, Octets, Wire
from wal2delta.schema import SchemaVersion

__all__ = ["Batch", "BatchDecoder", "ChangeCounts", "SchemaInForce", "TableChanges", "TransactionInfo"]

_INSERT, _UPDATE, _DELETE = CHANGES
_NEW, _KEY, _ROW = b"NKO"


@dataclass(frozen=True, slots=True)
class _Run:
    """Changes of one table under one version: message indices, ascending, and its truncations."""

    version: SchemaVersion
    messages: Ints
    truncated: list[TruncatedTable]


@dataclass(frozen=True, slots=True)
class _Rows:
    """A run's rows in stream order: message, seq beyond the message's, operation, `_w2d_row`, and the cells by column.

    `whole_old` says of a row whether its message has a whole old row.
    """

    message: Ints
    ordinal: Ints
    operation: Octets
    row: Ints
    whole_old: Flags
    cells: list[Cells]


class BatchDecoder:
    """Decodes the batches of one connection, in order; `relations` carries the shapes from batch to batch.

    After an error the relations may be ahead of the rows: begin again with a new decoder and a new connection.
    """

    def __init__(self, relations: RelationCache) -> None:
        self._relations = relations

    def decode(self, frames: Sequence[Frame]) -> Batch:
        """Decode XLogData frames (with their 25-byte headers) of whole transactions, each from its Begin to its Commit.

        Of a table that the resolver does not want, changes take their seqs, but are not looked into.
        Raises ProtocolError for bytes that are not that, CastError for a value its type does not print, InvariantError for
        more than 2 GiB, and what the resolver raises.
        """
        wire = Wire.join(frames)
        return self._decode(wire, whole_transactions(wire), first_seq=0)

    def decode_part(self, frames: Sequence[Frame], transaction: TransactionInfo, first_seq: int) -> Batch:
        """Decode a part of a transaction whose Commit is known; `first_seq` is the `next_seq` of the part before, or 0.

        The Begin may be the part's first frame and the Commit its last. `transactions` of the result is 1 if the part has
        rows: whoever joins the parts counts the transaction once. Raises as `decode`.
        """
        wire = Wire.join(frames)
        return self._decode(wire, part_of(wire, transaction), first_seq)

    def _decode(self, wire: Wire, places: Places, first_seq: int) -> Batch:
        controls = read_controls(wire, places, self._relations)
        seq, next_seq = places.seq(controls.weights, first_seq)
        runs = list(self._runs(wire, controls))
        row_counts = _row_counts(wire, runs, controls)
        first_row = np.cumsum(row_counts) - row_counts
        changes = [_table_changes(wire, places, seq, first_row, run) for run in runs]
        changes.sort(key=lambda table: int(table.rows.column("_w2d_row")[0].as_py()))
        used = places.number[row_counts > 0]
        times = places.time_us[places.begins]
        return Batch(
            changes=changes,
            transactions=len(np.unique(used)),
            rows=int(row_counts.sum()),
            end_lsn=places.lsn_of(int(places.begins[-1])) if places.begins.size else None,
            first_commit_time_us=int(times.min()) if times.size else None,
            last_commit_time_us=int(times.max()) if times.size else None,
            schemas=controls.schemas(places, seq),
            messages=controls.messages,
            next_seq=next_seq,
        )

    def _runs(self, wire: Wire, controls: Controls) -> Iterator[_Run]:
        """The runs of the tables that the caller wants; raises ProtocolError for a table that was never announced."""
        messages = np.flatnonzero(wire.where(CHANGES))
        short = messages[wire.end[messages] - wire.at[messages] < 8]
        if short.size:
            wire.refuse(int(short[0]), "the change is cut off")
        oids = wire.uint32(wire.at[messages] + 1)
        truncated: dict[Oid, list[TruncatedTable]] = {}
        for table in controls.truncated:
            truncated.setdefault(table.oid, []).append(table)
        for oid, of_table in _by_table(messages, oids, truncated):
            shapes = controls.shapes.get(oid) or [(-1, self._relations.get(oid))]
            yield from _split(wire, shapes, of_table, truncated.get(oid, []))


def _by_table(messages: Ints, oids: Ints, truncated: dict[Oid, list[TruncatedTable]]) -> Iterator[tuple[Oid, Ints]]:
    """Each table's changes, ascending."""
    order = np.argsort(oids, kind="stable")
    found, first = np.unique(oids[order], return_index=True)
    groups = dict(zip(map(Oid, found.tolist()), np.split(messages[order], first[1:]), strict=False))
    for oid in truncated:
        groups.setdefault(oid, np.zeros(0, np.int64))
    yield from groups.items()


def _split(
    wire: Wire, shapes: list[tuple[int, Shape | None]], messages: Ints, truncated: list[TruncatedTable]
) -> Iterator[_Run]:
    """A table's changes under each of its shapes, neighbours of one version together."""
    open_run: _Run | None = None
    for position, (start, shape) in enumerate(shapes):
        stop = shapes[position + 1][0] if position + 1 < len(shapes) else len(wire)
        low, high = np.searchsorted(messages, (start, stop))
        mine = messages[low:high]
        cut = [table for table in truncated if start < table.message < stop]
        if shape is None:
            if mine.size:
                wire.refuse(int(mine[0]), "its relation was never announced")
            continue
        if shape.version is None or not (mine.size or cut):
            continue
        if open_run is not None and open_run.version == shape.version:
            open_run = _Run(shape.version, np.concatenate((open_run.messages, mine)), open_run.truncated + cut)
            continue
        if open_run is not None:
            yield open_run
        open_run = _Run(shape.version, mine, cut)
    if open_run is not None:
        yield open_run


def _row_counts(wire: Wire, runs: list[_Run], controls: Controls) -> Ints:
    """How many rows each message makes."""
    counts = np.zeros(len(wire), np.int64)
    for run in runs:
        counts[run.messages] = 1 + _has_two(wire, run.messages)
    for table in controls.truncated:
        counts[table.message] += 1
    return counts


def _has_two(wire: Wire, messages: Ints) -> Flags:
    """Whether a message has an old tuple and a new one."""
    two: Flags = (wire.tags[messages] == _UPDATE) & (wire.octets[wire.at[messages] + 5] != _NEW)
    return two


def _table_changes(wire: Wire, places: Places, seq: Ints, first_row: Ints, run: _Run) -> TableChanges:
    rows = _rows(wire, first_row, run)
    filled, marks = _sources(wire, rows)
    unchanged = _unchanged(marks, len(rows.row))
    hidden = HiddenColumns(
        lsn=pa.array(places.lsn[rows.message]),
        seq=pa.array(seq[rows.message] + rows.ordinal),
        row=pa.array(rows.row),
        operation=operations(pa.array(rows.operation.astype(np.int8))),
        xid=pa.array(places.xid[rows.message]),
        commit_time=pa.array(places.time_us[rows.message]).cast(pa.timestamp("us", "UTC")),
        unchanged=unchanged,
    )
    inserts, befores, updates, deletes, truncates = np.bincount(rows.operation, minlength=5).tolist()
    marked = len(unchanged) - unchanged.null_count
    counts = ChangeCounts(inserts, updates, deletes, truncates, befores, marked)
    return TableChanges(run.version, record_batch(run.version, hidden, _texts(wire, rows, filled)), counts)


def _rows(wire: Wire, first_row: Ints, run: _Run) -> _Rows:
    """Walk the first tuple of every message, then the second of those that have one, and put all in stream order."""
    messages, columns = run.messages, len(run.version.columns)
    tags, letter = wire.tags[messages], wire.octets[wire.at[messages] + 5]
    _check_letters(wire, messages, tags, letter)
    first, at = walk(wire, messages, wire.at[messages] + 6, columns)
    has_two = _has_two(wire, messages)
    _check_old(wire, messages[has_two | (tags == _DELETE)], [c.tag[has_two | (tags == _DELETE)] for c in first])
    seconds = messages[has_two]
    _check_end(wire, messages[~has_two], at[~has_two])
    codes = np.zeros(256, np.uint8)
    codes[[_INSERT, _UPDATE, _DELETE]] = INSERT, UPDATE, DELETE
    operation = np.where(has_two, BEFORE, codes[tags]).astype(np.uint8)
    whole_old = letter == _ROW
    if not seconds.size and not run.truncated:
        return _Rows(messages, np.zeros(len(messages), np.int64), operation, first_row[messages], whole_old, first)
    second, after = _second_tuples(wire, seconds, at[has_two], columns)
    _check_end(wire, seconds, after)
    cut = np.array([table.message for table in run.truncated], np.int64)
    ordinals = np.array([table.ordinal for table in run.truncated], np.int64)
    cut_rows = first_row[cut] + np.array([table.row for table in run.truncated], np.int64)
    row = np.concatenate((first_row[messages], first_row[seconds] + 1, cut_rows))
    order = np.argsort(row, kind="stable")
    nothing = Cells.empty(wire.at[cut])
    return _Rows(
        np.concatenate((messages, seconds, cut))[order],
        np.concatenate((np.zeros(len(messages) + len(seconds), np.int64), ordinals))[order],
        np.concatenate((operation, np.full(len(seconds), UPDATE), np.full(len(cut), TRUNCATE))).astype(np.uint8)[order],
        row[order],
        np.concatenate((whole_old, whole_old[has_two], np.zeros(len(cut), np.bool_)))[order],
        [Cells.concatenate((a, b, nothing), order) for a, b in zip(first, second, strict=True)],
    )


def _check_letters(wire: Wire, messages: Ints, tags: Octets, letter: Octets) -> None:
    """An insert has a new tuple, a delete an old one, an update a new one or an old one first."""
    is_old = (letter == _KEY) | (letter == _ROW)
    good = np.where(tags == _INSERT, letter == _NEW, is_old | ((tags == _UPDATE) & (letter == _NEW)))
    if not good.all():
        wire.refuse(int(messages[np.flatnonzero(~good)[0]]), "a tuple begins with an unknown letter")


def _check_old(wire: Wire, messages: Ints, tags: list[Octets]) -> None:
    """The server sends an old image's TOAST values in full."""
    for tag in tags:
        bad = np.flatnonzero(tag == UNCHANGED)
        if bad.size:
            wire.refuse(int(messages[bad[0]]), "an old image has an unchanged value")


def _second_tuples(wire: Wire, messages: Ints, at: Ints, columns: int) -> tuple[list[Cells], Ints]:
    bad = np.flatnonzero((at >= wire.end[messages]) | (wire.octets[at] != _NEW))
    if bad.size:
        wire.refuse(int(messages[bad[0]]), "no new tuple follows the old one")
    return walk(wire, messages, at + 1, columns)


def _check_end(wire: Wire, messages: Ints, at: Ints) -> None:
    bad = np.flatnonzero(at != wire.end[messages])
    if bad.size:
        wire.refuse(int(messages[bad[0]]), "bytes are left over")


def _sources(wire: Wire, rows: _Rows) -> tuple[list[Ints], list[Ints]]:
    """By column: which rows find their unchanged value in the row above them, and which find none."""
    filled, marks = [], []
    for cells in rows.cells:
        marked = np.flatnonzero(cells.tag == UNCHANGED)
        found, marked = _from_old(wire, rows, cells, marked) if marked.size else (marked, marked)
        filled.append(found)
        marks.append(marked)
    return filled, marks


def _texts(wire: Wire, rows: _Rows, filled: list[Ints]) -> Iterator[pa.Array]:
    """Each column's texts, one column at a time: the texts of all would be as large as the frames."""
    for cells, found in zip(rows.cells, filled, strict=True):
        source = np.arange(len(rows.row))
        source[found] = found - 1
        yield _utf8(wire, rows, gather(wire, cells, source))


def _from_old(wire: Wire, rows: _Rows, cells: Cells, marked: Ints) -> tuple[Ints, Ints]:
    """Which of the marked rows find their value in the `before` row above them, and which do not."""
    # Row 0 has nothing above it; it is an insert or an update without an old image.
    above = np.maximum(marked - 1, 0)
    has_old = (rows.operation[marked] == UPDATE) & (rows.operation[above] == BEFORE)
    has_old &= rows.message[marked] == rows.message[above]
    impossible = marked[has_old & rows.whole_old[marked] & (cells.tag[above] == NULL)]
    if impossible.size:
        wire.refuse(int(rows.message[impossible[0]]), "a value is unchanged that the old row does not have")
    filled = has_old & (cells.tag[above] == TEXT)
    return marked[filled], marked[~filled]


def _utf8(wire: Wire, rows: _Rows, texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        for message in rows.message.tolist():
            wire.reread(message)
        raise


def _unchanged(marks: list[Ints], rows: int) -> pa.Array:
    """`_w2d_unchanged` from the marked rows of each column."""
    counts = np.zeros(rows, np.int64)
    for marked in marks:
        counts[marked] += 1
    if not counts.any():
        return pa.nulls(rows, pa.list_(pa.int16()))
    row = np.concatenate(marks)
    ordinal = np.repeat(np.arange(len(marks), dtype=np.int16), [len(marked) for marked in marks])
    values = ordinal[np.argsort(row, kind="stable")]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), mask=pa.array(counts == 0))
