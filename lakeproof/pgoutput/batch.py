"""Decodes whole transactions of pgoutput to Arrow record batches, by column.

    buffer ─► positions (B, C)  ─► runs: the messages of one table under one version
              controls (R, T)    └─► walk the tuples ─► cast the columns ─► TableChanges

Invariant: for the same messages the result equals that of tests/core/pgoutput/pgoutput_reference.py, which reads one
message at a time (tests/core compares the two on random batches). Cost: no Python per change except for control messages;
the loops over bytes are compiled (`table_rows.py` and its imports). Weakness: many tables with few changes each pay some
calls per table and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lakeproof.hidden_columns import ORD
from lakeproof.names import Oid
from lakeproof.pgoutput.controls import Controls, TruncatedTable, read_controls
from lakeproof.pgoutput.message_buffer import Flags, Ints, MessageBuffer
from lakeproof.pgoutput.messages import Update
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch, TransactionInfo
from lakeproof.pgoutput.tags import ROW_CHANGES, tag_of
from lakeproof.pgoutput.transaction_positions import TransactionPositions, part_of, whole_transactions
from lakeproof.schema import SchemaVersion
from lakeproof.values.commit_times import of_number

if TYPE_CHECKING:
    from lakeproof.pgoutput.table_rows import TableRun

__all__ = ["Batch", "BatchDecoder", "SchemaInForce", "TableBatch", "TransactionInfo"]

(_UPDATE,) = tag_of(Update)
_NEW = ord("N")


class BatchDecoder:
    """Decodes the batches of one connection, in order; `relations` carries the schemas from batch to batch.

    After an error the relations may be ahead of the rows: start over with a new decoder and a new connection.
    """

    def __init__(self, relations: RelationCache) -> None:
        self.relations = relations

    def decode(self, *buffers: MessageBuffer) -> Batch:
        """Decode whole transactions, each from its Begin to its Commit.

        Raises ProtocolError for any other bytes, InvariantError for more than 2 GiB, and what the resolver raises.
        """
        buffer = MessageBuffer.join(buffers)
        return self._decode(buffer, whole_transactions(buffer), first_seq=0)

    def decode_part(self, part: MessageBuffer, transaction: TransactionInfo, first_seq: int) -> Batch:
        """Decode a part of a committed transaction; `first_seq` is the `next_seq` of the part before, or 0.

        The Begin may be the part's first message and the Commit its last. `transactions` of the result is 1 if the part has
        rows: a caller that joins the parts counts the transaction once. Raises as `decode`.
        """
        buffer = MessageBuffer.join([part])
        return self._decode(buffer, part_of(buffer, transaction), first_seq)

    def _decode(self, buffer: MessageBuffer, positions: TransactionPositions, first_seq: int) -> Batch:
        # Imported here because it imports the compiler: 0.15 s that only a process that decodes should pay.
        from lakeproof.pgoutput.table_rows import Numbers, table_changes

        controls = read_controls(buffer, positions, self.relations)
        seq, next_seq = positions.seq(controls.weights, first_seq)
        runs = list(self._runs(buffer, controls))
        row_counts = _row_counts(buffer, runs, controls)
        numbers = Numbers(seq, np.cumsum(row_counts) - row_counts, row_counts)
        changes = [table_changes(buffer, positions, numbers, run) for run in runs]
        changes.sort(key=lambda table: int(table.rows.column(ORD)[0].as_py()))
        used = positions.number[row_counts > 0]
        times = positions.time[positions.begins]
        return Batch(
            changes=changes,
            transactions=len(np.unique(used)),
            rows=int(row_counts.sum()),
            end_lsn=positions.lsn_of(int(positions.begins[-1])) if positions.begins.size else None,
            first_commit_time_us=of_number(int(times.min())) if times.size else None,
            last_commit_time_us=of_number(int(times.max())) if times.size else None,
            schemas=controls.schemas(positions, seq),
            logical_messages=controls.logical_messages(positions, seq),
            next_seq=next_seq,
            partitions=controls.partition_rows(positions),
        )

    def _runs(self, buffer: MessageBuffer, controls: Controls) -> Iterator[TableRun]:
        """Yield the runs of each table; raises ProtocolError for a table never announced."""
        messages = np.flatnonzero(buffer.where(ROW_CHANGES))
        short = messages[buffer.end[messages] - buffer.start[messages] < 8]
        if short.size:
            buffer.refuse(int(short[0]), "the change is cut off")
        oids = buffer.uint32(buffer.start[messages] + 1)
        truncated: dict[Oid, list[TruncatedTable]] = {}
        for table in controls.truncated:
            truncated.setdefault(table.oid, []).append(table)
        for oid, of_table in _by_table(messages, oids, truncated):
            versions = controls.versions.get(oid) or [(-1, self.relations.get(oid))]
            yield from _split(buffer, versions, of_table, truncated.get(oid, []))


def _by_table(messages: Ints, oids: Ints, truncated: dict[Oid, list[TruncatedTable]]) -> Iterator[tuple[Oid, Ints]]:
    """Yield each table's changes, ascending."""
    order = np.argsort(oids, kind="stable")
    tables, first = np.unique(oids[order], return_index=True)
    groups = dict(zip(map(Oid, tables.tolist()), np.split(messages[order], first[1:]), strict=False))
    for oid in truncated:
        groups.setdefault(oid, np.zeros(0, np.int64))
    yield from groups.items()


def _split(
    buffer: MessageBuffer,
    versions: list[tuple[int, SchemaVersion | None]],
    messages: Ints,
    truncated: list[TruncatedTable],
) -> Iterator[TableRun]:
    """Yield a table's changes under each of its versions; neighbours of one version are joined."""
    from lakeproof.pgoutput.table_rows import TableRun

    open_run: TableRun | None = None
    for (start, version), (stop, _) in pairwise([*versions, (len(buffer), None)]):
        low, high = np.searchsorted(messages, (start, stop))
        mine = messages[low:high]
        cut = [table for table in truncated if start < table.message < stop]
        if version is None:
            if mine.size:
                buffer.refuse(int(mine[0]), "its relation was never announced")
        elif open_run is not None and open_run.version == version:
            open_run = TableRun(version, np.concatenate((open_run.messages, mine)), open_run.truncated + cut)
        elif mine.size or cut:
            if open_run is not None:
                yield open_run
            open_run = TableRun(version, mine, cut)
    if open_run is not None:
        yield open_run


def _row_counts(buffer: MessageBuffer, runs: list[TableRun], controls: Controls) -> Ints:
    """Return the number of rows of each message."""
    counts = np.zeros(len(buffer), np.int64)
    for run in runs:
        counts[run.messages] = 1 + _has_two(buffer, run.messages)
    for table in controls.truncated:
        counts[table.message] += 1
    return counts


def _has_two(buffer: MessageBuffer, messages: Ints) -> Flags:
    """Return for each message whether it has an old tuple and a new one."""
    two: Flags = (buffer.octets[buffer.start[messages]] == _UPDATE) & (
        buffer.octets[buffer.start[messages] + 5] != _NEW
    )
    return two
