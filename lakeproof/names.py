"""Names that are types: tables, OIDs, incarnations, cycles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NewType, TypeAlias
from urllib.parse import quote, unquote

Oid = NewType("Oid", int)
Xid = NewType("Xid", int)
Incarnation = NewType("Incarnation", int)
CycleNumber = NewType("CycleNumber", int)
# The two Delta tables of a table.
Layer: TypeAlias = Literal["history", "current"]
LAYERS: tuple[Layer, ...] = ("history", "current")

# These characters stay as they are in a path; all others are percent-encoded (a dot if it could make `.` or `..`).
_SAFE = "-_"


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table's schema and name, exactly as the catalog has them.

    `key` (`public/order%20lines`) names the table in paths, in JSON documents and in Dagster's asset keys;
    `str()` (`public.order lines`) is for people.
    """

    schema: str
    name: str

    @property
    def key(self) -> str:
        """The percent-encoded `schema/name`."""
        return f"{_encode(self.schema)}/{_encode(self.name)}"

    @classmethod
    def from_key(cls, key: str) -> TableName:
        """Parse a `key`; raise ValueError unless there are two parts."""
        schema, slash, name = key.partition("/")
        if not slash or "/" in name or not schema or not name:
            raise ValueError(f"not a table key: {key!r} (the form is schema/name)")
        return cls(unquote(schema), unquote(name))

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"


def _encode(part: str) -> str:
    return quote(part, safe=_SAFE).replace(".", "%2E").replace("~", "%7E")
