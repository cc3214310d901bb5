"""`timelines/<n>.json`: the later timelines of its server that a landing has followed, and where they begin.

`lakeproof.continuity.timeline` decides whether one may be followed. A document is put before anything of its timeline is
landed, and records the server's history: two standbys that were promoted separately have timelines with the same number and
different histories.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, LsnField
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.document import Document, Part
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Switch(Part):
    """The server left `timeline` at `at_lsn`."""

    timeline: Count
    at_lsn: LsnField


@dataclass(frozen=True, slots=True)
class Followed:
    """A timeline that the landing followed, with all switches on the way to it, oldest first."""

    timeline: int
    switches: tuple[Switch, ...]

    def left(self, timeline: int) -> Lsn | None:
        """Return the position at which this history left `timeline`, None if it never was on it."""
        return next((s.at_lsn for s in self.switches if s.timeline == timeline), None)


@dataclass(frozen=True, slots=True)
class TimelineDoc(Document):
    """The document: a followed timeline, and where the landing ended when it was followed."""

    FORMAT = "lakeproof.timeline/1"

    timeline: Count
    switches: tuple[Switch, ...]
    landing_end: LsnField
    created_at: str


def newest_followed(chain: Chain) -> Followed | None:
    """Return the latest timeline that the landing has followed, None if it is still on its head's."""
    keys = chain.lake.store.list(chain.lake.paths.timelines(chain.incarnation))
    if not keys:
        return None
    document = TimelineDoc.from_bytes(chain.lake.store.get(keys[-1]), chain.lake.url(keys[-1]))
    return Followed(document.timeline, document.switches)


def record_followed(chain: Chain, followed: Followed) -> None:
    """Put the document durably; raises LakeError if an existing one differs."""
    document = TimelineDoc(followed.timeline, followed.switches, chain.end, now_text())
    key = f"{chain.lake.paths.timelines(chain.incarnation)}/{followed.timeline:08d}.json"
    try:
        chain.lake.store.put_if_absent(key, document.to_bytes())
    except AlreadyExistsError:
        existing = newest_followed(chain)
        if existing != followed:
            raise LakeError(
                chain.lake.url(key), "it has another history of the server", "see which server is right"
            ) from None
