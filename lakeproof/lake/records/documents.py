"""Intents and cuts as values; an intent also to bytes and back, strictly.

A cut's bytes do not belong here but in `cut_documents`, the folders in `lakeproof.storage.paths`, the moment of writing in
`lakeproof.lake.cycle`. FORMAT.md says what the fields mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lakeproof.errors import LakeError
from lakeproof.lake.records.held import Held
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document_fields import Fields, read_document, write_document


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema that a table gets, and what its older rows read in columns that were added (attribute number → text).

    `called_for` is the consistent point of the snapshot that calls for it, None if the stream does.
    """

    version: SchemaVersion
    default_for_old_rows: Mapping[int, str] = field(default_factory=dict)
    called_for: Lsn | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the intent's field `schema_change`."""
        defaults = {str(attnum): text for attnum, text in sorted(self.default_for_old_rows.items())}
        called_for = None if self.called_for is None else str(self.called_for)
        return {"version": self.version.to_json(), "default_for_old_rows": defaults, "called_for": called_for}

    @classmethod
    def from_fields(cls, f: Fields) -> SchemaChange:
        """Read what `to_json` gives; raises LakeError for a damaged field."""
        given = f.object("default_for_old_rows")
        defaults = {int(name): given.text(name) for name in given.doc if name.isdecimal()}
        if len(defaults) < len(given.doc):
            raise f.damaged("default_for_old_rows", "has a name that is no attribute number")
        called_for = f.optional("called_for", lambda: f.lsn("called_for"))
        return cls(f.schema_version("version"), defaults, called_for)


INTENT_FORMAT = "lakeproof.intent/1"


class CycleKind(Enum):
    """The kinds of cycles; FORMAT.md has their meanings."""

    APPLY = "apply"
    REPAIR = "repair"
    MAINTENANCE = "maintenance"
    SCHEMA = "schema"

    @property
    def is_maintenance(self) -> bool:
        """True if the cycle brings no changes of the source."""
        return self in {CycleKind.REPAIR, CycleKind.MAINTENANCE}

    @classmethod
    def from_fields(cls, f: Fields) -> CycleKind:
        """Read the field `kind`; raises LakeError if it is damaged."""
        return cls(f.one_of("kind", [kind.value for kind in cls]))


@dataclass(frozen=True, slots=True)
class SegmentOrdinal:
    """A segment that a cycle reads, and the `_lp_ord` of its row 0."""

    number: int
    first_ordinal: int


@dataclass(frozen=True, slots=True)
class TableIntent:
    """One table in an intent: its changes begin after `from_lsn`; `snapshot` is the key of the one that enters.

    `schema_change`, in a cycle of kind `schema`, is the schema that the table gets. `history_through`, in one of
    maintenance, is the cut up to which history becomes the rows as they were then. `created` is the schema of a table that
    enters without a snapshot: it had no row up to `from_lsn`.
    """

    from_lsn: Lsn
    schema_id: str
    snapshot: str | None = None
    schema_change: SchemaChange | None = None
    history_through: CycleNumber | None = None
    created: SchemaVersion | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "from_lsn": str(self.from_lsn),
            "schema_id": self.schema_id,
            "snapshot": self.snapshot,
            "schema_change": None if self.schema_change is None else self.schema_change.to_json(),
            "history_through": self.history_through,
            "created": None if self.created is None else self.created.to_json(),
        }

    @classmethod
    def from_fields(cls, f: Fields) -> TableIntent:
        return cls(
            f.lsn("from_lsn"),
            f.text("schema_id"),
            f.optional("snapshot", lambda: f.text("snapshot")),
            f.optional("schema_change", lambda: SchemaChange.from_fields(f.object("schema_change"))),
            f.optional("history_through", lambda: CycleNumber(f.count("history_through"))),
            f.optional("created", lambda: f.schema_version("created")),
        )


@dataclass(frozen=True, slots=True)
class Intent:
    """The values that a cycle is run with, no matter who finishes it."""

    number: CycleNumber
    kind: CycleKind
    incarnation: Incarnation
    start_lsn: Lsn
    end_lsn: Lsn
    segments: tuple[SegmentOrdinal, ...]
    tables: Mapping[TableName, TableIntent]
    held: Mapping[TableName, Held]
    epoch: int
    writer: str
    created_at: str

    def to_bytes(self) -> bytes:
        return write_document(
            INTENT_FORMAT,
            number=int(self.number),
            kind=self.kind.value,
            incarnation=int(self.incarnation),
            start_lsn=str(self.start_lsn),
            end_lsn=str(self.end_lsn),
            segments=[{"number": s.number, "first_ordinal": s.first_ordinal} for s in self.segments],
            tables={t.key: v.to_json() for t, v in self.tables.items()},
            held={t.key: v.to_json() for t, v in self.held.items()},
            epoch=self.epoch,
            writer=self.writer,
            created_at=self.created_at,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> Intent:
        """Read what `to_bytes` gives; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, INTENT_FORMAT, thing)
        intent = cls(
            number=CycleNumber(f.count("number")),
            kind=CycleKind.from_fields(f),
            incarnation=Incarnation(f.count("incarnation")),
            start_lsn=f.lsn("start_lsn"),
            end_lsn=f.lsn("end_lsn"),
            segments=tuple(SegmentOrdinal(s.count("number"), s.count("first_ordinal")) for s in f.objects("segments")),
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
    """The beginning of a table's history whose older changes were removed: its rows as of cut `cut`, at `at_lsn`.

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
    """A table at a cut: its position, its two Delta versions there, and its schema (with the source's names).

    `at_lsn` is a position of `incarnation`, the cut's own unless the table is held; `snapshot_lsn`, one of
    `snapshot_incarnation`, is the consistent point of the newest snapshot that has entered, or was tried. History is whole
    if `history_low` is None; `history_sum` is the checksum of its rows. No row has had more octets than `row_bytes`, about.
    `exact_from`: the changes before this position, since the previous cut, are not in history: a copy brought their result.
    """

    at_lsn: Lsn
    snapshot_lsn: Lsn
    history_version: int
    current_version: int
    version: SchemaVersion
    incarnation: Incarnation
    snapshot_incarnation: Incarnation
    history_low: HistoryLow | None = None
    row_bytes: int = 0
    history_sum: HistorySum = field(default_factory=HistorySum)
    exact_from: Lsn | None = None

    def to_json(self, position: Lsn, incarnation: Incarnation) -> dict[str, Any]:
        """Return the entry in a cut at `position` of `incarnation`; if the table stands there too, null says so.

        So the entry of a table without changes is the same in every cut.
        """
        follows = (self.at_lsn, self.incarnation) == (position, incarnation)
        return {
            "at_lsn": None if follows else str(self.at_lsn),
            "snapshot_lsn": str(self.snapshot_lsn),
            "history_version": self.history_version,
            "current_version": self.current_version,
            "schema_id": self.version.id,
            "incarnation": None if follows else int(self.incarnation),
            "snapshot_incarnation": int(self.snapshot_incarnation),
            "history_low": None if self.history_low is None else self.history_low.to_json(),
            "row_bytes": self.row_bytes,
            "history_sum": self.history_sum.to_json(),
            "exact_from": None if self.exact_from is None else str(self.exact_from),
        }

    @classmethod
    def from_fields(
        cls, f: Fields, position: Lsn, incarnation: Incarnation, schema: Callable[[str], SchemaVersion]
    ) -> CutTable:
        """Read what `to_json` gives; `schema` gives the schema of an id."""
        at_lsn = f.optional("at_lsn", lambda: f.lsn("at_lsn"))
        own = f.optional("incarnation", lambda: Incarnation(f.count("incarnation")))
        return cls(
            at_lsn=position if at_lsn is None else at_lsn,
            snapshot_lsn=f.lsn("snapshot_lsn"),
            history_version=f.count("history_version"),
            current_version=f.count("current_version"),
            version=schema(f.text("schema_id")),
            incarnation=incarnation if own is None else own,
            snapshot_incarnation=Incarnation(f.count("snapshot_incarnation")),
            history_low=f.optional("history_low", lambda: HistoryLow.from_fields(f.object("history_low"))),
            row_bytes=f.count("row_bytes"),
            history_sum=HistorySum.from_fields(f.object("history_sum")),
            exact_from=f.optional("exact_from", lambda: f.lsn("exact_from")),
        )


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a cycle: every table of the source, each at a Delta version, all at `position` but the held ones.

    In a cut that was read from the store, `tables` and `held` are looked up when somebody asks for them (`cut_documents`).
    """

    number: CycleNumber
    kind: CycleKind
    incarnation: Incarnation
    position: Lsn
    commit_time: str | None
    tables: Mapping[TableName, CutTable]
    next_segment: int
    intent_sha256: str
    created_at: str
    held: Mapping[TableName, Held] = field(default_factory=dict)

    def table(self, table: TableName, source: str) -> CutTable:
        """Return the table at this cut; raises LakeError if the cut does not have it."""
        cut_table = self.tables.get(table)
        if cut_table is None:
            reason = f"cut {self.number} does not have this table"
            raise LakeError(f"{source}: {table}", reason, "bootstrap the table, or ask for a later cut")
        return cut_table


def next_number(cut: Cut | None) -> CycleNumber:
    """Return the number of the cycle after `cut`."""
    return CycleNumber(1 if cut is None else cut.number + 1)
