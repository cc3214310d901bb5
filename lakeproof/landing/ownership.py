"""`source.json`: the source that owns a lake.

The source of one incarnation's chain is in its head (`manifest.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.storage.document_fields import read_document, write_document

SOURCE_FORMAT = "lakeproof.source/1"


@dataclass(frozen=True, slots=True)
class SourceDoc:
    """The owner of a lake: `system_id` and `database` are IDENTIFY_SYSTEM's; the database is identified by its OID."""

    source: str
    system_id: str
    database: str
    database_oid: int
    created_at: str

    def to_bytes(self) -> bytes:
        fields = {
            "source": self.source,
            "system_id": self.system_id,
            "database": self.database,
            "database_oid": self.database_oid,
        }
        return write_document(SOURCE_FORMAT, **fields, created_at=self.created_at)

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> SourceDoc:
        """Parse `to_bytes`; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, SOURCE_FORMAT, thing)
        return cls(
            f.text("source"), f.text("system_id"), f.text("database"), f.count("database_oid"), f.text("created_at")
        )
