"""The messages of one waiting transaction: in memory within a limit common to all, beyond it on disk.

Where the messages come from, and who is put on disk first, belongs to `buffer.py`; files to `spill.py`.

A spool is a list of blocks, each of one subtransaction's consecutive messages. A rolled-back subtransaction's blocks are
left out when the spool is read. They are the last ones as a rule, since nothing of its parent can come between its first
message and its end: then they are cut off at once, with their memory and disk. What is kept for each block is 12 bytes,
so that 100,000 subtransactions cost 1.2 MB.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator
from itertools import accumulate, pairwise

from wal2delta.drain.spill import Spill, SpillFiles
from wal2delta.names import Xid

# What CPython and the allocator add to the bytes of a small frame that stands in a list.
FRAME_OVERHEAD_BYTES = 57
# From here on a frame is written and read by itself.
_LARGE_FRAME_BYTES = 1 << 20
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
    """One transaction's frames; `count` of them, `size` bytes. `close` frees memory and disk, and may be called twice.

    Once the transaction is complete another thread may `read` and `close` it.
    """

    def __init__(self, memory: SpoolMemory, files: SpillFiles) -> None:
        self._memory = memory
        self._files = files
        self._xids = array("I")
        self._sizes = array("Q")  # of the blocks: with their head and lengths, as on disk
        self._waiting: list[list[bytes]] = []  # the blocks that are in memory: the last ones
        self._spill: Spill | None = None
        self._aborted: set[Xid] = set()
        self._aborted_limit = _ABORTED_MIN
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

    def add(self, xid: Xid, frames: list[bytes]) -> None:
        """Append frames of one subtransaction; raises LakeError where the disk is full."""
        if not frames:
            return
        size = sum(map(len, frames))
        self.count += len(frames)
        self.size += size
        if self._spill is not None:
            _write(self._spill, frames)
        else:
            self._waiting.append(frames)
            self._hold(size + FRAME_OVERHEAD_BYTES * len(frames))
        self._xids.append(xid)
        self._sizes.append(4 + 4 * len(frames) + size)

    def spill(self) -> None:
        """Put everything on disk, and all that comes later; raises LakeError where the disk is full."""
        self._spill = self._spill or Spill(self._files)
        while self._waiting:
            _write(self._spill, self._waiting.pop(0))
        self._hold(-self.memory_bytes)

    def abort(self, xid: Xid) -> None:
        """Leave out a subtransaction."""
        self._aborted.add(xid)
        while self._xids and self._xids[-1] in self._aborted:
            self._cut_last()
        if len(self._aborted) > self._aborted_limit:
            self._aborted.intersection_update(self._xids)
            self._aborted_limit = _ABORTED_MIN + 2 * len(self._aborted)

    def read(self) -> Iterator[tuple[int, list[bytes]]]:
        """The blocks in order, each with its ordinal; without those of rolled-back subtransactions."""
        on_disk = len(self._xids) - len(self._waiting)
        offset = 0
        for ordinal, (xid, size) in enumerate(zip(self._xids, self._sizes, strict=True)):
            if xid not in self._aborted:
                if ordinal >= on_disk:
                    yield ordinal, self._waiting[ordinal - on_disk]
                elif self._spill is not None:
                    yield ordinal, _read(self._spill, offset, size)
            offset += size

    def close(self) -> None:
        """Let go of the frames."""
        if self._spill is not None:
            self._spill.close()
        self._waiting = []
        self._xids, self._sizes = array("I"), array("Q")
        self._hold(-self.memory_bytes)

    def _cut_last(self) -> None:
        self._xids.pop()
        size = self._sizes.pop()
        if self._waiting:
            frames = self._waiting.pop()
            count = len(frames)
            self._hold(-(size - 4 - 4 * count + FRAME_OVERHEAD_BYTES * count))
        elif self._spill is not None:
            kept = self._spill.size - size
            count = int.from_bytes(self._spill.read(kept, 4), "little")
            self._spill.cut(kept)
        else:
            return
        self.count -= count
        self.size -= size - 4 - 4 * count

    def _hold(self, size: int) -> None:
        self.memory_bytes += size
        self._memory.add(size)


def _write(spill: Spill, frames: list[bytes]) -> None:
    """A block: the number of frames, their lengths, then the frames; numbers in this machine's order but the first."""
    lengths = array("I", map(len, frames))
    head = len(frames).to_bytes(4, "little") + lengths.tobytes()
    if max(lengths) < _LARGE_FRAME_BYTES:
        spill.write(b"".join([head, *frames]))
        return
    # One by one, since together they would be in memory twice.
    spill.write(head)
    for frame in frames:
        spill.write(frame)


def _read(spill: Spill, offset: int, size: int) -> list[bytes]:
    count = int.from_bytes(spill.read(offset, 4), "little")
    lengths = array("I")
    lengths.frombytes(spill.read(offset + 4, 4 * count))
    start = offset + 4 + 4 * count
    if max(lengths) >= _LARGE_FRAME_BYTES:
        places = accumulate(lengths, initial=start)
        return [spill.read(place, length) for place, length in zip(places, lengths, strict=False)]
    block = spill.read(start, offset + size - start)
    return [block[begin:end] for begin, end in pairwise(accumulate(lengths, initial=0))]
