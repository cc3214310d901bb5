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
from dataclasses import replace
from typing import TypeAlias

from lakeproof.errors import InvariantError
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.pgoutput.messages import Relation
from lakeproof.schema import SchemaVersion

# Given the message, the end of its transaction, and the version that was in force before it on this connection.
Resolver: TypeAlias = Callable[[Relation, Lsn, SchemaVersion | None], SchemaVersion]
# Hears of the messages of a batch before it is asked for their versions, in their order.
Expect: TypeAlias = Callable[[Sequence[Relation]], None]
# When a message arrived. In an ordinary transaction: (its position, 0), since it arrives whole. In a streamed one: (the
# position of the newest commit received before, the ordinal of the chunk from 1). Arrivals compare in the order of time.
Arrival: TypeAlias = tuple[int, int]


class RelationCache:
    """The version that the resolver returned for the latest Relation message of each table of one connection.

    The resolver is asked at every message. The server sends one after each DDL, and after an ANALYZE too. Not every DDL
    shows in it: a column dropped and added again with its name and type is a different column. If the resolver can't tell
    which column it is, the version before can't tell either. Its errors pass through.

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
        self._versions: dict[Oid, SchemaVersion] = {}
        self._arrivals: dict[Oid, Arrival] = {}
        self.arrival: Arrival | None = None
        self.announced: Oid | None = None

    def get(self, oid: Oid) -> SchemaVersion | None:
        """Return the version in force, None before the first Relation message of this OID."""
        return self._versions.get(oid)

    def learn(self, relation: Relation, position: Lsn = Lsn.ZERO) -> SchemaVersion:
        """Apply a Relation message of the transaction that ends at `position`; return the version in force from then on."""
        relation = replace(relation, xid=None)
        self._arrivals[relation.oid] = self.arrival or (position.value, 0)
        before = self.get(relation.oid)
        if before is None and self._outer is not None:
            before = self._outer.get(relation.oid)
        version = self._resolve(relation, position, before)
        _check(version, relation)
        self._versions[relation.oid] = version
        return version

    def streamed(self) -> RelationCache:
        """Return a cache for one streamed transaction, which has announced nothing yet."""
        return RelationCache(self._resolve, self, self.expect)

    def absorb(self, streamed: RelationCache) -> list[SchemaVersion]:
        """Take over from a committed streamed transaction the schemas that arrived after those known here.

        Returns the versions that are in force again after it because the transaction's own differed.
        """
        again: list[SchemaVersion] = []
        for oid, version in streamed._versions.items():
            arrival, current = streamed._arrivals[oid], self._versions.get(oid)
            if current is None or arrival > self._arrivals[oid]:
                self._versions[oid], self._arrivals[oid] = version, arrival
            elif current != version:
                again.append(current)
        return again


def _check(version: SchemaVersion, relation: Relation) -> None:
    expected = [(column.name, column.type_oid) for column in relation.columns]
    if version.oid != relation.oid or [(c.name, c.type_oid) for c in version.columns] != expected:
        raise InvariantError(
            str(version.table),
            "the resolved schema version does not have the columns of its Relation message",
            "report this with the table's definition",
        )
