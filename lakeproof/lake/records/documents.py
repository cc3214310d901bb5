"""The lake's documents as values: source, intent and cut; the first two to bytes and back, strictly.

A cut's bytes belong to `cut_documents`, a snapshot's to `snapshot_documents`; where they lie to
`lakeproof.storage.paths`, when they are written to `cycle`. FORMAT.md says what fields mean.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakeproof.config.table_names import write_table
from lakeproof.errors import LakeError
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document_fields import Fields, read_document, write_document


@dataclass(frozen=True, slots=True)
class Reshape:
    """A shape that a table is given, and what its older rows read in columns that were added (attribute number → text).

    `called_for` is the consistent point of the snapshot that calls for it, None where the stream does.
    """

    version: SchemaVersion
    missing: Mapping[int, str] = field(default_factory=dict)
    called_for: Lsn | None = None

    def to_json(self) -> dict[str, Any]:
        """The intent's field `reshape`."""
        missing = {str(attnum): text for attnum, text in sorted(self.missing.items())}
        called_for = None if self.called_for is None else str(self.called_for)
        return {"version": self.version.to_json(), "missing": missing, "called_for": called_for}

    @classmethod
    def from_fields(cls, f: Fields) -> Reshape:
        """The inverse; raises LakeError for a damaged field."""
        given = f.object("missing")
        missing = {int(name): given.text(name) for name in given.doc if name.isdecimal()}
        if len(missing) < len(given.doc):
            raise f.damaged("missing", "has a name that is no attribute number")
        # Intents of before had no such field.
        called_for = f.optional("called_for", lambda: f.lsn("called_for")) if "called_for" in f.doc else None
        return cls(f.schema_version("version"), missing, called_for)


INTENT_FORMAT = "lakeproof.intent/1"
KINDS = ("apply", "repair", "maintenance", "schema")
# `Held.named` fills SOURCE and TABLE in; by this text in a cut `pipeline.recopy` knows what a snapshot brings back.
RESNAPSHOT = "run `lakeproof bootstrap SOURCE --tables TABLE`, then compact"


@dataclass(frozen=True, slots=True)
class Held:
    """Why a table stands still, where, and what a person does about it.

    `history_lost`: its history could not be read. That stays so, whatever else holds the table later, until a copy enters.
    """

    at_lsn: Lsn
    reason: str
    remedy: str
    history_lost: bool = False

    def __str__(self) -> str:
        return f"held since {self.at_lsn}: {self.reason}; {self.remedy}"

    def named(self, source: str, table: TableName) -> Held:
        """The same with its remedy's SOURCE and TABLE filled in, to be typed as it stands."""
        typed = f"{source} --tables {shlex.quote(write_table(table))}"
        remedy = self.remedy.replace("SOURCE --tables TABLE", typed)
        return replace(self, remedy=remedy.replace("bootstrap SOURCE ", f"bootstrap {source} "))

    def after(self, before: Held | None) -> Held:
        """The same of a table that was held like `before`, if it was."""
        if self.history_lost or before is None or not before.history_lost:
            return self
        return replace(self, reason=f"{self.reason}; its history can't be read either", history_lost=True)

    def to_json(self) -> dict[str, Any]:
        at_lsn = str(self.at_lsn)
        return {"at_lsn": at_lsn, "reason": self.reason, "remedy": self.remedy, "history_lost": self.history_lost}

    @classmethod
    def from_fields(cls, f: Fields) -> Held:
        return cls(f.lsn("at_lsn"), f.text("reason"), f.text("remedy"), f.flag("history_lost"))


@dataclass(frozen=True, slots=True)
class SegmentBase:
    """A segment that a cycle reads, and the `_lp_ord` of its row 0."""

    number: int
    base: int


@dataclass(frozen=True, slots=True)
class TableIntent:
    """What a cycle does to a table: its changes begin after `from_lsn`; `snapshot` is the key of the one that enters.

    `reshape`, in a cycle of kind `schema`, is the shape that it is given; `history_through`, in one of maintenance, the cut
    up to which history becomes the rows as they were then. `born` is the shape of a table that enters without a snapshot:
    it had no row up to `from_lsn`.
    """

    from_lsn: Lsn
    schema_id: str
    snapshot: str | None = None
    reshape: Reshape | None = None
    history_through: CycleNumber | None = None
    born: SchemaVersion | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "from_lsn": str(self.from_lsn),
            "schema_id": self.schema_id,
            "snapshot": self.snapshot,
            "reshape": None if self.reshape is None else self.reshape.to_json(),
            "history_through": self.history_through,
            "born": None if self.born is None else self.born.to_json(),
        }

    @classmethod
    def from_fields(cls, f: Fields) -> TableIntent:
        return cls(
            f.lsn("from_lsn"),
            f.text("schema_id"),
            f.optional("snapshot", lambda: f.text("snapshot")),
            f.optional("reshape", lambda: Reshape.from_fields(f.object("reshape"))),
            f.optional("history_through", lambda: CycleNumber(f.count("history_through"))),
            f.optional("born", lambda: f.schema_version("born")),
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
    whole where `history_low` is None; `history_sum` is what its rows come to. No row has had more octets than
    `row_bytes`, about. `exact_from`: the changes before this position, since the cut before it, are not in history: a copy
    brought what they came to.
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
        """The entry in a cut at `position` of `incarnation`: where the table stands there too, null says so.

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
        cls, f: Fields, position: Lsn, incarnation: Incarnation, shape: Callable[[str], SchemaVersion]
    ) -> CutTable:
        """The inverse; `shape` gives the shape of an id."""
        at_lsn = f.optional("at_lsn", lambda: f.lsn("at_lsn"))
        own = f.optional("incarnation", lambda: Incarnation(f.count("incarnation")))
        return cls(
            at_lsn=position if at_lsn is None else at_lsn,
            snapshot_lsn=f.lsn("snapshot_lsn"),
            history_version=f.count("history_version"),
            current_version=f.count("current_version"),
            version=shape(f.text("schema_id")),
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

    Of a cut that was read, `tables` and `held` are looked up when they are asked for (`cut_documents`).
    """

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

    def table(self, table: TableName, source: str) -> CutTable:
        """Where `table` stands; raises LakeError where this cut does not have it."""
        found = self.tables.get(table)
        if found is None:
            reason = f"cut {self.number} does not have this table"
            raise LakeError(f"{source}: {table}", reason, "bootstrap the table, or ask for a later cut")
        return found
