"""The messages of one waiting transaction: in memory within a limit common to all, beyond it on disk.

Where the messages come from, and who is put on disk first, belongs to `buffer.py`; files to `spill.py`.

A spool is a list of blocks, each of one subtransaction's consecutive messages. A rolled-back subtransaction's blocks are
left out when the spool is read. They are the last ones as a rule, since nothing of its parent can come between its first
message and its end: then they are cut off at once, with their memory and disk. Of a block on disk 12 bytes are kept, so
that 100,000 subtransactions cost 1.2 MB; one in memory counts with what it takes there.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator

import numpy as np

from lakeproof.drain.transactions.spill import Spill, SpillFiles
from lakeproof.errors import InvariantError
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import PADDING_BYTES, Octets, Wire

# What is in memory beside the bytes: for each message two numbers, for each block three arrays and what holds them.
MESSAGE_OVERHEAD_BYTES = 16
BLOCK_OVERHEAD_BYTES = 600
# What a block has on disk beside its messages: two sizes, and two places for each message.
_HEAD_BYTES, _PLACES_BYTES = 8, 8
# So many rolled-back subtransactions are remembered before those without blocks are dropped.
_ABORTED_MIN = 1_000


class SpoolMemory:
    """What all spools of one connection hold in memory. Any thread may ask and change it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def exceeded(self) -> bool:
        """Whether something has to go to disk."""
        return self._used_bytes > self._limit_bytes

    def add(self, size: int) -> None:
        """More is held, or less where negative."""
        with self._lock:
            self._used_bytes += size


class Spool:
    """One transaction's messages; `count` of them, `size` bytes. `close` frees memory and disk, and may be called twice.

    Once the transaction is complete another thread may `read` and `close` it.
    """

    def __init__(self, memory: SpoolMemory, files: SpillFiles) -> None:
        self._memory = memory
        self._files = files
        self._xids = array("I")
        self._sizes = array("Q")  # of the blocks: with their head and lengths, as on disk
        self._waiting: list[Wire] = []  # the blocks that are in memory: the last ones
        self._spill: Spill | None = None
        self._aborted: set[Xid] = set()
        self._aborted_limit = _ABORTED_MIN
        self._closed = False
        self.memory_bytes = 0
        self.count = 0
        self.size = 0

    @property
    def spilled(self) -> bool:
        """Whether part of it is or was on disk."""
        return self._spill is not None

    @property
    def blocks(self) -> int:
        """How many blocks there are."""
        return len(self._xids)

    def add(self, xid: Xid, wire: Wire) -> None:
        """Append messages of one subtransaction; raises LakeError where the disk is full."""
        if not len(wire):
            return
        size = wire.size
        self.count += len(wire)
        self.size += size
        if self._spill is not None:
            _write(self._spill, wire)
        else:
            self._waiting.append(wire.kept())
            self._hold(_held(wire))
        self._xids.append(xid)
        self._sizes.append(_HEAD_BYTES + _PLACES_BYTES * len(wire) + size)

    def spill(self) -> None:
        """Put everything on disk, and all that comes later; raises LakeError where the disk is full."""
        self._spill = self._spill or Spill(self._files)
        self._waiting.reverse()
        while self._waiting:
            _write(self._spill, self._waiting.pop())
        self._hold(-self.memory_bytes)

    def abort(self, xid: Xid) -> None:
        """Leave out a subtransaction."""
        self._aborted.add(xid)
        while self._xids and self._xids[-1] in self._aborted:
            self._cut_last()
        if len(self._aborted) > self._aborted_limit:
            self._aborted.intersection_update(self._xids)
            self._aborted_limit = _ABORTED_MIN + 2 * len(self._aborted)

    def read(self) -> Iterator[tuple[int, Wire]]:
        """The blocks in order, each with its ordinal; without those of rolled-back subtransactions.

        Raises InvariantError where it is closed, before or meanwhile: what it had must not be taken for nothing.
        """
        self._check_open()
        on_disk = len(self._xids) - len(self._waiting)
        offset = 0
        for ordinal, (xid, size) in enumerate(zip(self._xids, self._sizes, strict=True)):
            if xid not in self._aborted:
                self._check_open()
                if ordinal >= on_disk:
                    yield ordinal, self._waiting[ordinal - on_disk]
                elif self._spill is not None:
                    yield ordinal, _read(self._spill, offset)
            offset += size

    def close(self) -> None:
        """Let go of the messages."""
        self._closed = True
        if self._spill is not None:
            self._spill.close()
        self._waiting = []
        self._xids, self._sizes = array("I"), array("Q")
        self._hold(-self.memory_bytes)

    def _check_open(self) -> None:
        if self._closed:
            raise InvariantError("waiting transaction", "it is read after its end", "report this")

    def _cut_last(self) -> None:
        self._xids.pop()
        block = self._sizes.pop()
        if self._waiting:
            wire = self._waiting.pop()
            count, size = len(wire), wire.size
            self._hold(-_held(wire))
        elif self._spill is not None:
            kept = self._spill.size - block
            count, size = _head(self._spill, kept)
            self._spill.cut(kept)
        else:
            return
        self.count -= count
        self.size -= size

    def _hold(self, size: int) -> None:
        self.memory_bytes += size
        self._memory.add(size)


def _held(wire: Wire) -> int:
    return wire.size + MESSAGE_OVERHEAD_BYTES * len(wire) + BLOCK_OVERHEAD_BYTES


def _write(spill: Spill, wire: Wire) -> None:
    """A block: how many messages and bytes, where each message begins and ends, then the bytes; in this machine's order."""
    begin, size = wire.begin, wire.size
    head = np.concatenate([np.array([len(wire), size]), wire.at - begin, wire.end - begin]).astype(np.uint32)
    spill.write(head.tobytes())
    spill.write(wire.octets[begin : begin + size].data)


def _head(spill: Spill, offset: int) -> tuple[int, int]:
    """How many messages and bytes a block has."""
    count, size = np.frombuffer(spill.read(offset, _HEAD_BYTES), np.uint32).tolist()
    return count, size


def _read(spill: Spill, offset: int) -> Wire:
    count, size = _head(spill, offset)
    offset += _HEAD_BYTES
    places = np.frombuffer(spill.read(offset, _PLACES_BYTES * count), np.uint32).astype(np.int64)
    octets: Octets = np.empty(size + PADDING_BYTES, np.uint8)
    spill.read_into(offset + _PLACES_BYTES * count, octets[:size].data)
    return Wire(octets, places[:count], places[count:])
