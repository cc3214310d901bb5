"""`timelines/<n>.json`: the later timelines of its server that a landing has followed, and where they begin.

`lakeproof.continuity.timeline` decides whether one may be followed. A document is put before anything of its timeline is
landed, and records the server's history: two standbys that were promoted separately have timelines with the same number and
different histories.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.errors import LakeError
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.fields import Fields, Malformed, canonical, now_text, parse_object
from lakeproof.storage.store import AlreadyExistsError

FORMAT = "lakeproof.timeline/1"


@dataclass(frozen=True, slots=True)
class Switch:
    """The server left `timeline` at `at_lsn`."""

    timeline: int
    at_lsn: Lsn


@dataclass(frozen=True, slots=True)
class Followed:
    """A timeline that the landing followed, with all switches on the way to it, oldest first."""

    timeline: int
    switches: tuple[Switch, ...]

    def left(self, timeline: int) -> Lsn | None:
        """Return the position at which this history left `timeline`, None if it never was on it."""
        return next((s.at_lsn for s in self.switches if s.timeline == timeline), None)


def newest_followed(chain: Chain) -> Followed | None:
    """Return the latest timeline that the landing has followed, None if it is still on its head's."""
    keys = chain.lake.store.list(chain.lake.paths.timelines(chain.incarnation))
    if not keys:
        return None
    name = chain.lake.url(keys[-1])
    try:
        fields = Fields(parse_object(chain.lake.store.get(keys[-1])))
        fields.one_of("format", [FORMAT])
        switches = tuple(Switch(s.count("timeline"), s.lsn("at_lsn")) for s in fields.objects("switches"))
        return Followed(fields.count("timeline"), switches)
    except Malformed as error:
        raise LakeError(name, f"it is damaged: {error}", "restore it from a backup") from error


def follow(chain: Chain, followed: Followed) -> None:
    """Put the document durably; raises LakeError if an existing one differs."""
    document = {
        "format": FORMAT,
        "timeline": followed.timeline,
        "switches": [{"timeline": s.timeline, "at_lsn": str(s.at_lsn)} for s in followed.switches],
        "landing_end": str(chain.end),
        "created_at": now_text(),
    }
    key = f"{chain.lake.paths.timelines(chain.incarnation)}/{followed.timeline:08d}.json"
    try:
        chain.lake.store.put_if_absent(key, canonical(document))
    except AlreadyExistsError:
        existing = newest_followed(chain)
        if existing != followed:
            raise LakeError(
                chain.lake.url(key), "it has another history of the server", "see which server is right"
            ) from None
