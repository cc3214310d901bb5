"""Keeps the schema of each table of the stream: Relation messages to schema versions.

The resolver that the caller passes makes a version from the catalog and the configuration.

Streamed transactions. A schema that one announces is in force for its own rows only, since they may be decoded long after
rows that arrived later; so it is decoded with its own cache (`streamed`). At its commit the server treats what was
announced in it as sent (`schema_sent`), unless the table's entry was invalidated since: an invalidation clears that mark and
those of the open streamed transactions alike, and a Relation message precedes whatever comes next. So all messages about a
table that arrived since its last invalidation say the same, and for an ordinary transaction the message that *arrived* last
is in force, whether it came in an ordinary or in a committed streamed transaction. The order of commits would be wrong: a
transaction that was streamed before a change and commits after it would bring the old schema back (`absorb`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from lakeproof.errors import InvariantError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.schema import SchemaVersion

# Given the message, the end of its transaction, and the version that was in force before it on this connection.
Resolver: TypeAlias = Callable[[Relation, Lsn, SchemaVersion | None], SchemaVersion | None]
# Hears of the messages of a batch before it is asked for their versions, in their order.
Expect: TypeAlias = Callable[[Sequence[Relation]], None]
# When a message arrived. In an ordinary transaction: (its position, 0), since it arrives whole. In a streamed one: (the
# position of the newest commit received before, the ordinal of the chunk from 1). Arrivals compare in the order of time.
Arrival: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RelationSchema:
    """A Relation message and its schema version; the version is None for a table that the caller leaves out."""

    relation: Relation
    version: SchemaVersion | None


class RelationCache:
    """The latest Relation message of each table of one connection, and the version that the resolver returned for it.

    The resolver is asked at every message. The server sends one after each DDL, and after an ANALYZE too. Not every DDL
    shows in it: a column dropped and added again with its name and type is a different column. If the resolver can't tell
    which column it is, the version before can't tell either. The resolver returns None to leave the table's changes out.
    Its errors pass through.

    `expect` hears of a batch's messages before they are learned. `arrival` is set while a streamed transaction is decoded;
    without it a message arrived with its transaction's commit. `announced` is the table of a Relation message at the end of
    a part: the next part may begin with its row.
    """

    def __init__(
        self, resolve: Resolver, outer: RelationCache | None = None, expect: Expect = lambda _relations: None
    ) -> None:
        self._resolve = resolve
        self.expect = expect
        self._outer = outer
        self._schemas: dict[Oid, RelationSchema] = {}
        self._arrivals: dict[Oid, Arrival] = {}
        self.arrival: Arrival | None = None
        self.announced: Oid | None = None

    def get(self, oid: Oid) -> RelationSchema | None:
        """Return the schema in force, None before the first Relation message of this OID."""
        return self._schemas.get(oid)

    def learn(self, relation: Relation, position: Lsn = Lsn.ZERO) -> RelationSchema:
        """Apply a Relation message of the transaction that ends at `position`.

        Returns the schema in force from then on, the same object if nothing changed.
        """
        relation = replace(relation, xid=None)
        self._arrivals[relation.oid] = self.arrival or (position.value, 0)
        before = self._in_force(relation.oid)
        version = self._resolve(relation, position, None if before is None else before.version)
        if before is not None and before.relation == relation and version == before.version:
            self._schemas[relation.oid] = before
            return before
        if version is not None:
            _check(version, relation)
        schema = RelationSchema(relation, version)
        self._schemas[relation.oid] = schema
        return schema

    def streamed(self) -> RelationCache:
        """Return a cache for one streamed transaction, which has announced nothing yet."""
        return RelationCache(self._resolve, self, self.expect)

    def absorb(self, streamed: RelationCache) -> list[SchemaVersion]:
        """Take over from a committed streamed transaction the schemas that arrived after those known here.

        Returns the versions that are in force again after it because the transaction's own differed.
        """
        again: list[SchemaVersion] = []
        for oid, schema in streamed._schemas.items():
            arrival = streamed._arrivals[oid]
            current = self._schemas.get(oid)
            if current is None or arrival > self._arrivals[oid]:
                self._schemas[oid], self._arrivals[oid] = schema, arrival
            elif current.version is not None and current.version != schema.version:
                again.append(current.version)
        return again

    def _in_force(self, oid: Oid) -> RelationSchema | None:
        schema = self._schemas.get(oid)
        return schema if schema is not None or self._outer is None else self._outer.get(oid)


def _check(version: SchemaVersion, relation: Relation) -> None:
    expected = [(column.name, column.type_oid) for column in relation.columns]
    if version.oid != relation.oid or [(c.name, c.type_oid) for c in version.columns] != expected:
        raise InvariantError(
            str(version.table),
            "the resolved schema version does not have the columns of its Relation message",
            "report this with the table's definition",
        )
