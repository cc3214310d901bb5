"""Units of work for the decoder: small whole transactions together, or one large transaction to be read in parts.

`buffer.py` and `streamed.py` turn messages into units.
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
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import Commit, StreamCommit
from lakeproof.pgoutput.relations import Arrival
from lakeproof.pgoutput.tags import WITH_XID_IN_CHUNK

# Decoding by column pays from some 10 000 messages on; 8 MB are some 40 000 of 200 bytes, and small beside spill_bytes.
UNIT_BYTES = 8 << 20
# Arrow and Parquet carry positions as signed 64-bit numbers.
POSITION_END = 1 << 63


def broken(reason: str) -> SourceError:
    """Return the error of a stream that no server sends."""
    return SourceError("replication stream", reason, "nothing was acknowledged; connect again, and report this")


@dataclass(frozen=True, slots=True)
class DecodeUnit:
    """The messages of the range (`start_lsn`, `end_lsn`]: whole small transactions, and messages outside transactions.

    `start_lsn` is the end of the unit before, so a consumer can tell that none is missing. Without messages the server had
    nothing to send in the range. `change_count` is the number of messages that are neither a begin nor a commit: an upper
    limit of the changes. Whoever has decoded the messages clears the list, to free their memory.
    """

    buffers: list[MessageBuffer]
    size: int
    start_lsn: Lsn
    end_lsn: Lsn
    change_count: int


@dataclass(frozen=True, slots=True)
class TransactionPart:
    """Some messages of a large transaction, in order; `arrival` is set for a streamed one: see `pgoutput.relations`."""

    buffer: MessageBuffer
    arrival: Arrival | None


@dataclass(slots=True)
class Arrivals:
    """The arrivals of a streamed transaction's chunks with Relation messages, by their first block's ordinal."""

    blocks: array[int]
    lsns: array[int]
    chunks: array[int]

    @classmethod
    def none(cls) -> Arrivals:
        return cls(array("Q"), array("Q"), array("Q"))

    def add(self, block: int, arrival: Arrival) -> None:
        """Add a chunk that begins with this block; entries of blocks that were cut off since are dropped."""
        kept = bisect_left(self.blocks, block)
        for column in (self.blocks, self.lsns, self.chunks):
            del column[kept:]
        self.blocks.append(block)
        self.lsns.append(arrival[0])
        self.chunks.append(arrival[1])


class LargeTransaction:
    """One committed transaction to be decoded in parts; `close` frees memory and disk. `start_lsn` is as in a `DecodeUnit`.

    `arrivals` is set for a streamed one, each of whose messages carries an xid, which is removed here.
    """

    def __init__(
        self,
        xid: Xid,
        start: Lsn,
        commit: Commit | StreamCommit,
        spool: Spool,
        arrivals: Arrivals | None = None,
        *,
        part_bytes: int = UNIT_BYTES,
    ) -> None:
        if not 0 < commit.end_lsn.value < POSITION_END:
            raise broken(f"a commit ends at {commit.end_lsn}")
        self.start_lsn = start
        self.end_lsn = commit.end_lsn
        self.xid = xid
        self.commit_time_us = commit.commit_time_us
        self.size = spool.size
        self.memory_bytes = spool.memory_bytes
        self.change_count = spool.count
        self.spilled = spool.spilled
        self.streamed = arrivals is not None
        self._spool = spool
        self._arrivals = arrivals
        self._part_bytes = part_bytes

    def parts(self) -> Iterator[TransactionPart]:
        """Yield the messages without begin and commit, at most `part_bytes` at a time, or one block if that is more."""
        arrivals = self._arrivals or Arrivals.none()
        buffers: list[MessageBuffer] = []
        size, passed = 0, 0
        arrival: Arrival | None = None
        for ordinal, block in self._spool.read():
            begins = passed < len(arrivals.blocks) and arrivals.blocks[passed] <= ordinal
            if buffers and (begins or size + block.size > self._part_bytes):
                yield self._part(buffers, arrival)
                size = 0
            while passed < len(arrivals.blocks) and arrivals.blocks[passed] <= ordinal:
                arrival = arrivals.lsns[passed], arrivals.chunks[passed]
                passed += 1
            buffers.append(block)
            size += block.size
            del block
        if buffers:
            yield self._part(buffers, arrival)

    def close(self) -> None:
        self._spool.close()

    def _part(self, buffers: list[MessageBuffer], arrival: Arrival | None) -> TransactionPart:
        """Join the messages; clears the list, so that nobody holds them twice."""
        if self.streamed:
            buffers[:] = [buffer.without_xids(buffer.where(WITH_XID_IN_CHUNK)) for buffer in buffers]
        buffer = MessageBuffer.join(buffers)
        buffers.clear()
        return TransactionPart(buffer, arrival)
