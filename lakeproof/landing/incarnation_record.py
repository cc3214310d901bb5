"""`incarnation.json`: the record of an incarnation that is about to begin, written before its slot is created.

`lakeproof.snapshot.incarnation` decides which slot is created and when; `chain.py` writes the head that follows.

The record names the slot, so a crash before the head leaves no slot that nobody remembers. It also closes the incarnation
before it: from then on a drain of that incarnation sees that it has a successor, and leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, IncarnationField, LsnField
from lakeproof.names import Incarnation
from lakeproof.storage.document import Document, Part
from lakeproof.storage.source_lake import SourceLake

_NAME_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Follows(Part):
    """The incarnation before: where its chain ended (None if that could not be read), and why it could not go on.

    `first_ordinal` is that of the head that follows, above every ordinal so far.
    """

    incarnation: IncarnationField
    end_lsn: LsnField | None
    reason: str
    first_ordinal: Count


@dataclass(frozen=True, slots=True)
class IncarnationRecord(Document):
    """The facts with which an incarnation begins. `creates_slot`: the slot did not exist before, so it is ours to drop."""

    FORMAT = "lakeproof.incarnation/1"

    incarnation: IncarnationField
    system_id: str
    database: str
    database_oid: Count
    slot: str
    publication: str
    creates_slot: bool
    follows: Follows | None
    created_at: str


def read_incarnation_record(lake: SourceLake, incarnation: Incarnation) -> IncarnationRecord | None:
    """Return the record of one incarnation, None if it has none; raises LakeError if it is damaged."""
    key = lake.paths.incarnation_record(incarnation)
    record = IncarnationRecord.read(lake.store, key)
    if record is not None and record.incarnation != incarnation:
        raise LakeError(lake.url(key), f"it says that it is of incarnation {record.incarnation}", "restore it")
    return record


def create_incarnation_record(lake: SourceLake, record: IncarnationRecord) -> None:
    """Put the record, which closes the incarnation before; raises AlreadyExistsError if another process has the number."""
    lake.store.put_if_absent(lake.paths.incarnation_record(record.incarnation), record.to_bytes())


def incarnations(lake: SourceLake) -> list[Incarnation]:
    """Return every incarnation that has a folder, oldest first: those that have begun and those that were about to."""
    names = (
        n for n in lake.store.folders(lake.paths.landings) if len(n) == _NAME_DIGITS and n.isascii() and n.isdigit()
    )
    return sorted(Incarnation(int(name)) for name in names)


def has_head(lake: SourceLake, incarnation: Incarnation) -> bool:
    """True if the incarnation has begun."""
    return lake.store.exists(lake.paths.manifest(incarnation, 0))


def unfinished(lake: SourceLake) -> IncarnationRecord | None:
    """Return the newest record if it has no head yet: its writer was killed, or is about to begin."""
    existing = incarnations(lake)
    if not existing or has_head(lake, existing[-1]):
        return None
    return read_incarnation_record(lake, existing[-1])
