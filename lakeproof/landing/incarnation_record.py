"""`incarnation.json`: the record of an incarnation that is about to begin, written before its slot is created.

`lakeproof.snapshot.incarnation` decides which slot is created and when; `chain.py` writes the head that follows.

The record names the slot, so a crash before the head leaves no slot that nobody remembers. It also closes the incarnation
before it: from then on a drain of that incarnation sees that it has a successor, and leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import Fields, Malformed, canonical, parse_object
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError

FORMAT = "lakeproof.incarnation/1"
_NAME_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Follows:
    """The incarnation before: where its chain ended (None if that could not be read), and why it could not go on."""

    incarnation: Incarnation
    end_lsn: Lsn | None
    reason: str

    def to_json(self) -> dict[str, Any]:
        return {
            "incarnation": int(self.incarnation),
            "end_lsn": None if self.end_lsn is None else str(self.end_lsn),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class IncarnationRecord:
    """The facts with which an incarnation begins. `makes_slot`: the slot did not exist before, so it is ours to drop."""

    incarnation: Incarnation
    system_id: str
    database: str
    database_oid: int
    slot: str
    publication: str
    makes_slot: bool
    follows: Follows | None
    created_at: str

    def to_bytes(self) -> bytes:
        """Return the canonical document."""
        return canonical(
            {
                "format": FORMAT,
                "incarnation": int(self.incarnation),
                "system_id": self.system_id,
                "database": self.database,
                "database_oid": self.database_oid,
                "slot": self.slot,
                "publication": self.publication,
                "makes_slot": self.makes_slot,
                "follows": None if self.follows is None else self.follows.to_json(),
                "created_at": self.created_at,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> IncarnationRecord:
        """Parse `to_bytes`; raises LakeError naming `name` and the first thing wrong."""
        try:
            return _parse(Fields(parse_object(data)))
        except Malformed as error:
            raise LakeError(name, f"it is damaged: {error}", "restore it from a backup") from error


def read_incarnation_record(lake: SourceLake, incarnation: Incarnation) -> IncarnationRecord | None:
    """Return the record of one incarnation, None if it has none; raises LakeError if it is damaged."""
    key = lake.paths.incarnation_record(incarnation)
    try:
        data = lake.store.get(key)
    except NotFoundError:
        return None
    record = IncarnationRecord.from_bytes(data, lake.url(key))
    if record.incarnation != incarnation:
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


def _parse(fields: Fields) -> IncarnationRecord:
    fields.one_of("format", [FORMAT])
    record = IncarnationRecord(
        incarnation=Incarnation(fields.count("incarnation")),
        system_id=fields.text("system_id"),
        database=fields.text("database"),
        database_oid=fields.count("database_oid"),
        slot=fields.text("slot"),
        publication=fields.text("publication"),
        makes_slot=fields.flag("makes_slot"),
        follows=fields.optional("follows", lambda: _follows(fields.object("follows"))),
        created_at=fields.text("created_at"),
    )
    fields.end()
    return record


def _follows(fields: Fields) -> Follows:
    end_lsn = fields.optional("end_lsn", lambda: fields.lsn("end_lsn"))
    follows = Follows(Incarnation(fields.count("incarnation")), end_lsn, fields.text("reason"))
    fields.end()
    return follows
