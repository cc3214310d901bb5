"""`begin.json`: the record of an incarnation that is going to begin, written before its slot is made.

Which slot is made, and when an incarnation is wanted, belongs to `lakeproof.pipeline`; the head, which follows, to `chain`.

It names the slot, so that a crash before the head leaves no slot that nobody remembers; and it closes the incarnation
before it: from here on a drain of that one finds that it has been followed, and leaves. The head of a landing made before
there were records stands without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import Fields, Malformed, canonical, parse_object
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import NotFoundError, Store

FORMAT = "lakeproof.begin/1"
_NAME_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Follows:
    """The incarnation before: where its chain ended (None where that could not be read), and why it could not go on."""

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
class Beginning:
    """What an incarnation begins with. `makes_slot`: nobody had made the slot, so that it is ours to drop."""

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
        """The canonical document."""
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
    def from_bytes(cls, data: bytes, name: str) -> Beginning:
        """The inverse; raises LakeError naming `name` and the first thing wrong."""
        try:
            return _parse(Fields(parse_object(data)))
        except Malformed as error:
            raise LakeError(name, f"it is damaged: {error}", "restore it from a backup") from error


def read_beginning(store: Store, paths: LakePaths, incarnation: Incarnation) -> Beginning | None:
    """The record of one incarnation, None where it has none; raises LakeError where it is damaged."""
    key = paths.beginning(incarnation)
    try:
        data = store.get(key)
    except NotFoundError:
        return None
    found = Beginning.from_bytes(data, paths.url(key))
    if found.incarnation != incarnation:
        raise LakeError(paths.url(key), f"it says that it is of incarnation {found.incarnation}", "restore it")
    return found


def incarnations(store: Store, paths: LakePaths) -> list[Incarnation]:
    """Every incarnation that has a folder, oldest first: those that have begun, and those that were going to."""
    names = (n for n in store.folders(paths.landings) if len(n) == _NAME_DIGITS and n.isascii() and n.isdigit())
    return sorted(Incarnation(int(name)) for name in names)


def has_head(store: Store, paths: LakePaths, incarnation: Incarnation) -> bool:
    """Whether it has begun."""
    return store.exists(paths.manifest(incarnation, 0))


def unfinished(store: Store, paths: LakePaths) -> Beginning | None:
    """The newest record, where it stands without a head: whoever wrote it was killed, or is about to begin."""
    known = incarnations(store, paths)
    if not known or has_head(store, paths, known[-1]):
        return None
    return read_beginning(store, paths, known[-1])


def _parse(fields: Fields) -> Beginning:
    fields.one_of("format", [FORMAT])
    found = Beginning(
        incarnation=Incarnation(fields.count("incarnation")),
        system_id=fields.text("system_id"),
        database=fields.text("database"),
        database_oid=fields.count("database_oid"),
        slot=fields.text("slot"),
        publication=fields.text("publication"),
        makes_slot=_flag(fields, "makes_slot"),
        follows=fields.optional("follows", lambda: _follows(fields.object("follows"))),
        created_at=fields.text("created_at"),
    )
    fields.end()
    return found


def _follows(fields: Fields) -> Follows:
    end_lsn = fields.optional("end_lsn", lambda: fields.lsn("end_lsn"))
    found = Follows(Incarnation(fields.count("incarnation")), end_lsn, fields.text("reason"))
    fields.end()
    return found


def _flag(fields: Fields, name: str) -> bool:
    value = fields.value(name)
    if not isinstance(value, bool):
        raise fields.damaged(name, "is not true or false")
    return value
