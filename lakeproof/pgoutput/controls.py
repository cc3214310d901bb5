"""Reads the messages of a batch that are read one by one: Relation, Truncate, logical messages and origins.

`tuples.py` reads the row changes, of which there are many.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import Ints, MessageBuffer
from lakeproof.pgoutput.messages import LogicalMessage, Origin, Relation, Truncate, TypeName
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.rows import PartitionRows, SchemaInForce, StreamMessage, has_position
from lakeproof.pgoutput.tags import ROW_CHANGES, TRANSACTION_ENDS, tag_of
from lakeproof.pgoutput.transaction_positions import TransactionPositions
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class TruncatedTable:
    """One table of a Truncate message; `ordinal` is its position among the message's tables."""

    message: int
    ordinal: int
    oid: Oid


@dataclass(slots=True)
class Controls:
    """The contents of one batch's control messages, by message index.

    For each table that got a new version in this batch, `versions` lists its versions with the index from which each is in
    force, beginning with the one before the batch (at -1, None if there was none). `weights` is the number of seqs that each
    message takes.
    """

    weights: Ints
    versions: dict[Oid, list[tuple[int, SchemaVersion | None]]] = field(default_factory=dict)
    brought: list[tuple[int, SchemaVersion]] = field(default_factory=list)
    truncated: list[TruncatedTable] = field(default_factory=list)
    messages: list[tuple[int, LogicalMessage | Origin]] = field(default_factory=list)
    partitions: list[tuple[int, Oid, Oid]] = field(default_factory=list)

    def schemas(self, positions: TransactionPositions, seq: Ints) -> list[SchemaInForce]:
        """Return the versions that came into force, each with its position."""
        return [SchemaInForce(version, positions.lsn_of(index), int(seq[index])) for index, version in self.brought]

    def logical_messages(self, positions: TransactionPositions, seq: Ints) -> list[StreamMessage]:
        """Return the messages and origins, each with its transaction and seq."""
        return [
            StreamMessage(message, positions.transaction_of(index), int(seq[index]))
            if isinstance(message, Origin) or message.transactional
            else StreamMessage(message, None, 0)
            for index, message in self.messages
        ]

    def partition_rows(self, positions: TransactionPositions) -> list[PartitionRows]:
        """Return the partitions that were announced for rows of the tables above them, each with its transaction."""
        return [PartitionRows(leaf, root, positions.transaction_of(index)) for index, leaf, root in self.partitions]


def read_controls(buffer: MessageBuffer, positions: TransactionPositions, relations: RelationCache) -> Controls:
    """Read them in stream order and update `relations`; raises ProtocolError and what the resolver raises."""
    is_change = buffer.where(ROW_CHANGES)
    controls = Controls(is_change.astype(np.int64))
    decoded = [
        (i, decode(buffer.message(i))) for i in np.flatnonzero(~is_change & ~buffer.where(TRANSACTION_ENDS)).tolist()
    ]
    relations.expect([message for _, message in decoded if isinstance(message, Relation)])
    _note_partition(controls, buffer, 0, relations.announced)
    for index, control in decoded:
        match control:
            case Relation() as relation:
                _learn(controls, index, relation, relations, positions.lsn_of(index))
                _note_partition(controls, buffer, index + 1, relation.oid)
            case Truncate() as truncate:
                _truncate(controls, index, truncate, relations)
            case LogicalMessage() as message:
                if message.transactional and not positions.inside[index]:
                    raise ProtocolError(tag_of(LogicalMessage), 1, "a transactional message is outside a transaction")
                if not message.transactional and not has_position(message.lsn):
                    raise ProtocolError(tag_of(LogicalMessage), 2, "the message has no position")
                controls.messages.append((index, message))
            case Origin() as origin:
                controls.messages.append((index, origin))
            case TypeName():
                pass
            case _:
                buffer.refuse(index, "it belongs to a streamed or prepared transaction, which a batch can't have")
    if len(buffer):
        last_index, last = decoded[-1] if decoded else (-1, None)
        relations.announced = last.oid if isinstance(last, Relation) and last_index + 1 == len(buffer) else None
    return controls


def _learn(controls: Controls, index: int, relation: Relation, relations: RelationCache, position: Lsn) -> None:
    before = relations.get(relation.oid)
    after = relations.learn(relation, position)
    if after != before:
        controls.versions.setdefault(relation.oid, [(-1, before)]).append((index, after))
        controls.brought.append((index, after))


def _note_partition(controls: Controls, buffer: MessageBuffer, index: int, announced: Oid | None) -> None:
    """Note a partition if message `index` is a row of another table than was `announced` right before it.

    A table is announced right before its row, and the row of a partition may go by a table above it.
    """
    if announced is None or index == len(buffer) or not controls.weights[index]:
        return
    if buffer.end[index] - buffer.start[index] >= 8:
        root = Oid(int(buffer.uint32(buffer.start[index : index + 1] + 1)[0]))
        if root != announced:
            controls.partitions.append((index, announced, root))


def _truncate(controls: Controls, index: int, truncate: Truncate, relations: RelationCache) -> None:
    controls.weights[index] = len(truncate.relations)
    for ordinal, oid in enumerate(truncate.relations):
        if relations.get(oid) is None:
            raise ProtocolError(tag_of(Truncate), 6 + 4 * ordinal, f"relation {oid} was never announced")
        controls.truncated.append(TruncatedTable(index, ordinal, oid))
