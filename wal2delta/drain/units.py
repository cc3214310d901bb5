"""What is handed to the decoder: frames of small whole transactions together, or one large transaction to be read in parts.

How frames become units belongs to `buffer.py` and `streams.py`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from wal2delta.drain.spool import Spool
from wal2delta.errors import SourceError
from wal2delta.lsn import Lsn
from wal2delta.names import Xid
from wal2delta.pgoutput.decoder import HEADER_BYTES
from wal2delta.pgoutput.messages import Commit, StreamCommit
from wal2delta.pgoutput.relations import Arrival

# Decoding by column pays from some 10 000 messages on; 8 MB are some 40 000 of 200 bytes, and small beside spill_bytes.
UNIT_BYTES = 8 << 20
# Arrow and Parquet carry positions as signed 64-bit numbers.
POSITION_END = 1 << 63
# A streamed message's xid stands after its tag; the origin has none.
_TAG_END, _XID_END = HEADER_BYTES + 1, HEADER_BYTES + 5
_ORIGIN = ord("O")


@dataclass(frozen=True, slots=True)
class Unit:
    """Frames that end at the position `end_lsn`: whole small transactions, and messages that belong to none.

    `others` is how many of them are neither a begin nor a commit: an upper limit of the changes. Whoever has decoded the
    frames clears the list, to free their memory.
    """

    frames: list[bytes]
    size: int
    end_lsn: Lsn
    others: int


@dataclass(frozen=True, slots=True)
class Part:
    """Some frames of a large transaction, in order; whoever has decoded them may clear the list, to free their memory.

    `arrival` is set for a streamed transaction: see `pgoutput.relations`.
    """

    frames: list[bytes]
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
    """One committed transaction to be decoded in parts; `close` frees memory and disk.

    `arrivals` is given for a streamed one, whose frames carry an xid each that is taken out here.
    """

    def __init__(self, xid: Xid, commit: Commit | StreamCommit, spool: Spool, arrivals: Arrivals | None = None) -> None:
        if not 0 < commit.end_lsn.value < POSITION_END:
            raise SourceError("replication stream", f"a commit ends at {commit.end_lsn}", "connect again; report this")
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
        """The frames without begin and commit, in lists of at most `UNIT_BYTES`, or of one read where that is more."""
        noted = self._arrivals or Arrivals.none()
        frames: list[bytes] = []
        size, known = 0, 0
        arrival: Arrival | None = None
        for ordinal, block in self._spool.read():
            block_size = sum(map(len, block))
            begins = known < len(noted.blocks) and noted.blocks[known] <= ordinal
            if frames and (begins or size + block_size > UNIT_BYTES):
                yield self._part(frames, arrival)
                frames, size = [], 0
            while known < len(noted.blocks) and noted.blocks[known] <= ordinal:
                arrival = noted.lsns[known], noted.chunks[known]
                known += 1
            frames += block
            del block
            size += block_size
        if frames:
            yield self._part(frames, arrival)

    def close(self) -> None:
        """Let go of the frames."""
        self._spool.close()

    def _part(self, frames: list[bytes], arrival: Arrival | None) -> Part:
        if self.streamed:
            for at, frame in enumerate(frames):
                if frame[HEADER_BYTES] != _ORIGIN:
                    # In place, and without a copy of the rest: a frame may have 100 MB.
                    frames[at] = b"".join((frame[:_TAG_END], memoryview(frame)[_XID_END:]))
        return Part(frames, arrival)
