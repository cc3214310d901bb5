"""One manifest of the landing's chain.

`chain.py` reads and writes the store. The fields are those of FORMAT.md. A document that differs from them in anything (an
unknown field, another spelling of the same JSON, a flipped digit) is refused, never repaired.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import InitVar, dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from lakeproof.change_counts import COUNT_NAMES, ChangeCounts
from lakeproof.errors import RECOVER, LakeError
from lakeproof.field_types import (
    AsText,
    Count,
    Digest,
    IncarnationField,
    LsnField,
    OidField,
    RelativePath,
    SchemaField,
    Sha256,
    TableField,
    XidField,
)
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.segments.row_order import ordinal_behind
from lakeproof.storage.document import Document, Part, TimeField, canonical
from lakeproof.storage.times import time_text, time_us
from lakeproof.values.commit_times import is_of_calendar, number_of, of_number

# Above this a document is not a manifest: 10 000 tables of 100 columns that all change schema at once need 150 MB.
BYTES_MAX = 256 << 20
_Time = Annotated[int, AsText(time_us, time_text, "is not a time")]


def _commit_time_us(text: str) -> int:
    return of_number(int(text)) if _NUMBER.fullmatch(text) else time_us(text)


def _commit_time_text(us: int) -> str:
    return time_text(us) if is_of_calendar(us) else str(number_of(us))


_NUMBER = re.compile("-?[0-9]{1,19}")
_CommitTime = Annotated[int, AsText(_commit_time_us, _commit_time_text, "is not a time")]
_Writer = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class ManifestKind(Enum):
    """The four kinds of manifests."""

    HEAD = "head"
    SEGMENT = "segment"
    PROGRESS = "progress"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class ChainSource(Part):
    """The source that a chain belongs to; in its head. A database is identified by its OID: its name may change."""

    system_id: str
    timeline: Count
    database: str
    database_oid: Count
    slot: str
    publication: str
    server_version: Count


@dataclass(frozen=True, slots=True)
class SchemaEntry(Part):
    """A schema version in force from (`from_lsn`, `from_seq`) on; `from_lsn` is a commit's end LSN."""

    version: SchemaField
    from_lsn: LsnField
    from_seq: Count
    id: InitVar[Digest] = ""

    def __post_init__(self, id: str) -> None:  # noqa: A002  the document's name for it
        if id not in ("", self.version.id):
            raise ValueError(f"has the id {id}, but its version is {self.version.id}")

    @model_serializer(mode="wrap")
    def _with_id(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        return {**write(self), "id": self.version.id}


@dataclass(frozen=True, slots=True)
class Decoded(Part):
    """Bytes of the values: of all rows (`bytes`), and of one row at most (`row`)."""

    bytes: Count
    row: Count


@dataclass(frozen=True, slots=True)
class SegmentFile(Part):
    """A Parquet file that a manifest names: rows of one schema version of one table.

    `path` is below the landing's folder, `bytes` is the file's size, `decoded` that of its rows, and `rows` counts them all.
    `sum` is the sum of its rows as history has them (`row_sums.py`), `refused` counts the rows that must not be applied.
    """

    path: RelativePath
    oid: OidField
    schema_id: Digest
    table: TableField
    rows: Count
    bytes: Count
    sha256: Sha256
    sum: Count
    refused: Count
    decoded: Decoded
    counts: ChangeCounts

    @model_validator(mode="before")
    @classmethod
    def _with_nested_counts(cls, document: object) -> object:
        if not isinstance(document, dict):
            return document
        counts = {name: document[name] for name in COUNT_NAMES if name in document}
        return {**{name: value for name, value in document.items() if name not in counts}, "counts": counts}

    @model_serializer(mode="wrap")
    def _with_flat_counts(self, write: SerializerFunctionWrapHandler) -> dict[str, object]:
        document = write(self)
        counts = document.pop("counts")
        return {**document, **counts}

    @model_validator(mode="after")
    def _adds_up(self) -> SegmentFile:
        if self.counts.rows != self.rows or min(getattr(self.counts, name) for name in COUNT_NAMES) < 0:
            raise ValueError(f"has counts that do not add up to its {self.rows} rows")
        return self


@dataclass(frozen=True, slots=True)
class LogicalMessageFile(Part):
    """A Parquet file of logical messages and origins. `path` and `bytes` are as in a `SegmentFile`."""

    path: RelativePath
    rows: Count
    bytes: Count
    sha256: Sha256


@dataclass(frozen=True, slots=True, order=True)
class LandedCommit(Part):
    """A commit with rows, identified by its end, its xid and its time (µs since 1970 UTC, without a limit)."""

    end_lsn: LsnField
    xid: XidField
    time_us: Annotated[_CommitTime, Field(alias="time")]


@dataclass(frozen=True, slots=True)
class Manifest(Document):
    """One element of the chain: the range (`start_lsn`, `end_lsn`] and what happened in it.

    `last_commit` is the last commit with rows: the server's history can be compared with it without reading a file. The
    first and last commit times, as they count (`lakeproof.values.commit_times`), are microseconds since 1970 UTC, None if
    the range has no rows. `first_ordinal` is the `_lp_ord` of its first row. Every commit that ends at or before
    `catalog_lsn` was in a reading of the catalog that agreed with the newest `catalog` record so far.
    """

    FORMAT = "lakeproof.manifest/1"
    REMEDY = f"restore this file from a backup, or {RECOVER}"
    ABSENT_IF_NONE = frozenset({"source", "catalog"})

    kind: ManifestKind
    number: Count
    incarnation: IncarnationField
    first_ordinal: Count
    start_lsn: LsnField
    end_lsn: LsnField
    previous_sha256: Sha256 | None
    writer: _Writer
    created_at: TimeField
    transactions: Count = 0
    last_commit: LandedCommit | None = None
    first_commit_us: Annotated[_Time | None, Field(alias="first_commit_time")] = None
    last_commit_us: Annotated[_Time | None, Field(alias="last_commit_time")] = None
    schemas: tuple[SchemaEntry, ...] = field(default=())
    files: tuple[SegmentFile, ...] = field(default=())
    source: ChainSource | None = None
    logical_messages: tuple[LogicalMessageFile, ...] = field(default=())
    catalog_lsn: LsnField | None = None
    catalog: CatalogRecord | None = None
    # These two are in the document alone: they follow from the others, and `parse` compares the bytes.
    written_rows: InitVar[Annotated[Count | None, Field(alias="rows")]] = None
    sha256: InitVar[Sha256] = ""

    def __post_init__(self, written_rows: int | None, *_: str) -> None:
        if written_rows not in (None, self.rows):
            raise ValueError(f"rows is {written_rows}, its files add up to {self.rows}")

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(f.rows for f in self.files)

    @property
    def next_ordinal(self) -> int:
        """The `first_ordinal` of the manifest behind this one."""
        has_room = self.kind is ManifestKind.HEAD or self.rows > 0
        return ordinal_behind(self.first_ordinal, self.rows) if has_room else self.first_ordinal

    @property
    def named(self) -> tuple[SegmentFile | LogicalMessageFile, ...]:
        """Every file that this manifest makes visible."""
        return (*self.files, *self.logical_messages)

    def to_bytes(self) -> bytes:
        """Return the canonical document with its own checksum; `parse` gives the manifest back."""
        document = {"format": self.FORMAT, **self.to_json(), "sha256": ""}
        document["sha256"] = hashlib.sha256(canonical(document)).hexdigest()
        return canonical(document)

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON has them, without the checksum."""
        document = {**Document.to_json(self), "rows": self.rows}
        return {name: value for name, value in document.items() if value is not None or name not in self.ABSENT_IF_NONE}

    @model_validator(mode="after")
    def _fits_together(self) -> Manifest:
        head = self.kind is ManifestKind.HEAD
        if head != (self.number == 0) or head != (self.previous_sha256 is None) or head != (self.source is not None):
            raise ValueError("only number 0 is a head, with a source and without a predecessor")
        catalog = self.kind is ManifestKind.CATALOG
        if self.start_lsn > self.end_lsn or (self.start_lsn == self.end_lsn) != (head or catalog):
            raise ValueError(f"its range ({self.start_lsn}, {self.end_lsn}] is not one of a {self.kind.value}")
        if (self.kind is ManifestKind.SEGMENT) != bool(self.named):
            raise ValueError("a segment has files, and nothing else has")
        if (catalog and self.catalog is None) or (self.catalog is not None and not (catalog or head)):
            raise ValueError("a catalog reading must have its own manifest, or be in the head")
        last = self.last_commit
        if (last is not None) != bool(self.files):
            raise ValueError("a range has a last commit if it has rows, and only then")
        if last is not None and not self.start_lsn < last.end_lsn <= self.end_lsn:
            raise ValueError(f"its last commit ends at {last.end_lsn}, outside of its range")
        for entry in self.schemas:
            if not self.start_lsn < entry.from_lsn <= self.end_lsn:
                raise ValueError(f"the schema {entry.version.id} begins at {entry.from_lsn}, outside of its range")
        return self


def parse(data: bytes, name: str) -> Manifest:
    """Parse a manifest's bytes; raises LakeError naming `name`, the first thing wrong, and the remedy."""
    thing = f"manifest {name}"
    if len(data) > BYTES_MAX:
        raise LakeError(thing, f"it is damaged: it has {len(data)} bytes", Manifest.REMEDY)
    manifest = Manifest.from_bytes(data, thing)
    if manifest.to_bytes() != data:
        reason = "it is damaged: its checksum or its spelling is not the one its contents call for"
        raise LakeError(thing, reason, Manifest.REMEDY)
    return manifest
