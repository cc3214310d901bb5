"""`stuck/<LSN>.json`: no drain can go on from this position of the landing.

Either the server can't send the slot's stream any further, as `lakeproof.drain.stuck` decides, or its stream has shown that
its history is another one (`lakeproof.continuity.same_history`). The sentences are here, since the drain, `status`, `check`,
`bootstrap` and `recover` have the same. A document counts while the landing ends at its position: once a drain has gone on
from there, the stream is stuck no more, and nobody has to remove anything.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from lakeproof.errors import ABANDON, RECOVER, DefiniteError, GapError, StuckError
from lakeproof.field_types import LsnField
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.document import Document
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class Stuck(Document):
    """The document: the slot, where the landing ends, and the server's own words, or ours if its history is another one."""

    FORMAT = "lakeproof.stuck/1"

    slot: str
    at_lsn: LsnField
    reason: str
    created_at: str
    other_history: bool

    @property
    def words(self) -> str:
        """Return the state in words."""
        if self.other_history:
            return self.reason
        return f"the server can't send its stream beyond {self.at_lsn}, since {self.created_at}: {self.reason}"

    def error(self, source: str) -> DefiniteError:
        """Return the error that names the state and its one remedy."""
        if self.other_history:
            return GapError(f"source {source}", self.words, RECOVER)
        return StuckError(f"slot {self.slot}", self.words, ABANDON.format(source=source))


def read_stuck(chain: Chain) -> Stuck | None:
    """Return the document that counts, None if the stream is not stuck as far as the lake knows."""
    return Stuck.read(chain.lake.store, chain.lake.paths.stuck(chain.incarnation, chain.end))


def note_stuck(chain: Chain, slot: str, reason: str, *, other_history: bool = False) -> Stuck:
    """Put the document, or return the one that is there; one of the other kind is replaced by what has been seen since."""
    key, store = chain.lake.paths.stuck(chain.incarnation, chain.end), chain.lake.store
    now = Stuck(slot, chain.end, reason, now_text(), other_history)
    with suppress(AlreadyExistsError):
        store.put_if_absent(key, now.to_bytes())
    there = Stuck.from_bytes(store.get(key), chain.lake.url(key))
    if there.other_history == other_history:
        return there
    store.put(key, now.to_bytes())
    return now


def is_abandoned(slot_confirmed: Lsn | None, landing_end: Lsn | None) -> bool:
    """True if a slot is one that a recovery was dropping when it was killed, and not the one that it makes.

    A stuck slot stands at or before the end of its landing; a new one begins behind what could not be read.
    """
    return landing_end is not None and slot_confirmed is not None and slot_confirmed <= landing_end
