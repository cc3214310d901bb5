"""A table's schema version: the form of a row that the stream, the landing and the lake agree on.

Mapping a PostgreSQL type to a lake type does not belong here (`lakeproof.values`), nor reading the catalog
(`lakeproof.postgres`).

The JSON is written and read by hand, unlike that of documents (`lakeproof.storage.document`): a version's id is a hash of
it, so no release of a library may change a byte. And decoding, which needs versions, depends on no such library.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lakeproof.hidden_columns import HIDDEN_PREFIX, SCRATCH_PREFIX
from lakeproof.names import Oid, TableName

# Characters that Spark refuses in the names of a Parquet file's columns.
REFUSED_IN_NAMES = frozenset(" ,;{}()\n\t=")
# Column names that Spark and Delta use themselves while they read, merge and delete: with a table's column of that name they
# fail, or confuse the two.
_TAKEN_PREFIX = "__delta_internal"
_TAKEN = frozenset(
    {
        "_metadata",
        "__metadata",
        "_source_row_present_",
        "_target_row_present_",
        "_row_dropped_",
        "_row_id_",
        "_file_name_",
    }
)


class Identity(Enum):
    """A table's replica identity, by pgoutput's letter."""

    DEFAULT = "d"
    NOTHING = "n"
    FULL = "f"
    INDEX = "i"


def identity_fits(
    root: Identity, root_columns: Collection[str], partition: Identity, partition_columns: Collection[str]
) -> bool:
    """True if a partition's old rows, as PostgreSQL sends them, have the columns that identify its root's rows.

    The columns are those of each one's identity index. The message under a root's name has the root's identity, and the old
    row has the columns of the partition's identity. It comes whenever one of these has changed, so more of them than the
    root's only bring it more often. A root without a key names none that could be among them.
    """
    if partition is Identity.FULL:
        return True
    if root is Identity.FULL:
        return False
    return set(root_columns) <= set(partition_columns) if root_columns else not partition_columns


@dataclass(frozen=True, slots=True)
class Column:
    """One column of one schema version.

    `kind` is the name of its row in `lakeproof.values.types` (e.g. `int4`, `numeric`, `text`), decided once, when the
    version is made, from the type's OID, typmod, base type and configuration. `attnum` is the catalog's attribute number: 0
    if it is unknown (its kind is then `exact_text`), below zero if the column came and went between two readings of the
    catalog, so that the lake leaves it out. `identity`: the column belongs to the replica identity's index.
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
    """One schema of one table, in force from a place in the stream until the next.

    `columns` are in the order of the Relation message. `key` lists the names of the columns that identify rows: the identity
    index's, or the configured ones under identity FULL; empty for a bag.
    """

    table: TableName
    oid: Oid
    identity: Identity
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    # Asked for with every batch; a table of 1,600 columns has a long text.
    _id: str = field(default="", init=False, repr=False, compare=False)

    @property
    def id(self) -> str:
        """16 hexadecimal digits that two versions share if and only if they are equal."""
        if not self._id:
            text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
            object.__setattr__(self, "_id", hashlib.sha256(text.encode()).hexdigest()[:16])
        return self._id

    @property
    def is_bag(self) -> bool:
        """True if rows have no key, so that the table is a multiset of rows."""
        return not self.key

    def to_json(self) -> dict[str, Any]:
        """Return the form that manifests carry (without `id`, which is derived)."""
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
        """Parse `to_json`'s form; raise KeyError, TypeError or ValueError on any other document."""
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


def lake_names(columns: Iterable[Column]) -> dict[str, str]:
    """Return each column's name in the lake: its own, or `#<attribute number>#<name>`.

    The second form is used if Spark could not tell the column from an earlier one (names that differ in case only), from a
    hidden column, or from one that Spark and Delta use themselves.
    """
    seen: set[str] = set()
    names: dict[str, str] = {}
    for column in columns:
        name = column.name
        folded = name.casefold()
        if folded in seen or folded in _TAKEN or folded.startswith((HIDDEN_PREFIX, SCRATCH_PREFIX, _TAKEN_PREFIX)):
            name = f"#{column.attnum}#{name}"
        while name.casefold() in seen:
            # A column that is called that comes before.
            name = f"#{name}"
        seen.add(name.casefold())
        names[column.name] = name
    return names


@dataclass(frozen=True, slots=True)
class LeftOutColumn:
    """A column that the stream does not have: `generated` is `stored`, `virtual`, or empty outside of a column list."""

    name: str
    generated: str


def describe_left_out(columns: Iterable[LeftOutColumn]) -> str:
    """Return the columns for people, each generated one with its kind: `amount (generated), note`."""
    return ", ".join(f"{c.name} (generated)" if c.generated else c.name for c in columns)
