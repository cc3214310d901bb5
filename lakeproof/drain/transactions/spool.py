"""The messages of one waiting transaction: in memory within a limit shared by all, beyond it on disk.

`buffer.py` decides which transaction goes to disk first; `spill.py` has the files.

A spool is a list of blocks, each with consecutive messages of one subtransaction. Reading a spool leaves out the blocks of
rolled-back subtransactions. These are usually the last ones, since nothing of the parent can come between a subtransaction's
first message and its end: then they are cut off at once, with their memory and disk. A block on disk keeps 12 bytes in
memory, so 100,000 subtransactions cost 1.2 MB; a block in memory counts with what it takes there.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator

import numpy as np

from lakeproof.drain.transactions.spill import Spill, SpillFiles
from lakeproof.errors import InvariantError
from lakeproof.names import Xid
from lakeproof.pgoutput.message_buffer import PADDING_BYTES, MessageBuffer, Octets

# Memory beside the bytes: two numbers for each message, three arrays and their objects for each block.
MESSAGE_OVERHEAD_BYTES = 16
BLOCK_OVERHEAD_BYTES = 600
# A block on disk has, beside its messages, two sizes, and two offsets for each message.
_HEAD_BYTES, _PLACES_BYTES = 8, 8
# This many rolled-back subtransactions are remembered before those without blocks are forgotten.
_ABORTED_MIN = 1_000


class SpoolMemory:
    """The memory that all spools of one connection hold. Any thread may read and change it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def exceeded(self) -> bool:
        """True if a spool has to go to disk."""
        return self._used_bytes > self._limit_bytes

    def add(self, size: int) -> None:
        """Count `size` more bytes, or less if negative."""
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
        self._waiting: list[MessageBuffer] = []  # the blocks that are in memory: the last ones
        self._spill: Spill | None = None
        self._aborted: set[Xid] = set()
        self._aborted_limit = _ABORTED_MIN
        self._closed = False
        self.memory_bytes = 0
        self.count = 0
        self.size = 0

    @property
    def spilled(self) -> bool:
        """True if a part is or was on disk."""
        return self._spill is not None

    @property
    def blocks(self) -> int:
        return len(self._xids)

    def add(self, xid: Xid, buffer: MessageBuffer) -> None:
        """Append messages of one subtransaction; raises LakeError if the disk is full."""
        if not len(buffer):
            return
        size = buffer.size
        self.count += len(buffer)
        self.size += size
        if self._spill is not None:
            _write(self._spill, buffer)
        else:
            self._waiting.append(buffer.kept())
            self._hold(_bytes_of(buffer))
        self._xids.append(xid)
        self._sizes.append(_HEAD_BYTES + _PLACES_BYTES * len(buffer) + size)

    def spill(self) -> None:
        """Move everything to disk, and all later messages; raises LakeError if the disk is full."""
        self._spill = self._spill or Spill(self._files)
        self._waiting.reverse()
        while self._waiting:
            _write(self._spill, self._waiting.pop())
        self._hold(-self.memory_bytes)

    def abort(self, xid: Xid) -> None:
        self._aborted.add(xid)
        while self._xids and self._xids[-1] in self._aborted:
            self._cut_last()
        if len(self._aborted) > self._aborted_limit:
            self._aborted.intersection_update(self._xids)
            self._aborted_limit = _ABORTED_MIN + 2 * len(self._aborted)

    def read(self) -> Iterator[tuple[int, MessageBuffer]]:
        """Yield the blocks in order, each with its ordinal, without those of rolled-back subtransactions.

        Raises InvariantError if the spool is closed, before or meanwhile: a closed spool must not look empty.
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
            buffer = self._waiting.pop()
            count, size = len(buffer), buffer.size
            self._hold(-_bytes_of(buffer))
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


def _bytes_of(buffer: MessageBuffer) -> int:
    return buffer.size + MESSAGE_OVERHEAD_BYTES * len(buffer) + BLOCK_OVERHEAD_BYTES


def _write(spill: Spill, buffer: MessageBuffer) -> None:
    """Write a block: its numbers of messages and bytes, each message's two offsets, the bytes; in this machine's order."""
    begin, size = buffer.begin, buffer.size
    head = np.concatenate([np.array([len(buffer), size]), buffer.start - begin, buffer.end - begin]).astype(np.uint32)
    spill.write(head.tobytes())
    spill.write(buffer.octets[begin : begin + size].data)


def _head(spill: Spill, offset: int) -> tuple[int, int]:
    """Return a block's numbers of messages and bytes."""
    count, size = np.frombuffer(spill.read(offset, _HEAD_BYTES), np.uint32).tolist()
    return count, size


def _read(spill: Spill, offset: int) -> MessageBuffer:
    count, size = _head(spill, offset)
    offset += _HEAD_BYTES
    places = np.frombuffer(spill.read(offset, _PLACES_BYTES * count), np.uint32).astype(np.int64)
    octets: Octets = np.empty(size + PADDING_BYTES, np.uint8)
    spill.read_into(offset + _PLACES_BYTES * count, octets[:size].data)
    return MessageBuffer(octets, places[:count], places[count:])
