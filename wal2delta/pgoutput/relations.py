"""Which shape each table of the stream has: Relation messages to schema versions.

How a version is made (the catalog, the configuration) belongs to the resolver that the caller brings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from wal2delta.errors import InvariantError
from wal2delta.names import Oid
from wal2delta.pgoutput.messages import Relation
from wal2delta.schema import SchemaVersion

Resolver: TypeAlias = Callable[[Relation], SchemaVersion | None]


@dataclass(frozen=True, slots=True)
class Shape:
    """A Relation message and the schema version it stands for; None for a table that the caller does not want."""

    relation: Relation
    version: SchemaVersion | None


class RelationCache:
    """The latest Relation message of each table of one connection, and what the resolver made of it.

    The resolver is asked at every message, since the server sends one after each DDL and not every DDL shows in it: a column
    dropped and made again under its name and type is another column. It returns None to have the table's changes left out.
    Its errors pass through.
    """

    def __init__(self, resolve: Resolver) -> None:
        self._resolve = resolve
        self._shapes: dict[Oid, Shape] = {}

    def get(self, oid: Oid) -> Shape | None:
        """The shape in force, None before the first Relation message of this OID."""
        return self._shapes.get(oid)

    def learn(self, relation: Relation) -> Shape:
        """Take a Relation message; gives the shape in force from it on, the same object where nothing changed."""
        relation = replace(relation, xid=None)
        known = self._shapes.get(relation.oid)
        version = self._resolve(relation)
        if known is not None and known.relation == relation and (version == known.version or _is_behind(version)):
            return known
        if version is not None:
            _check(version, relation)
        shape = Shape(relation, version)
        self._shapes[relation.oid] = shape
        return shape


def _is_behind(version: SchemaVersion | None) -> bool:
    """Whether the catalog has gone on and lost a column that the stream still sends: what was known then holds here."""
    return version is not None and any(column.attnum == 0 for column in version.columns)


def _check(version: SchemaVersion, relation: Relation) -> None:
    expected = [(column.name, column.type_oid) for column in relation.columns]
    if version.oid != relation.oid or [(c.name, c.type_oid) for c in version.columns] != expected:
        raise InvariantError(
            str(version.table),
            "the resolved schema version does not have the columns of its Relation message",
            "report this with the table's definition",
        )
