"""Which shape each table of the stream has: Relation messages to schema versions.

How a version is made (the catalog, the configuration) belongs to the resolver that the caller brings.

Streamed transactions. What one announces is in force for its own rows only, since they may be decoded long after rows that
arrived later; so it is decoded with a cache of its own (`streamed`). At its commit the server takes what was announced in it
as known (`schema_sent`), unless the table's entry was invalidated since: an invalidation clears that mark and those of the
open streamed transactions alike, and whatever comes next is preceded by a Relation message. So all messages about a
table that arrived since its last invalidation say the same, and for an ordinary transaction the message that *arrived* last
is in force, whether it came in an ordinary or in a committed streamed transaction. The order of commits would be wrong: a
transaction that was streamed before a change and commits after it would bring the old shape back (`absorb`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakeproof.errors import InvariantError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.schema import SchemaVersion

# Given the message, the end of its transaction, and the version that was in force before it on this connection.
Resolver: TypeAlias = Callable[[Relation, Lsn, SchemaVersion | None], SchemaVersion | None]
# When a message arrived. In an ordinary transaction: (its position, 0), since it arrives whole. In a streamed one: (the
# position of the newest commit that had come, the ordinal of the chunk from 1). They compare as they arrived.
Arrival: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Shape:
    """A Relation message and the schema version it stands for; None for a table that the caller does not want."""

    relation: Relation
    version: SchemaVersion | None


class RelationCache:
    """The latest Relation message of each table of one connection, and what the resolver made of it.

    The resolver is asked at every message. The server sends one after each DDL, and after an ANALYZE too; not every DDL
    shows in it: a column dropped and made again under its name and type is another column. If the resolver can't tell which
    one it is, what was known before does not tell either. It returns None to have the table's changes left out. Its errors
    pass through.

    `arrival` is set while a streamed transaction is decoded; without it a message arrived with its transaction's commit.
    """

    def __init__(self, resolve: Resolver, outer: RelationCache | None = None) -> None:
        self._resolve = resolve
        self._outer = outer
        self._shapes: dict[Oid, Shape] = {}
        self._arrivals: dict[Oid, Arrival] = {}
        self.arrival: Arrival | None = None

    def get(self, oid: Oid) -> Shape | None:
        """The shape in force, None before the first Relation message of this OID."""
        return self._shapes.get(oid)

    def learn(self, relation: Relation, position: Lsn = Lsn.ZERO) -> Shape:
        """Take a Relation message of the transaction that ends at `position`.

        Gives the shape in force from it on, the same object where nothing changed.
        """
        relation = replace(relation, xid=None)
        self._arrivals[relation.oid] = self.arrival or (position.value, 0)
        known = self._known(relation.oid)
        version = self._resolve(relation, position, None if known is None else known.version)
        if known is not None and known.relation == relation and version == known.version:
            self._shapes[relation.oid] = known
            return known
        if version is not None:
            _check(version, relation)
        shape = Shape(relation, version)
        self._shapes[relation.oid] = shape
        return shape

    def streamed(self) -> RelationCache:
        """The cache for one streamed transaction: it has announced nothing yet."""
        return RelationCache(self._resolve, self)

    def absorb(self, streamed: RelationCache) -> list[SchemaVersion]:
        """A streamed transaction has ended: take from it what arrived after what is known here.

        Gives the versions that are in force again after it, where its own were others.
        """
        again: list[SchemaVersion] = []
        for oid, shape in streamed._shapes.items():
            arrival = streamed._arrivals[oid]
            known = self._shapes.get(oid)
            if known is None or arrival > self._arrivals[oid]:
                self._shapes[oid], self._arrivals[oid] = shape, arrival
            elif known.version is not None and known.version != shape.version:
                again.append(known.version)
        return again

    def _known(self, oid: Oid) -> Shape | None:
        found = self._shapes.get(oid)
        return found if found is not None or self._outer is None else self._outer.get(oid)


def _check(version: SchemaVersion, relation: Relation) -> None:
    expected = [(column.name, column.type_oid) for column in relation.columns]
    if version.oid != relation.oid or [(c.name, c.type_oid) for c in version.columns] != expected:
        raise InvariantError(
            str(version.table),
            "the resolved schema version does not have the columns of its Relation message",
            "report this with the table's definition",
        )
