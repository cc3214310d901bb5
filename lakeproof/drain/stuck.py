"""Decides when a stream is stuck: the server's own error ends it at the same position again and again.

The record is in `lakeproof.landing.stuck`. One failure says little: a server may mend itself between two connections. But
what decoding meets in the log at one place is the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeproof.landing.chain import Chain
from lakeproof.landing.stuck import note_stuck, read_stuck
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_stream import StreamFailedError

# A drain tries this often from one position, over some 3 s, before it calls the stream stuck; once is enough if it was found
# stuck before.
TRIES = 5


@dataclass(slots=True)
class StuckWatch:
    """Counts how often the stream of one drain has failed from the same position."""

    chain: Chain
    slot: str
    position: Lsn | None = None
    failures: int = 0

    def failed(self, error: StreamFailedError) -> None:
        """Take a failure of the stream; raises StuckError, after the lake has a record of it, if it is one of many."""
        self.chain.refresh()
        if self.position != self.chain.end:
            self.position, self.failures = self.chain.end, 0
        self.failures += 1
        before = read_stuck(self.chain)
        # If that was another history, the drain has compared since, and the server has ours again.
        if self.failures >= TRIES or (before is not None and not before.other_history):
            stuck = note_stuck(self.chain, self.slot, error.reason)
            raise stuck.error(self.chain.lake.source) from error
