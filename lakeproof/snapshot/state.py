"""A snapshot part as a value: its tables and the files that have their rows; to bytes and back, strictly.

Which parts exist does not belong here (`folder.py`), nor does copying.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakeproof.landing.decoded_size import Decoded
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document_fields import Fields, read_document, write_document

SNAPSHOT_FORMAT = "lakeproof.snapshot/1"


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A chunk's durable Parquet file: `path` below the snapshot's folder, `pages` [from, to or None) of `leaf`."""

    path: str
    rows: int
    bytes: int
    sha256: str
    decoded: Decoded
    pages: tuple[int, int | None]
    leaf: str

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "decoded": self.decoded.to_json(),
            "pages": list(self.pages),
            "leaf": self.leaf,
        }

    @classmethod
    def from_fields(cls, f: Fields) -> SnapshotFile:
        pages = f.items("pages")
        if len(pages) != 2 or not isinstance(pages[0], int) or not isinstance(pages[1], int | None):
            raise f.damaged("pages", "is not [from, to or null]")
        size, decoded = f.count("bytes"), Decoded.from_fields(f.object("decoded"))
        return cls(
            f.text("path"), f.count("rows"), size, f.text("sha256"), decoded, (pages[0], pages[1]), f.text("leaf")
        )


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """A table of a snapshot: its schema version and its chunks' files; `rows` is their sum.

    `fingerprint` is the digest of its catalog entries at the consistent point (`lakeproof.catalog.fingerprint`), `files` its
    relfilenodes at that point, by the OID of the table or partition.
    """

    version: SchemaVersion
    rows: int
    chunks: tuple[SnapshotFile, ...]
    fingerprint: str | None = None
    files: Mapping[int, int] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """The size of its largest row."""
        return max((c.decoded.row for c in self.chunks), default=0)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_id": self.version.id,
            "version": self.version.to_json(),
            "rows": self.rows,
            "chunks": [c.to_json() for c in self.chunks],
            "fingerprint": self.fingerprint,
            "files": {str(oid): file for oid, file in sorted(self.files.items())},
        }

    @classmethod
    def from_fields(cls, f: Fields) -> SnapshotTable:
        version = f.version("version", f.text("schema_id"))
        chunks = tuple(SnapshotFile.from_fields(c) for c in f.objects("chunks"))
        rows = f.count("rows")
        if rows != sum(c.rows for c in chunks):
            raise f.damaged("rows", "is not the sum of its chunks' rows")
        files = f.object("files")
        oids = [oid for oid in files.doc if oid.isdecimal()]
        if len(oids) != len(files.doc):
            raise f.damaged("files", "has a name that is not an OID")
        relfilenodes = {int(oid): files.count(oid) for oid in oids}
        return cls(version, rows, chunks, f.optional("fingerprint", lambda: f.text("fingerprint")), relfilenodes)


@dataclass(frozen=True, slots=True)
class SnapshotDoc:
    """A finished snapshot: every table in it as it was at `consistent_point`."""

    incarnation: Incarnation
    consistent_point: Lsn
    started_at: str
    finished_at: str
    slot: str
    tables: Mapping[TableName, SnapshotTable]

    def to_bytes(self) -> bytes:
        return write_document(
            SNAPSHOT_FORMAT,
            incarnation=int(self.incarnation),
            consistent_point=str(self.consistent_point),
            started_at=self.started_at,
            finished_at=self.finished_at,
            slot=self.slot,
            tables={t.key: v.to_json() for t, v in self.tables.items()},
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> SnapshotDoc:
        """Parse `to_bytes`' form; raise LakeError naming `thing` and the damaged field."""
        f = read_document(data, SNAPSHOT_FORMAT, thing)
        return cls(
            incarnation=Incarnation(f.count("incarnation")),
            consistent_point=f.lsn("consistent_point"),
            started_at=f.text("started_at"),
            finished_at=f.text("finished_at"),
            slot=f.text("slot"),
            tables={t: SnapshotTable.from_fields(v) for t, v in f.tables("tables").items()},
        )
