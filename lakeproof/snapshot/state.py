"""The document of a snapshot part: its tables and the files that have their rows.

The parts that exist are listed by `folder.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from lakeproof.field_types import Count, Digest, IncarnationField, LsnField, NumberKey, SchemaField, TableField
from lakeproof.landing.segments.manifest import Decoded
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document import Document, Part


@dataclass(frozen=True, slots=True)
class SnapshotFile(Part):
    """A chunk's durable Parquet file: `path` below the snapshot's folder, `pages` [from, to or None) of `leaf`.

    `sum` is the sum of its rows as history has them (`lakeproof.landing.segments.row_sums`).
    """

    path: str
    rows: Count
    bytes: Count
    sha256: str
    sum: Count
    decoded: Decoded
    pages: tuple[Count, Count | None]
    leaf: str

    @property
    def number(self) -> int:
        """The chunk's number in its table, by which its rows have their ordinals; its file's name begins with it."""
        return int(re.split("[-.]", self.path.rpartition("/")[2], maxsplit=1)[0])


@dataclass(frozen=True, slots=True)
class SnapshotTable(Part):
    """A table of a snapshot: its schema version and its chunks' files; `rows` is their sum.

    `fingerprint` is the digest of its catalog entries at the consistent point (`lakeproof.catalog.fingerprint`), `files` its
    relfilenodes at that point, by the OID of the table or partition.
    """

    version: SchemaField
    rows: Count
    chunks: tuple[SnapshotFile, ...]
    fingerprint: str | None = None
    files: Mapping[NumberKey, Count] = field(default_factory=dict)
    schema_id: InitVar[Digest] = ""

    def __post_init__(self, schema_id: str) -> None:
        if schema_id not in ("", self.version.id):
            raise ValueError(f"has the schema_id {schema_id}, but its version is {self.version.id}")

    @classmethod
    def of(cls, version: SchemaVersion, chunks: Sequence[SnapshotFile] = ()) -> SnapshotTable:
        """Return the table of these chunks."""
        return cls(version, sum(chunk.rows for chunk in chunks), tuple(chunks))

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def row_bytes(self) -> int:
        """The size of its largest row."""
        return max((c.decoded.row for c in self.chunks), default=0)

    @model_serializer(mode="wrap")
    def _with_schema_id(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {**write(self), "schema_id": self.version.id}

    @model_validator(mode="after")
    def _adds_up(self) -> SnapshotTable:
        if self.rows != sum(c.rows for c in self.chunks):
            raise ValueError("has other rows than its chunks together")
        return self


@dataclass(frozen=True, slots=True)
class SnapshotDoc(Document):
    """A finished snapshot: every table in it as it was at `consistent_point`."""

    FORMAT = "lakeproof.snapshot/1"

    incarnation: IncarnationField
    consistent_point: LsnField
    started_at: str
    finished_at: str
    slot: str
    tables: Mapping[TableField, SnapshotTable]
