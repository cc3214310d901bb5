"""The lake's JSON documents: written canonically, and read strictly, with a LakeError for each damaged field.

The documents themselves do not belong here, nor does the reading of single fields (`fields.py`).
"""

from __future__ import annotations

from typing import Any

from lakeproof.errors import LakeError
from lakeproof.schema import SchemaVersion
from lakeproof.storage import fields as strict

_REMEDY = "restore it from a backup: documents are never changed after they are written"


def write_document(document_format: str, **fields: Any) -> bytes:
    """Return UTF-8 JSON with sorted keys, no spaces and one trailing newline."""
    return strict.canonical({"format": document_format, **fields})


def read_document(data: bytes, document_format: str, thing: str) -> Fields:
    """Return the fields of a document of this format; raise LakeError about `thing` for anything else."""
    try:
        doc = strict.parse_object(data)
    except strict.Malformed as error:
        raise LakeError(thing, f"it is damaged: {error}", _REMEDY) from None
    actual = doc.get("format")
    if actual != document_format:
        reason = f"has format {str(actual)[:40]!r}, not {document_format!r}"
        raise LakeError(thing, reason, "use the lakeproof that wrote it, or " + _REMEDY)
    return Fields(doc, thing)


class Fields(strict.Fields):
    """The fields of one JSON object; `place` names it in errors. Methods raise LakeError for a damaged field."""

    def damaged(self, name: str, reason: str) -> LakeError:
        return LakeError(self.place, f"its field {name!r} {reason}", _REMEDY)

    def place_of(self, name: str) -> str:
        return f"{self.place}, {name}"

    def version(self, name: str, schema_id: str) -> SchemaVersion:
        """Return a schema version whose id must be `schema_id`."""
        version = self.schema_version(name)
        if version.id != schema_id:
            raise self.damaged(name, f"does not have the schema_id {schema_id[:40]!r}")
        return version
