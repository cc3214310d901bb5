"""`base/<number>.json`: where a chain's links begin, once older ones have been removed.

Which links may go belongs to `retention.py`, reading a chain to `chain.py`.

A base is put before the first link below it is removed. It carries what those links vouched for, the checksum and the end of
the one before it, so that what is kept is still provably a chain without a gap; and it keeps the fence: a writer that was
left behind may well put a link whose number is free again, but not without seeing that the chain begins after it. It names
the one link below it that is still read, that with the newest reading of the catalog: nothing else there is ever looked at.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import Fields, Malformed, canonical, parse_object
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store

FORMAT = "lakeproof.base/2"
# Without `catalog`: the newest link with a record that lies below such a base is the one.
_FORMAT_1 = "lakeproof.base/1"
_NAME = re.compile(r"[0-9]{20}\.json")


@dataclass(frozen=True, slots=True)
class Base:
    """The first link that is kept: its number, where it starts, and the checksum of the link before it as it was stored.

    `catalog` is the number of the link below it that is kept for its record of the catalog, None where none is;
    `names_catalog` is False of a document of format 1, which did not say.
    """

    incarnation: Incarnation
    number: int
    start_lsn: Lsn
    previous_sha256: str
    created_at: str
    catalog: int | None = None
    names_catalog: bool = True

    def to_bytes(self) -> bytes:
        """The canonical document, of the format it was read in."""
        told: dict[str, Any] = {
            "format": FORMAT if self.names_catalog else _FORMAT_1,
            "incarnation": int(self.incarnation),
            "number": self.number,
            "start_lsn": str(self.start_lsn),
            "previous_sha256": self.previous_sha256,
            "created_at": self.created_at,
        }
        return canonical(told | {"catalog": self.catalog} if self.names_catalog else told)

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Base:
        """The inverse; raises LakeError naming `name` and the first thing wrong."""
        try:
            fields = Fields(parse_object(data))
            names = fields.one_of("format", [FORMAT, _FORMAT_1]) == FORMAT
            found = cls(
                Incarnation(fields.count("incarnation")),
                fields.count("number"),
                fields.lsn("start_lsn"),
                fields.text("previous_sha256"),
                fields.text("created_at"),
                fields.optional("catalog", lambda: fields.count("catalog")) if names else None,
                names,
            )
            fields.end()
        except Malformed as error:
            raise LakeError(name, f"it is damaged: {error}", "restore it from a backup") from error
        return found


def newest_base_number(store: Store, paths: LakePaths, incarnation: Incarnation) -> int:
    """The number of the first link that is kept, 0 where none was removed. Costs one listing of a small folder."""
    names = (key.rpartition("/")[2] for key in store.list(paths.bases(incarnation)))
    return max((int(name[:-5]) for name in names if _NAME.fullmatch(name)), default=0)


def read_base(store: Store, paths: LakePaths, incarnation: Incarnation) -> Base | None:
    """The newest base, None where no link was removed; raises LakeError where it is damaged."""
    number = newest_base_number(store, paths, incarnation)
    if number == 0:
        return None
    key = paths.base(incarnation, number)
    found = Base.from_bytes(store.get(key), paths.url(key))
    if (found.number, found.incarnation) != (number, incarnation):
        raise LakeError(
            paths.url(key), f"it says that it is {found.number} of incarnation {found.incarnation}", "restore it"
        )
    return found
