"""Whole transactions of pgoutput to Arrow record batches, by column: the fast road.

    wire ─► places (B, C)  ─► runs: the messages of one table under one version
            controls (R, T)    └─► walk the tuples ─► cast the columns ─► TableChanges

Invariant: for the same messages the result equals `assemble.py`'s, which reads one at a time (tests/core holds the two
together on random batches). Cost: no Python per change but for control messages; the loops over bytes are compiled
(`table_rows.py` and what it imports). Weakness: many tables with few changes each pay some calls per table and column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from lakeproof.names import Oid
from lakeproof.pgoutput.controls import CHANGES, Controls, TruncatedTable, read_controls
from lakeproof.pgoutput.message_buffer import Flags, Ints, Wire
from lakeproof.pgoutput.relations import RelationCache, Shape
from lakeproof.pgoutput.rows import Batch, ChangeCounts, SchemaInForce, TableChanges, TransactionInfo
from lakeproof.pgoutput.transaction_positions import Places, part_of, whole_transactions

if TYPE_CHECKING:
    from lakeproof.pgoutput.table_rows import Run

__all__ = ["Batch", "BatchDecoder", "ChangeCounts", "SchemaInForce", "TableChanges", "TransactionInfo"]

_, _UPDATE, _ = CHANGES
_NEW = ord("N")


class BatchDecoder:
    """Decodes the batches of one connection, in order; `relations` carries the shapes from batch to batch.

    After an error the relations may be ahead of the rows: begin again with a new decoder and a new connection.
    """

    def __init__(self, relations: RelationCache) -> None:
        self.relations = relations

    def decode(self, *wires: Wire) -> Batch:
        """Decode whole transactions, each from its Begin to its Commit.

        Of a table that the resolver does not want, changes take their seqs, but are not looked into.
        Raises ProtocolError for bytes that are not that, InvariantError for more than 2 GiB, and what the resolver raises.
        """
        wire = Wire.join(wires)
        return self._decode(wire, whole_transactions(wire), first_seq=0)

    def decode_part(self, part: Wire, transaction: TransactionInfo, first_seq: int) -> Batch:
        """Decode a part of a transaction whose Commit is known; `first_seq` is the `next_seq` of the part before, or 0.

        The Begin may be the part's first message and the Commit its last. `transactions` of the result is 1 if the part has
        rows: whoever joins the parts counts the transaction once. Raises as `decode`.
        """
        wire = Wire.join([part])
        return self._decode(wire, part_of(wire, transaction), first_seq)

    def _decode(self, wire: Wire, places: Places, first_seq: int) -> Batch:
        # Imported here, since it brings the compiler with it: 0.15 s that only a process that decodes should pay.
        from lakeproof.pgoutput.table_rows import Numbers, table_changes

        controls = read_controls(wire, places, self.relations)
        seq, next_seq = places.seq(controls.weights, first_seq)
        runs = list(self._runs(wire, controls))
        row_counts = _row_counts(wire, runs, controls)
        numbers = Numbers(seq, np.cumsum(row_counts) - row_counts, row_counts)
        changes = [table_changes(wire, places, numbers, run) for run in runs]
        changes.sort(key=lambda table: int(table.rows.column("_lp_row")[0].as_py()))
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
            notes=controls.notes(places, seq),
            next_seq=next_seq,
        )

    def _runs(self, wire: Wire, controls: Controls) -> Iterator[Run]:
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
            shapes = controls.shapes.get(oid) or [(-1, self.relations.get(oid))]
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
) -> Iterator[Run]:
    """A table's changes under each of its shapes, neighbours of one version together."""
    from lakeproof.pgoutput.table_rows import Run

    open_run: Run | None = None
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
            open_run = Run(shape.version, np.concatenate((open_run.messages, mine)), open_run.truncated + cut)
            continue
        if open_run is not None:
            yield open_run
        open_run = Run(shape.version, mine, cut)
    if open_run is not None:
        yield open_run


def _row_counts(wire: Wire, runs: list[Run], controls: Controls) -> Ints:
    """How many rows each message makes."""
    counts = np.zeros(len(wire), np.int64)
    for run in runs:
        counts[run.messages] = 1 + _has_two(wire, run.messages)
    for table in controls.truncated:
        counts[table.message] += 1
    return counts


def _has_two(wire: Wire, messages: Ints) -> Flags:
    """Whether a message has an old tuple and a new one."""
    two: Flags = (wire.octets[wire.at[messages]] == _UPDATE) & (wire.octets[wire.at[messages] + 5] != _NEW)
    return two
