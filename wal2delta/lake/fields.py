"""Strict reading and canonical writing of the lake's JSON documents, field by field.

What the documents are belongs to `documents`; the landing's manifests to `wal2delta.landing`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wal2delta.errors import LakeError
from wal2delta.lsn import Lsn
from wal2delta.names import TableName
from wal2delta.schema import SchemaVersion

_REMEDY = "restore it from a backup: documents are never changed after they are written"


def write_document(document_format: str, **fields: Any) -> bytes:
    """UTF-8 JSON with sorted keys, no spaces and one trailing newline."""
    text = json.dumps({"format": document_format, **fields}, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def read_document(data: bytes, document_format: str, thing: str) -> Fields:
    """The fields of a document of this format; raises LakeError for anything else, naming `thing`."""
    try:
        doc = json.loads(data)
    except ValueError:
        raise LakeError(thing, "is not JSON", _REMEDY) from None
    if not isinstance(doc, dict):
        raise LakeError(thing, "is not a JSON object", _REMEDY)
    found = doc.get("format")
    if found != document_format:
        reason = f"has format {str(found)[:40]!r} where {document_format!r} is expected"
        raise LakeError(thing, reason, "use the wal2delta that wrote it, or " + _REMEDY)
    return Fields(doc, thing)


@dataclass(frozen=True, slots=True)
class Fields:
    """One JSON object on its way to a value; `thing` names it in errors. Methods raise LakeError for a damaged field."""

    doc: Mapping[str, Any]
    thing: str

    def damaged(self, name: str, reason: str) -> LakeError:
        """The error for a field (to be raised by the caller)."""
        return LakeError(self.thing, f"its field {name!r} {reason}", _REMEDY)

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self.damaged(name, "is not a text")
        return value

    def maybe_text(self, name: str) -> str | None:
        return None if self._get(name) is None else self.text(name)

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        value = self.text(name)
        if value not in choices:
            raise self.damaged(name, f"is none of {', '.join(choices)}")
        return value

    def count(self, name: str) -> int:
        """A whole number from 0."""
        value = self._get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.damaged(name, "is not a whole number from 0")
        return value

    def lsn(self, name: str) -> Lsn:
        try:
            return Lsn.parse(self.text(name))
        except ValueError:
            raise self.damaged(name, "is not an LSN") from None

    def items(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self.damaged(name, "is not a list")
        return value

    def each(self, name: str) -> list[Fields]:
        """The objects of a list of objects."""
        return [self._inner(item, f"{name}[{index}]") for index, item in enumerate(self.items(name))]

    def tables(self, name: str) -> dict[TableName, Fields]:
        """An object from table keys to objects."""
        value = self._get(name)
        if not isinstance(value, dict):
            raise self.damaged(name, "is not an object")
        found = {}
        for key, item in value.items():
            try:
                table = TableName.from_key(key)
            except ValueError:
                raise self.damaged(name, f"has {key[:80]!r}, which is not a table's key") from None
            found[table] = self._inner(item, f"{name}[{key}]")
        return found

    def version(self, name: str, schema_id: str) -> SchemaVersion:
        """A schema version whose id must be `schema_id`."""
        try:
            version = SchemaVersion.from_json(self._get(name))
        except (KeyError, TypeError, ValueError):
            raise self.damaged(name, "is not a schema version") from None
        if version.id != schema_id:
            raise self.damaged(name, f"does not have the schema_id {schema_id[:40]!r}")
        return version

    def _get(self, name: str) -> Any:
        if name not in self.doc:
            raise self.damaged(name, "is missing")
        return self.doc[name]

    def _inner(self, item: Any, place: str) -> Fields:
        if not isinstance(item, dict):
            raise self.damaged(place, "is not an object")
        return Fields(item, f"{self.thing}, {place}")
