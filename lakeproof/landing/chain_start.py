"""`start/<number>.json`: where a chain's manifests begin after older ones were removed.

`retention.py` decides which manifests may go; `chain.py` reads a chain.

The document is put before the first manifest below it is removed. It carries what the removed manifests vouched for (the
checksum and the end of the last one), so the rest can still be proved to be a chain without a gap. It also keeps the fence:
a writer that was left behind may put a manifest under a number that is free again, but it then sees that the chain begins
after that number. The document names the one manifest below it that is still read, for its reading of the catalog. Nothing
else below it is ever read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, IncarnationField, LsnField, TableField
from lakeproof.names import Incarnation
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake

# The name of a manifest, and of a chain's start.
NUMBERED = re.compile(r"[0-9]{20}\.json")


@dataclass(frozen=True, slots=True)
class ChainStart(Document):
    """The first manifest that is kept: its number, its start and first ordinal, its predecessor's checksum as stored.

    `catalog` is the number of the manifest below it that is kept for its record of the catalog, None if there is none.
    `unread`: tables whose changes were removed although no history had taken them in, since the lake had no copy of the
    table, or held it, each with a position after which none was removed; `unread_others` is the greatest of those of tables
    that are not named.
    """

    FORMAT = "lakeproof.chain_start/1"

    incarnation: IncarnationField
    number: Count
    start_lsn: LsnField
    previous_sha256: str
    first_ordinal: Count
    created_at: str
    catalog: Count | None = None
    unread: Mapping[TableField, LsnField] = field(default_factory=dict)
    unread_others: LsnField | None = None


def first_kept_number(lake: SourceLake, incarnation: Incarnation) -> int:
    """Return the number of the first manifest that is kept, 0 if none was removed. Costs one listing of a small folder."""
    names = (key.rpartition("/")[2] for key in lake.store.list(lake.paths.chain_starts(incarnation)))
    return max((int(name[:-5]) for name in names if NUMBERED.fullmatch(name)), default=0)


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
