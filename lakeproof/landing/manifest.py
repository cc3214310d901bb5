"""One manifest of the landing's chain as a value, to bytes and strictly back.

`chain.py` reads and writes the store. The fields are those of FORMAT.md. A document that differs from it in anything (an
unknown field, another spelling of the same JSON, a flipped digit) is refused, never repaired.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lakeproof.change_counts import COUNT_NAMES, ChangeCounts
from lakeproof.errors import RECOVER, LakeError
from lakeproof.landing.catalog_record import CatalogRecord, catalog_to_json, parse_catalog
from lakeproof.landing.decoded_size import Decoded
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName, Xid
from lakeproof.schema import SchemaVersion
from lakeproof.storage.fields import Fields, Malformed, canonical, parse_object, time_text

FORMAT = "lakeproof.manifest/1"
_WRITER = re.compile(r"[0-9a-f]{32}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SCHEMA_ID = re.compile(r"[0-9a-f]{16}")
# Above this a document is not a manifest: 10 000 tables of 100 columns that all change schema at once need 150 MB.
BYTES_MAX = 256 << 20


class Kind(Enum):
    """The four kinds of manifests."""

    HEAD = "head"
    SEGMENT = "segment"
    PROGRESS = "progress"
    CATALOG = "catalog"


@dataclass(frozen=True, slots=True)
class ChainSource:
    """The source that a chain belongs to; in its head. A database is identified by its OID: its name may change."""

    system_id: str
    timeline: int
    database: str
    database_oid: int
    slot: str
    publication: str
    server_version: int


@dataclass(frozen=True, slots=True)
class SchemaEntry:
    """A schema version in force from (`from_lsn`, `from_seq`) on; `from_lsn` is a commit's end LSN."""

    version: SchemaVersion
    from_lsn: Lsn
    from_seq: int


@dataclass(frozen=True, slots=True)
class SegmentFile:
    """A Parquet file that a manifest names: rows of one schema version of one table.

    `path` is below the landing's folder, `bytes` is the file's size, `decoded` that of its rows, and `rows` counts them all.
    """

    path: str
    oid: Oid
    schema_id: str
    table: TableName
    rows: int
    bytes: int
    sha256: str
    decoded: Decoded
    counts: ChangeCounts


@dataclass(frozen=True, slots=True)
class LogicalMessageFile:
    """A Parquet file of logical messages and origins. `path` and `bytes` are as in a `SegmentFile`."""

    path: str
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, order=True)
class LandedCommit:
    """A commit with rows, identified by its end, its xid and its time (µs since 1970 UTC)."""

    end_lsn: Lsn
    xid: Xid
    time_us: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """One element of the chain: the range (`start_lsn`, `end_lsn`] and what happened in it.

    `last_commit` is the last commit with rows: the server's history can be compared with it without reading a file. The
    first and last commit times are microseconds since 1970 UTC, None if the range has no rows. Every commit that ends at or
    before `catalog_lsn` was in a reading of the catalog that agreed with the newest `catalog` record so far.
    """

    kind: Kind
    number: int
    incarnation: Incarnation
    start_lsn: Lsn
    end_lsn: Lsn
    previous_sha256: str | None
    writer: str
    created_at: str
    transactions: int = 0
    last_commit: LandedCommit | None = None
    first_commit_us: int | None = None
    last_commit_us: int | None = None
    schemas: tuple[SchemaEntry, ...] = field(default=())
    files: tuple[SegmentFile, ...] = field(default=())
    source: ChainSource | None = None
    logical_messages: tuple[LogicalMessageFile, ...] = field(default=())
    catalog_lsn: Lsn | None = None
    catalog: CatalogRecord | None = None

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(f.rows for f in self.files)

    @property
    def named(self) -> tuple[SegmentFile | LogicalMessageFile, ...]:
        """Every file that this manifest makes visible."""
        return (*self.files, *self.logical_messages)

    def to_bytes(self) -> bytes:
        """Return the canonical document with its own checksum; `parse` gives the manifest back."""
        document = {**self._to_json(), "sha256": ""}
        document["sha256"] = hashlib.sha256(canonical(document)).hexdigest()
        return canonical(document)

    def _to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = {
            "format": FORMAT,
            "kind": self.kind.value,
            "number": self.number,
            "incarnation": int(self.incarnation),
            "start_lsn": str(self.start_lsn),
            "end_lsn": str(self.end_lsn),
            "previous_sha256": self.previous_sha256,
            "writer": self.writer,
            "created_at": self.created_at,
            "transactions": self.transactions,
            "rows": self.rows,
            "last_commit": None if self.last_commit is None else _commit_to_json(self.last_commit),
            "first_commit_time": time_text(self.first_commit_us),
            "last_commit_time": time_text(self.last_commit_us),
            "schemas": [_schema_to_json(s) for s in self.schemas],
            "files": [_file_to_json(f) for f in self.files],
            "logical_messages": [
                {name: getattr(file, name) for name in LogicalMessageFile.__slots__} for file in self.logical_messages
            ],
            "catalog_lsn": None if self.catalog_lsn is None else str(self.catalog_lsn),
        }
        if self.source is not None:
            document["source"] = {name: getattr(self.source, name) for name in ChainSource.__slots__}
        if self.catalog is not None:
            document["catalog"] = catalog_to_json(self.catalog)
        return document


def parse(data: bytes, name: str) -> Manifest:
    """Parse a manifest's bytes; raises LakeError naming `name`, the first thing wrong, and the remedy."""
    try:
        return _parse(data)
    except Malformed as error:
        raise LakeError(
            f"manifest {name}",
            f"it is damaged: {error}",
            f"restore this file from a backup, or {RECOVER}",
        ) from error


def _commit_to_json(commit: LandedCommit) -> dict[str, Any]:
    return {"end_lsn": str(commit.end_lsn), "xid": int(commit.xid), "time": time_text(commit.time_us)}


def _schema_to_json(entry: SchemaEntry) -> dict[str, Any]:
    return {
        "id": entry.version.id,
        "from_lsn": str(entry.from_lsn),
        "from_seq": entry.from_seq,
        "version": entry.version.to_json(),
    }


def _file_to_json(file: SegmentFile) -> dict[str, Any]:
    document: dict[str, Any] = {
        "path": file.path,
        "oid": int(file.oid),
        "schema_id": file.schema_id,
        "table": file.table.key,
        "rows": file.rows,
        "bytes": file.bytes,
        "sha256": file.sha256,
        "decoded": file.decoded.to_json(),
    }
    return document | {name: getattr(file.counts, name) for name in COUNT_NAMES}


def _parse(data: bytes) -> Manifest:
    if len(data) > BYTES_MAX:
        raise Malformed(f"it has {len(data)} bytes")
    fields = Fields(parse_object(data))
    given = fields.text("format")
    if given != FORMAT:
        raise Malformed(f"its format is {given[:40]!r}, not {FORMAT!r}")
    files = tuple(_parse_file(f) for f in fields.objects("files"))
    manifest = Manifest(
        kind=Kind(fields.one_of("kind", [k.value for k in Kind])),
        number=fields.count("number"),
        incarnation=Incarnation(fields.count("incarnation")),
        start_lsn=fields.lsn("start_lsn"),
        end_lsn=fields.lsn("end_lsn"),
        previous_sha256=fields.optional("previous_sha256", lambda: fields.matching("previous_sha256", _SHA256)),
        writer=fields.matching("writer", _WRITER),
        created_at=fields.text("created_at"),
        transactions=fields.count("transactions"),
        last_commit=fields.optional("last_commit", lambda: _parse_commit(fields.object("last_commit"))),
        first_commit_us=fields.optional("first_commit_time", lambda: fields.time_us("first_commit_time")),
        last_commit_us=fields.optional("last_commit_time", lambda: fields.time_us("last_commit_time")),
        schemas=tuple(_parse_schema(s) for s in fields.objects("schemas")),
        files=files,
        source=_parse_source(fields.object("source")) if fields.has("source") else None,
        logical_messages=tuple(_parse_message_file(f) for f in fields.objects("logical_messages")),
        catalog_lsn=fields.optional("catalog_lsn", lambda: fields.lsn("catalog_lsn")),
        catalog=parse_catalog(fields.object("catalog")) if fields.has("catalog") else None,
    )
    if fields.count("rows") != manifest.rows:
        raise Malformed(f"rows is {fields.count('rows')}, its files add up to {manifest.rows}")
    fields.matching("sha256", _SHA256)
    fields.end()
    _check(manifest)
    if manifest.to_bytes() != data:
        raise Malformed("its checksum or its spelling is not the one its contents call for")
    return manifest


def _check(manifest: Manifest) -> None:
    """Check the rules between fields."""
    head = manifest.kind is Kind.HEAD
    if (
        head != (manifest.number == 0)
        or head != (manifest.previous_sha256 is None)
        or head != (manifest.source is not None)
    ):
        raise Malformed("only number 0 is a head, with a source and without a predecessor")
    catalog = manifest.kind is Kind.CATALOG
    if manifest.start_lsn > manifest.end_lsn or (manifest.start_lsn == manifest.end_lsn) != (head or catalog):
        raise Malformed(f"its range ({manifest.start_lsn}, {manifest.end_lsn}] is not one of a {manifest.kind.value}")
    if (manifest.kind is Kind.SEGMENT) != bool(manifest.files or manifest.logical_messages):
        raise Malformed("a segment has files, and nothing else has")
    if (catalog and manifest.catalog is None) or (manifest.catalog is not None and not (catalog or head)):
        raise Malformed("a catalog reading must have its own manifest, or be in the head")
    last = manifest.last_commit
    if (last is not None) != bool(manifest.files):
        raise Malformed("a range has a last commit if it has rows, and only then")
    if last is not None and not manifest.start_lsn < last.end_lsn <= manifest.end_lsn:
        raise Malformed(f"its last commit ends at {last.end_lsn}, outside of its range")
    _check_schemas(manifest.schemas, manifest)


def _check_schemas(entries: Iterable[SchemaEntry], manifest: Manifest) -> None:
    for entry in entries:
        if not manifest.start_lsn < entry.from_lsn <= manifest.end_lsn:
            raise Malformed(f"the schema {entry.version.id} begins at {entry.from_lsn}, outside of its range")


def _parse_file(fields: Fields) -> SegmentFile:
    file = SegmentFile(
        path=fields.path("path"),
        oid=Oid(fields.count("oid")),
        schema_id=fields.matching("schema_id", _SCHEMA_ID),
        table=fields.table("table"),
        rows=fields.count("rows"),
        bytes=fields.count("bytes"),
        sha256=fields.matching("sha256", _SHA256),
        decoded=Decoded.from_fields(fields.object("decoded")),
        counts=ChangeCounts(**{name: fields.count(name) for name in COUNT_NAMES}),
    )
    fields.end()
    if file.counts.rows != file.rows:
        raise Malformed(f"the counts of {file.path} do not add up to its {file.rows} rows")
    return file


def _parse_message_file(fields: Fields) -> LogicalMessageFile:
    file = LogicalMessageFile(
        fields.path("path"), fields.count("rows"), fields.count("bytes"), fields.matching("sha256", _SHA256)
    )
    fields.end()
    return file


def _parse_commit(fields: Fields) -> LandedCommit:
    commit = LandedCommit(fields.lsn("end_lsn"), Xid(fields.count("xid")), fields.time_us("time"))
    fields.end()
    return commit


def _parse_schema(fields: Fields) -> SchemaEntry:
    version = fields.schema_version("version")
    entry = SchemaEntry(version, fields.lsn("from_lsn"), fields.count("from_seq"))
    given = fields.text("id")
    if given != version.id:
        raise Malformed(f"the schema called {given[:16]!r} is {version.id}")
    fields.end()
    return entry


def _parse_source(fields: Fields) -> ChainSource:
    source = ChainSource(
        system_id=fields.text("system_id"),
        timeline=fields.count("timeline"),
        database=fields.text("database"),
        database_oid=fields.count("database_oid"),
        slot=fields.text("slot"),
        publication=fields.text("publication"),
        server_version=fields.count("server_version"),
    )
    fields.end()
    return source
