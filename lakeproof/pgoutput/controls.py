"""The messages of a batch that are read one by one: what shapes, truncates and marks the stream.

The changes, which are many, belong to `tuples.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.decoder import ProtocolError, decode
from lakeproof.pgoutput.message_buffer import Ints, Wire
from lakeproof.pgoutput.messages import LogicalMessage, Origin, Relation, Truncate, TypeName
from lakeproof.pgoutput.relations import RelationCache, Shape
from lakeproof.pgoutput.rows import Note, SchemaInForce, has_position
from lakeproof.pgoutput.transaction_positions import Places
from lakeproof.schema import SchemaVersion

CHANGES = b"IUD"


@dataclass(frozen=True, slots=True)
class TruncatedTable:
    """One table of a Truncate message that the caller wants.

    `ordinal` is its place among all of the message's tables (its seq), `row` among the wanted ones.
    """

    message: int
    ordinal: int
    row: int
    oid: Oid


@dataclass(slots=True)
class Controls:
    """What the control messages of one batch say, by message index.

    `shapes` lists for each table that got a new shape in this batch the shapes with the index they hold from, first the one
    before the batch (at -1, None where there was none). `weights` is how many seqs each message takes.
    """

    weights: Ints
    shapes: dict[Oid, list[tuple[int, Shape | None]]] = field(default_factory=dict)
    brought: list[tuple[int, SchemaVersion]] = field(default_factory=list)
    truncated: list[TruncatedTable] = field(default_factory=list)
    said: list[tuple[int, LogicalMessage | Origin]] = field(default_factory=list)

    def schemas(self, places: Places, seq: Ints) -> list[SchemaInForce]:
        """The versions that came into force, at their places."""
        return [SchemaInForce(version, places.lsn_of(index), int(seq[index])) for index, version in self.brought]

    def notes(self, places: Places, seq: Ints) -> list[Note]:
        """What was said, at its place."""
        return [
            Note(said, places.transaction_of(index), int(seq[index]))
            if isinstance(said, Origin) or said.transactional
            else Note(said, None, 0)
            for index, said in self.said
        ]


def read_controls(wire: Wire, places: Places, relations: RelationCache) -> Controls:
    """Read them in stream order, `relations` learning on the way; raises ProtocolError and what the resolver raises."""
    is_change = wire.where(CHANGES)
    controls = Controls(is_change.astype(np.int64))
    for index in np.flatnonzero(~is_change & ~wire.where(b"BC")).tolist():
        match decode(wire.message(index)):
            case Relation() as relation:
                _learn(controls, index, relation, relations, places.lsn_of(index))
            case Truncate() as truncate:
                _truncate(controls, index, truncate, relations)
            case LogicalMessage() as message:
                if message.transactional and not places.inside[index]:
                    raise ProtocolError(b"M", 1, "a transactional message stands outside a transaction")
                if not message.transactional and not has_position(message.lsn):
                    raise ProtocolError(b"M", 2, "the message has no position")
                controls.said.append((index, message))
            case Origin() as origin:
                controls.said.append((index, origin))
            case TypeName():
                pass
            case _:
                wire.refuse(index, "it belongs to a streamed or prepared transaction, which a batch can't have")
    return controls


def _learn(controls: Controls, index: int, relation: Relation, relations: RelationCache, position: Lsn) -> None:
    before = relations.get(relation.oid)
    after = relations.learn(relation, position)
    if after is before:
        return
    controls.shapes.setdefault(relation.oid, [(-1, before)]).append((index, after))
    if after.version is not None and (before is None or before.version != after.version):
        controls.brought.append((index, after.version))


def _truncate(controls: Controls, index: int, truncate: Truncate, relations: RelationCache) -> None:
    controls.weights[index] = len(truncate.relations)
    row = 0
    for ordinal, oid in enumerate(truncate.relations):
        shape = relations.get(oid)
        if shape is None:
            raise ProtocolError(b"T", 6 + 4 * ordinal, f"relation {oid} was never announced")
        if shape.version is not None:
            controls.truncated.append(TruncatedTable(index, ordinal, row, oid))
            row += 1
