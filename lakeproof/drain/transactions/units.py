"""What is handed to the decoder: small whole transactions together, or one large transaction to be read in parts.

How messages become units belongs to `buffer.py` and `streams.py`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.drain.transactions.spool import Spool
from lakeproof.errors import SourceError
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import Wire
from lakeproof.pgoutput.messages import Commit, StreamCommit
from lakeproof.pgoutput.relations import Arrival

# Decoding by column pays from some 10 000 messages on; 8 MB are some 40 000 of 200 bytes, and small beside spill_bytes.
UNIT_BYTES = 8 << 20
# Arrow and Parquet carry positions as signed 64-bit numbers.
POSITION_END = 1 << 63
# In a chunk of a streamed transaction each message has an xid behind its tag, but the origin.
_WITH_XID = b"RYIUDTM"


@dataclass(frozen=True, slots=True)
class Unit:
    """The messages of the range (`start_lsn`, `end_lsn`]: whole small transactions, and messages that belong to none.

    `start_lsn` is where the unit before it ended: whoever takes units in can tell that none is missing. Without messages it
    says that the server had nothing to send there. `others` is how many messages are neither a begin nor a commit: an upper
    limit of the changes. Whoever has decoded them clears the list, to free their memory.
    """

    wires: list[Wire]
    size: int
    start_lsn: Lsn
    end_lsn: Lsn
    others: int


@dataclass(frozen=True, slots=True)
class Part:
    """Some messages of a large transaction, in order; `arrival` is set for a streamed one: see `pgoutput.relations`."""

    wire: Wire
    arrival: Arrival | None


@dataclass(slots=True)
class Arrivals:
    """When the chunks of a streamed transaction that have Relation messages arrived, by their first block's ordinal."""

    blocks: array[int]
    lsns: array[int]
    chunks: array[int]

    @classmethod
    def none(cls) -> Arrivals:
        """No chunk yet."""
        return cls(array("Q"), array("Q"), array("Q"))

    def add(self, block: int, arrival: Arrival) -> None:
        """A chunk begins with this block; what was noted of blocks that have been cut off since is forgotten."""
        known = bisect_left(self.blocks, block)
        for column in (self.blocks, self.lsns, self.chunks):
            del column[known:]
        self.blocks.append(block)
        self.lsns.append(arrival[0])
        self.chunks.append(arrival[1])


class LargeTransaction:
    """One committed transaction to be decoded in parts; `close` frees memory and disk. `start_lsn` is as in a `Unit`.

    `arrivals` is given for a streamed one, whose messages carry an xid each that is taken out here.
    """

    def __init__(
        self, xid: Xid, start: Lsn, commit: Commit | StreamCommit, spool: Spool, arrivals: Arrivals | None = None
    ) -> None:
        if not 0 < commit.end_lsn.value < POSITION_END:
            raise SourceError("replication stream", f"a commit ends at {commit.end_lsn}", "connect again; report this")
        self.start_lsn = start
        self.end_lsn = commit.end_lsn
        self.xid = xid
        self.commit_time_us = commit.commit_time_us
        self.size = spool.size
        self.memory_bytes = spool.memory_bytes
        self.others = spool.count
        self.spilled = spool.spilled
        self.streamed = arrivals is not None
        self._spool = spool
        self._arrivals = arrivals

    def parts(self) -> Iterator[Part]:
        """The messages without begin and commit, at most `UNIT_BYTES` at a time, or one read where that is more."""
        noted = self._arrivals or Arrivals.none()
        wires: list[Wire] = []
        size, known = 0, 0
        arrival: Arrival | None = None
        for ordinal, block in self._spool.read():
            begins = known < len(noted.blocks) and noted.blocks[known] <= ordinal
            if wires and (begins or size + block.size > UNIT_BYTES):
                yield self._part(wires, arrival)
                size = 0
            while known < len(noted.blocks) and noted.blocks[known] <= ordinal:
                arrival = noted.lsns[known], noted.chunks[known]
                known += 1
            wires.append(block)
            size += block.size
            del block
        if wires:
            yield self._part(wires, arrival)

    def close(self) -> None:
        """Let go of the messages."""
        self._spool.close()

    def _part(self, wires: list[Wire], arrival: Arrival | None) -> Part:
        """Their messages as one; the list is cleared, so that nobody holds them twice."""
        if self.streamed:
            wires[:] = [wire.without_xids(wire.where(_WITH_XID)) for wire in wires]
        wire = Wire.join(wires)
        wires.clear()
        return Part(wire, arrival)
