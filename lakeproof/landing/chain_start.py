"""`start/<number>.json`: where a chain's manifests begin after older ones were removed.

`retention.py` decides which manifests may go; `chain.py` reads a chain.

The document is put before the first manifest below it is removed. It carries what the removed manifests vouched for (the
checksum and the end of the last one), so the rest can still be proved to be a chain without a gap. It also keeps the fence:
a writer that was left behind may put a manifest under a number that is free again, but it then sees that the chain begins
after that number. The document names the one manifest below it that is still read, the one with the newest reading of the
catalog. Nothing else below it is ever read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from lakeproof.storage.fields import Fields, Malformed, canonical, parse_object
from lakeproof.storage.source_lake import SourceLake

FORMAT = "lakeproof.chain_start/1"
_NAME = re.compile(r"[0-9]{20}\.json")


@dataclass(frozen=True, slots=True)
class ChainStart:
    """The first manifest that is kept: its number, its start, and the checksum of its predecessor's stored bytes.

    `catalog` is the number of the manifest below it that is kept for its record of the catalog, None if there is none.
    """

    incarnation: Incarnation
    number: int
    start_lsn: Lsn
    previous_sha256: str
    created_at: str
    catalog: int | None = None

    def to_bytes(self) -> bytes:
        """Return the canonical document."""
        return canonical(
            {
                "format": FORMAT,
                "incarnation": int(self.incarnation),
                "number": self.number,
                "start_lsn": str(self.start_lsn),
                "previous_sha256": self.previous_sha256,
                "created_at": self.created_at,
                "catalog": self.catalog,
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> ChainStart:
        """Parse `to_bytes`; raises LakeError naming `name` and the first thing wrong."""
        try:
            fields = Fields(parse_object(data))
            fields.one_of("format", [FORMAT])
            start = cls(
                Incarnation(fields.count("incarnation")),
                fields.count("number"),
                fields.lsn("start_lsn"),
                fields.text("previous_sha256"),
                fields.text("created_at"),
                fields.optional("catalog", lambda: fields.count("catalog")),
            )
            fields.end()
        except Malformed as error:
            raise LakeError(name, f"it is damaged: {error}", "restore it from a backup") from error
        return start


def first_kept_number(lake: SourceLake, incarnation: Incarnation) -> int:
    """Return the number of the first manifest that is kept, 0 if none was removed. Costs one listing of a small folder."""
    names = (key.rpartition("/")[2] for key in lake.store.list(lake.paths.chain_starts(incarnation)))
    return max((int(name[:-5]) for name in names if _NAME.fullmatch(name)), default=0)


def read_chain_start(lake: SourceLake, incarnation: Incarnation) -> ChainStart | None:
    """Return the newest document, None if no manifest was removed; raises LakeError if it is damaged."""
    number = first_kept_number(lake, incarnation)
    if number == 0:
        return None
    key = lake.paths.chain_start(incarnation, number)
    start = ChainStart.from_bytes(lake.store.get(key), lake.url(key))
    if (start.number, start.incarnation) != (number, incarnation):
        raise LakeError(
            lake.url(key), f"it says that it is {start.number} of incarnation {start.incarnation}", "restore it"
        )
    return start
