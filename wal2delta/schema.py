"""A table's schema version: what the stream, the landing and the lake agree a row looks like.

How a PostgreSQL type maps to a lake type belongs to `wal2delta.values`; reading the catalog to `wal2delta.postgres`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any

from wal2delta.names import Oid, TableName


class Identity(Enum):
    """A table's replica identity, by pgoutput's letter."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one schema version.

    `kind` is the name of its row in `wal2delta.values.types` (e.g. `int4`, `numeric`, `text`), decided once, when the
    version is made, from the type's OID, typmod, base type and configuration; `attnum` is the catalog's attribute number,
    0 where the catalog no longer knows the column (its kind is then `exact_text`).
    `identity` says that the column belongs to the replica identity's index.
    """

    name: str
    type_oid: Oid
    typmod: int
    type_name: str
    kind: str
    attnum: int
    identity: bool


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One shape of one table, in force from a place in the stream until the next.

    `columns` are in the order of the Relation message; landing files name them `c0`, `c1`, … by it.
    `key` lists the names of the columns that tell rows apart: the identity index's, or the configured ones under
    identity FULL; empty for a bag.
    """

    table: TableName
    oid: Oid
    identity: Identity
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def id(self) -> str:
        """16 hexadecimal digits that two versions share if and only if they are equal."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def is_bag(self) -> bool:
        """Whether rows have no key, so that the table is a multiset of rows."""
        return not self.key

    def to_json(self) -> dict[str, Any]:
        """The form that manifests carry (without `id`, which is derived)."""
        return {
            "schema": self.table.schema,
            "name": self.table.name,
            "oid": int(self.oid),
            "identity": self.identity.value,
            "key": list(self.key),
            "columns": [
                {
                    "name": c.name,
                    "type_oid": int(c.type_oid),
                    "typmod": c.typmod,
                    "type_name": c.type_name,
                    "kind": c.kind,
                    "attnum": c.attnum,
                    "identity": c.identity,
                }
                for c in self.columns
            ],
        }

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> SchemaVersion:
        """The inverse of `to_json`; raises KeyError, TypeError or ValueError on any other document."""
        columns = tuple(
            Column(
                name=str(c["name"]),
                type_oid=Oid(int(c["type_oid"])),
                typmod=int(c["typmod"]),
                type_name=str(c["type_name"]),
                kind=str(c["kind"]),
                attnum=int(c["attnum"]),
                identity=bool(c["identity"]),
            )
            for c in doc["columns"]
        )
        return cls(
            table=TableName(str(doc["schema"]), str(doc["name"])),
            oid=Oid(int(doc["oid"])),
            identity=Identity(doc["identity"]),
            columns=columns,
            key=tuple(str(k) for k in doc["key"]),
        )
