"""The lake's JSON documents as values: source, snapshot, intent and cut; to bytes and back, strictly.

Where they lie belongs to `wal2delta.landing.lake_paths`, when they are written to `cycle`; FORMAT.md says what fields mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from wal2delta.config.table_names import write_table
from wal2delta.errors import LakeError
from wal2delta.lake.evolution import Reshape
from wal2delta.lake.fields import Fields, read_document, write_document
from wal2delta.lsn import Lsn
from wal2delta.names import CycleNumber, Incarnation, TableName
from wal2delta.schema import SchemaVersion

SOURCE_FORMAT = "wal2delta.source/1"
SNAPSHOT_FORMAT = "wal2delta.snapshot/1"
INTENT_FORMAT = "wal2delta.intent/1"
CUT_FORMAT = "wal2delta.cut/1"
KINDS = ("apply", "repair", "maintenance", "schema")
# `Held.named` fills SOURCE and TABLE in; by this text in a cut `pipeline.recopy` knows what a snapshot brings back.
RESNAPSHOT = "run `wal2delta bootstrap SOURCE --tables TABLE`, then compact"


@dataclass(frozen=True, slots=True)
class SourceDoc:
    """Whose lake this is: `system_id` and `database` as IDENTIFY_SYSTEM gives them."""

    source: str
    system_id: str
    database: str
    created_at: str

    def to_bytes(self) -> bytes:
        return write_document(
            SOURCE_FORMAT,
            source=self.source,
            system_id=self.system_id,
            database=self.database,
            created_at=self.created_at,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> SourceDoc:
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, SOURCE_FORMAT, thing)
        return cls(f.text("source"), f.text("system_id"), f.text("database"), f.text("created_at"))


@dataclass(frozen=True, slots=True)
class Chunk:
    """One durable Parquet file of a snapshot: `path` below the snapshot's folder, `pages` [from, to or None) of `leaf`."""

    path: str
    rows: int
    bytes: int
    sha256: str
    pages: tuple[int, int | None]
    leaf: str

    def to_json(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "rows": self.rows,
            "bytes": self.bytes,
            "sha256": self.sha256,
            "pages": list(self.pages),
            "leaf": self.leaf,
        }

    @classmethod
    def from_fields(cls, f: Fields) -> Chunk:
        pages = f.items("pages")
        if len(pages) != 2 or not isinstance(pages[0], int) or not isinstance(pages[1], int | None):
            raise f.damaged("pages", "is not [from, to or null]")
        return cls(
            f.text("path"), f.count("rows"), f.count("bytes"), f.text("sha256"), (pages[0], pages[1]), f.text("leaf")
        )


@dataclass(frozen=True, slots=True)
class SnapshotTable:
    """One table of a snapshot: its shape and its chunks; `rows` is their sum.

    `fingerprint` is the digest of what the catalog said of it at the consistent point (`wal2delta.fingerprint`).
    """

    version: SchemaVersion
    rows: int
    chunks: tuple[Chunk, ...]
    fingerprint: str | None = None

    @property
    def bytes_per_row(self) -> float:
        """The mean over its files, compressed; 0 where there is no row."""
        return sum(c.bytes for c in self.chunks) / max(self.rows, 1)

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_id": self.version.id,
            "version": self.version.to_json(),
            "rows": self.rows,
            "chunks": [c.to_json() for c in self.chunks],
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_fields(cls, f: Fields) -> SnapshotTable:
        version = f.version("version", f.text("schema_id"))
        chunks = tuple(Chunk.from_fields(c) for c in f.objects("chunks"))
        rows = f.count("rows")
        if rows != sum(c.rows for c in chunks):
            raise f.damaged("rows", "is not the sum of its chunks' rows")
        return cls(version, rows, chunks, f.optional("fingerprint", lambda: f.text("fingerprint")))


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
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, SNAPSHOT_FORMAT, thing)
        return cls(
            incarnation=Incarnation(f.count("incarnation")),
            consistent_point=f.lsn("consistent_point"),
            started_at=f.text("started_at"),
            finished_at=f.text("finished_at"),
            slot=f.text("slot"),
            tables={t: SnapshotTable.from_fields(v) for t, v in f.tables("tables").items()},
        )


@dataclass(frozen=True, slots=True)
class Held:
    """Why a table stands still, where, and what a person does about it."""

    at_lsn: Lsn
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"held since {self.at_lsn}: {self.reason}; {self.remedy}"

    def named(self, source: str, table: TableName) -> Held:
        """The same with its remedy's SOURCE and TABLE filled in, to be typed as it stands."""
        typed = f"{source} --tables {shlex.quote(write_table(table))}"
        remedy = self.remedy.replace("SOURCE --tables TABLE", typed)
        return replace(self, remedy=remedy.replace("bootstrap SOURCE ", f"bootstrap {source} "))

    def to_json(self) -> dict[str, Any]:
        return {"at_lsn": str(self.at_lsn), "reason": self.reason, "remedy": self.remedy}

    @classmethod
    def from_fields(cls, f: Fields) -> Held:
        return cls(f.lsn("at_lsn"), f.text("reason"), f.text("remedy"))


@dataclass(frozen=True, slots=True)
class SegmentBase:
    """A segment that a cycle reads, and the `_w2d_ord` of its row 0."""

    number: int
    base: int


@dataclass(frozen=True, slots=True)
class TableIntent:
    """What a cycle does to a table: its changes begin after `from_lsn`; `snapshot` is the key of the one that enters.

    `reshape`, in a cycle of kind `schema`, is the shape that it is given; `history_through`, in one of maintenance, the cut
    up to which history becomes the rows as they were then.
    """

    from_lsn: Lsn
    schema_id: str
    snapshot: str | None = None
    reshape: Reshape | None = None
    history_through: CycleNumber | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "from_lsn": str(self.from_lsn),
            "schema_id": self.schema_id,
            "snapshot": self.snapshot,
            "reshape": None if self.reshape is None else self.reshape.to_json(),
            "history_through": self.history_through,
        }

    @classmethod
    def from_fields(cls, f: Fields) -> TableIntent:
        return cls(
            f.lsn("from_lsn"),
            f.text("schema_id"),
            f.optional("snapshot", lambda: f.text("snapshot")),
            f.optional("reshape", lambda: Reshape.from_fields(f.object("reshape"))),
            f.optional("history_through", lambda: CycleNumber(f.count("history_through"))),
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """What a cycle is going to do; whoever finishes it uses these values."""

    number: CycleNumber
    kind: str
    incarnation: Incarnation
    start_lsn: Lsn
    end_lsn: Lsn
    segments: tuple[SegmentBase, ...]
    tables: Mapping[TableName, TableIntent]
    held: Mapping[TableName, Held]
    epoch: int
    writer: str
    created_at: str

    def to_bytes(self) -> bytes:
        return write_document(
            INTENT_FORMAT,
            number=int(self.number),
            kind=self.kind,
            incarnation=int(self.incarnation),
            start_lsn=str(self.start_lsn),
            end_lsn=str(self.end_lsn),
            segments=[{"number": s.number, "base": s.base} for s in self.segments],
            tables={t.key: v.to_json() for t, v in self.tables.items()},
            held={t.key: v.to_json() for t, v in self.held.items()},
            epoch=self.epoch,
            writer=self.writer,
            created_at=self.created_at,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> Intent:
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, INTENT_FORMAT, thing)
        intent = cls(
            number=CycleNumber(f.count("number")),
            kind=f.one_of("kind", KINDS),
            incarnation=Incarnation(f.count("incarnation")),
            start_lsn=f.lsn("start_lsn"),
            end_lsn=f.lsn("end_lsn"),
            segments=tuple(SegmentBase(s.count("number"), s.count("base")) for s in f.objects("segments")),
            tables={t: TableIntent.from_fields(v) for t, v in f.tables("tables").items()},
            held={t: Held.from_fields(v) for t, v in f.tables("held").items()},
            epoch=f.count("epoch"),
            writer=f.text("writer"),
            created_at=f.text("created_at"),
        )
        if intent.end_lsn < intent.start_lsn:
            raise f.damaged("end_lsn", "lies before start_lsn")
        return intent


@dataclass(frozen=True, slots=True)
class HistoryLow:
    """Where a table's history begins, since older changes were removed: its rows as they were at cut `cut`, at `at_lsn`.

    `archived`: the archive has everything that was ever removed, so history can be made whole again.
    """

    cut: CycleNumber
    at_lsn: Lsn
    archived: bool

    def to_json(self) -> dict[str, Any]:
        return {"cut": int(self.cut), "at_lsn": str(self.at_lsn), "archived": self.archived}

    @classmethod
    def from_fields(cls, f: Fields) -> HistoryLow:
        return cls(CycleNumber(f.count("cut")), f.lsn("at_lsn"), f.flag("archived"))


@dataclass(frozen=True, slots=True)
class CutTable:
    """A table at a cut: where it stands, the Delta versions that say so, and its shape (the source's names).

    `at_lsn` is a position of `incarnation`, the cut's own but for a held table; `snapshot_lsn`, one of
    `snapshot_incarnation`, is the consistent point of the newest snapshot that has entered, or has been tried. History is
    whole where `history_low` is None.
    """

    at_lsn: Lsn
    snapshot_lsn: Lsn
    history_version: int
    current_version: int
    version: SchemaVersion
    incarnation: Incarnation
    snapshot_incarnation: Incarnation
    history_low: HistoryLow | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "at_lsn": str(self.at_lsn),
            "snapshot_lsn": str(self.snapshot_lsn),
            "history_version": self.history_version,
            "current_version": self.current_version,
            "schema_id": self.version.id,
            "version": self.version.to_json(),
            "incarnation": int(self.incarnation),
            "snapshot_incarnation": int(self.snapshot_incarnation),
            "history_low": None if self.history_low is None else self.history_low.to_json(),
        }

    @classmethod
    def from_fields(cls, f: Fields) -> CutTable:
        version = f.version("version", f.text("schema_id"))
        return cls(
            at_lsn=f.lsn("at_lsn"),
            snapshot_lsn=f.lsn("snapshot_lsn"),
            history_version=f.count("history_version"),
            current_version=f.count("current_version"),
            version=version,
            incarnation=Incarnation(f.count("incarnation")),
            snapshot_incarnation=Incarnation(f.count("snapshot_incarnation")),
            history_low=f.optional("history_low", lambda: HistoryLow.from_fields(f.object("history_low"))),
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a cycle: every table of the source, each at a Delta version, all at `position` but the held ones."""

    number: CycleNumber
    kind: str
    incarnation: Incarnation
    position: Lsn
    commit_time: str | None
    tables: Mapping[TableName, CutTable]
    next_segment: int
    intent_sha256: str
    created_at: str
    held: Mapping[TableName, Held] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        return write_document(
            CUT_FORMAT,
            number=int(self.number),
            kind=self.kind,
            incarnation=int(self.incarnation),
            position=str(self.position),
            commit_time=self.commit_time,
            tables={t.key: v.to_json() for t, v in self.tables.items()},
            held={t.key: v.to_json() for t, v in self.held.items()},
            next_segment=self.next_segment,
            intent_sha256=self.intent_sha256,
            created_at=self.created_at,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> Cut:
        """The inverse; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, CUT_FORMAT, thing)
        return cls(
            number=CycleNumber(f.count("number")),
            kind=f.one_of("kind", KINDS),
            incarnation=Incarnation(f.count("incarnation")),
            position=f.lsn("position"),
            commit_time=f.optional("commit_time", lambda: f.text("commit_time")),
            tables={t: CutTable.from_fields(v) for t, v in f.tables("tables").items()},
            held={t: Held.from_fields(v) for t, v in f.tables("held").items()},
            next_segment=f.count("next_segment"),
            intent_sha256=f.text("intent_sha256"),
            created_at=f.text("created_at"),
        )

    def table(self, table: TableName, source: str) -> CutTable:
        """Where `table` stands; raises LakeError where this cut does not have it."""
        found = self.tables.get(table)
        if found is None:
            raise LakeError(
                f"{source}: {table}",
                f"cut {self.number} does not have this table",
                "bootstrap the table, or ask for a later cut",
            )
        return found
