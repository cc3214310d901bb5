"""Intents and cuts as values; an intent is also a document, with each kind of work that a cycle does on a table.

A cut's bytes are in `cuts.documents`, the folders in `lakeproof.storage.paths`; doing the work and the moment of writing are
in `lakeproof.lake.cycle`. FORMAT.md says what the fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from lakeproof.errors import LakeError
from lakeproof.field_types import (
    AsText,
    Count,
    CycleField,
    IncarnationField,
    LsnField,
    NumberKey,
    Ordinal,
    SchemaField,
    TableField,
)
from lakeproof.lake.records.held import Held
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document import Document, Part


@dataclass(frozen=True, slots=True)
class Changes(Part):
    """The table's changes in the cycle's range."""

    kind: Literal["changes"] = "changes"


@dataclass(frozen=True, slots=True)
class Copy(Part):
    """A snapshot that enters, with the changes since; `folder` is its key in the store.

    `was_held`: it ends a hold, so changes before it may never have landed.
    """

    folder: str
    was_held: bool = False
    kind: Literal["copy"] = "copy"


@dataclass(frozen=True, slots=True)
class Created(Part):
    """The schema of a table that enters without a snapshot: it had no row where its changes begin. `was_held` as above."""

    version: SchemaField
    was_held: bool = False
    kind: Literal["created"] = "created"


@dataclass(frozen=True, slots=True)
class Keys(Part):
    """Some keys (`lakeproof.snapshot.copy.keyed_copy`): their rows become those of the source at the cycle's end."""

    folder: str
    kind: Literal["keys"] = "keys"


@dataclass(frozen=True, slots=True)
class SchemaChange(Part):
    """A schema that a table gets, and what its older rows read in columns that were added (attribute number → text).

    `called_for` is the consistent point of the snapshot that calls for it, None if the stream does.
    """

    version: SchemaField
    default_for_old_rows: Mapping[NumberKey, str] = field(default_factory=dict)
    called_for: LsnField | None = None
    kind: Literal["schema"] = "schema"


@dataclass(frozen=True, slots=True)
class Rebuild(Part):
    """Current is written anew from history."""

    kind: Literal["rebuild"] = "rebuild"


@dataclass(frozen=True, slots=True)
class Optimize(Part):
    """Small files are put together; `smallest_only`: no more of them than are too many."""

    smallest_only: bool = False
    kind: Literal["optimize"] = "optimize"


@dataclass(frozen=True, slots=True)
class Trim(Part):
    """History's rows below an ordinal become those that the table had then."""

    below: Ordinal
    kind: Literal["trim"] = "trim"


@dataclass(frozen=True, slots=True)
class Restore(Part):
    """What was archived of history comes back."""

    kind: Literal["restore"] = "restore"


Work: TypeAlias = Annotated[
    Changes | Copy | Created | Keys | SchemaChange | Rebuild | Optimize | Trim | Restore, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True)
class CutOrdinals(Part):
    """The ordinals of a cut: all rows below `whole` are in it, and those below `end` up to its position."""

    whole: Count
    end: Count

    def has(self, ordinal: int, lsn: Lsn, position: Lsn) -> bool:
        """True if a row of history is in the cut at `position`."""
        return ordinal < self.whole or (ordinal < self.end and lsn <= position)

    def with_own_rows(self, first: int, rows: int) -> CutOrdinals:
        """Return the ordinals of a cut whose cycle has so many rows of its own, from ordinal `first` on."""
        return self if rows == 0 else CutOrdinals(first + rows, first + rows)


NO_ROWS = CutOrdinals(0, 0)


_BITS = 60
_DIGITS = re.compile(r"[0-9a-f]{15}")


def _total(digits: str) -> int:
    if not _DIGITS.fullmatch(digits):
        raise ValueError("not a total")
    return int(digits, 16)


_Total = Annotated[int, AsText(_total, lambda total: f"{total:015x}", "is not 15 hexadecimal digits")]


@dataclass(frozen=True, slots=True)
class HistorySum(Part):
    """Rows, and the sum of their hashes modulo 2**60. After damage `rows` may be negative."""

    rows: int = 0
    total: _Total = 0

    def plus(self, other: HistorySum) -> HistorySum:
        """Return the sum with the rows of another sum."""
        return HistorySum(self.rows + other.rows, (self.total + other.total) % (1 << _BITS))

    def minus(self, other: HistorySum) -> HistorySum:
        """Return the sum without the rows of another sum."""
        return HistorySum(self.rows - other.rows, (self.total - other.total) % (1 << _BITS))


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


@dataclass(frozen=True, slots=True)
class SegmentOrdinal(Part):
    """A segment that a cycle reads, and the `_lp_ord` of its row 0."""

    number: Count
    first_ordinal: Count


@dataclass(frozen=True, slots=True)
class TableIntent(Part):
    """One table in an intent: what is done, with changes that begin after `from_lsn`."""

    from_lsn: LsnField
    schema_id: str
    work: Work


@dataclass(frozen=True, slots=True)
class Intent(Document):
    """The values that a cycle is run with, no matter who finishes it.

    `own_ordinal` is the first of the cycle's own rows; without such rows `ordinals` are its cut's.
    """

    FORMAT = "lakeproof.intent/1"

    number: CycleField
    kind: CycleKind
    incarnation: IncarnationField
    start_lsn: LsnField
    end_lsn: LsnField
    segments: tuple[SegmentOrdinal, ...]
    own_ordinal: Count
    ordinals: CutOrdinals
    tables: Mapping[TableField, TableIntent]
    held: Mapping[TableField, Held]
    epoch: Count
    writer: str
    created_at: str

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> Intent:
        if self.end_lsn < self.start_lsn:
            raise ValueError("end_lsn lies before start_lsn")
        return self


@dataclass(frozen=True, slots=True)
class HistoryLow(Part):
    """The beginning of a table's history whose older changes were removed: below `ordinal` are the rows of `at_lsn`.

    `archived`: the archive has everything that was ever removed, so history can be made whole again.
    """

    ordinal: Ordinal
    at_lsn: LsnField
    archived: bool


@dataclass(frozen=True, slots=True)
class WrittenBy(Part):
    """Who wrote a table: this process (`arrow`) or `spark`, and why."""

    engine: str
    reason: str


def fields_of(value: Any, kind: type[Any]) -> dict[str, Any]:
    """Return those fields of a value that another kind of value has, too."""
    return {f.name: getattr(value, f.name) for f in fields(kind) if hasattr(value, f.name)}


NOBODY = WrittenBy("arrow", "no change came yet")


@dataclass(frozen=True, slots=True)
class CutEntry(Part):
    """A table in a cut's document: a `CutTable` whose schema is a document of its own.

    If the table stands at the cut's own position, `at_lsn`, `incarnation` and `ordinals` are null: so the entry of a table
    without changes is the same in every cut.
    """

    at_lsn: LsnField | None
    ordinals: CutOrdinals | None
    snapshot_lsn: LsnField
    history_version: Count
    current_version: Count
    schema_id: str
    incarnation: IncarnationField | None
    snapshot_incarnation: IncarnationField
    history_low: HistoryLow | None
    row_bytes: Count
    history_sum: HistorySum
    exact_from: LsnField | None
    written_by: WrittenBy


@dataclass(frozen=True, slots=True)
class CutTable:
    """A table at a cut: its position, its two Delta versions there, and its schema (with the source's names).

    `at_lsn` is a position of `incarnation`, both and `ordinals` the cut's own unless the table is held; `snapshot_lsn`, one
    of `snapshot_incarnation`, is the consistent point of the newest snapshot that entered, or was tried. History is whole
    if `history_low` is None; `history_sum` is the checksum of its rows. No row has had more octets than `row_bytes`, about.
    History has every change after `exact_from`, each as it was committed (None: all that ever landed): of changes before
    it, a copy brought the result. `written_by` is about the last cycle that brought changes, a copy or a schema.
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
    ordinals: CutOrdinals = NO_ROWS
    written_by: WrittenBy = NOBODY

    def version_of(self, layer: Layer) -> int:
        """Return the version of one of its Delta tables."""
        return self.history_version if layer == "history" else self.current_version

    def entry(self, position: Lsn, incarnation: Incarnation) -> CutEntry:
        """Return the entry in a cut at `position` of `incarnation`."""
        is_there = (self.at_lsn, self.incarnation) == (position, incarnation)
        stands = dict.fromkeys(("at_lsn", "ordinals", "incarnation")) if is_there else {}
        return CutEntry(**{**fields_of(self, CutEntry), **stands}, schema_id=self.version.id)

    @classmethod
    def of(
        cls, entry: CutEntry, position: Lsn, incarnation: Incarnation, version: SchemaVersion, *, ordinals: CutOrdinals
    ) -> CutTable:
        """Do the inverse of `entry` for a cut with `ordinals`; `version` is the schema that the entry names."""
        own = {"at_lsn": position, "ordinals": ordinals, "incarnation": incarnation}
        stands = {name: value for name, value in own.items() if getattr(entry, name) is None}
        return cls(**{**fields_of(entry, cls), **stands}, version=version)


@dataclass(frozen=True, slots=True)
class Cut:
    """The end of a cycle: every table of the source, each at a Delta version, all at `position` but the held ones.

    In a cut that was read from the store, `tables` and `held` are looked up when somebody asks for them (`cuts.documents`).
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
    ordinals: CutOrdinals = NO_ROWS

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
