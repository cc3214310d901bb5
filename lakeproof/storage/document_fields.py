"""The lake's JSON documents: written canonically, and read strictly, with a LakeError for each damaged field.

What the documents are belongs to `documents`; how a field is read to `lakeproof.storage.fields`.
"""

from __future__ import annotations

from typing import Any

from lakeproof.errors import LakeError
from lakeproof.schema import SchemaVersion
from lakeproof.storage import fields as strict

_REMEDY = "restore it from a backup: documents are never changed after they are written"


def write_document(document_format: str, **fields: Any) -> bytes:
    """UTF-8 JSON with sorted keys, no spaces and one trailing newline."""
    return strict.canonical({"format": document_format, **fields})


def read_document(data: bytes, document_format: str, thing: str) -> Fields:
    """The fields of a document of this format; raises LakeError for anything else, naming `thing`."""
    try:
        doc = strict.parse_object(data)
    except strict.Malformed as error:
        raise LakeError(thing, f"it is damaged: {error}", _REMEDY) from None
    found = doc.get("format")
    if found != document_format:
        reason = f"has format {str(found)[:40]!r} where {document_format!r} is expected"
        raise LakeError(thing, reason, "use the lakeproof that wrote it, or " + _REMEDY)
    return Fields(doc, thing)


class Fields(strict.Fields):
    """One JSON object on its way to a value; its `place` names it in errors. Methods raise LakeError for a damaged field."""

    def damaged(self, name: str, reason: str) -> LakeError:
        return LakeError(self.place, f"its field {name!r} {reason}", _REMEDY)

    def place_of(self, name: str) -> str:
        return f"{self.place}, {name}"

    def version(self, name: str, schema_id: str) -> SchemaVersion:
        """A schema version whose id must be `schema_id`."""
        version = self.schema_version(name)
        if version.id != schema_id:
            raise self.damaged(name, f"does not have the schema_id {schema_id[:40]!r}")
        return version
