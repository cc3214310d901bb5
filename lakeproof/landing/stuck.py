"""`stuck/<LSN>.json`: the server can't send the slot's stream beyond this position of the landing.

`lakeproof.drain.stuck` decides when a stream is stuck; the sentences about it are here, since the drain, `status`, `check`
and `recover` have the same. A document counts while the landing ends at its position: once a drain has gone on from there,
the stream is stuck no more, and nobody has to remove anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lakeproof.errors import ABANDON, StuckError
from lakeproof.field_types import LsnField
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.document import Document
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Stuck(Document):
    """The document: the slot, where the landing ends, and the server's own words."""

    FORMAT = "lakeproof.stuck/1"

    slot: str
    at_lsn: LsnField
    reason: str
    created_at: str

    @property
    def words(self) -> str:
        """Return the state in words."""
        return f"the server can't send its stream beyond {self.at_lsn}, since {self.created_at}: {self.reason}"

    def error(self, source: str) -> StuckError:
        """Return the error that names the state and its one remedy."""
        return StuckError(f"slot {self.slot}", self.words, abandon_remedy(source))


def abandon_remedy(source: str) -> str:
    """Return the remedy for a stuck stream."""
    return ABANDON.format(source=source)


def read_stuck(chain: Chain) -> Stuck | None:
    """Return the document that counts, None if the stream is not stuck as far as the lake knows."""
    return Stuck.read(chain.lake.store, chain.lake.paths.stuck(chain.incarnation, chain.end))


def note_stuck(chain: Chain, slot: str, reason: str) -> Stuck:
    """Put the document, or return the one that is there."""
    key = chain.lake.paths.stuck(chain.incarnation, chain.end)
    with suppress(AlreadyExistsError):
        chain.lake.store.put_if_absent(key, Stuck(slot, chain.end, reason, now_text()).to_bytes())
    return Stuck.from_bytes(chain.lake.store.get(key), chain.lake.url(key))


def is_abandoned(slot_confirmed: Lsn | None, landing_end: Lsn | None) -> bool:
    """True if a slot is one that a recovery was dropping when it was killed, and not the one that it makes.

    A stuck slot stands at or before the end of its landing; a new one begins behind what could not be read.
    """
    return landing_end is not None and slot_confirmed is not None and slot_confirmed <= landing_end
