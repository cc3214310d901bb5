"""Cutting the stream's frames into whole transactions.

Reading frames belongs to `wal2delta.postgres.stream`, decoding them to `wal2delta.pgoutput`; here only a frame's tag, and a
commit's end LSN, are looked at.

Invariant whole-transactions: what `take` gives ends at a commit. Invariant bounded: frames of transactions that are complete
are given away at `UNIT_BYTES`; those of the one open transaction wait in memory up to `spill_bytes`, and beyond that in an
unnamed temporary file. A transaction above `UNIT_BYTES` is given away by itself, to be decoded in parts of about that size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from wal2delta.drain.spill import Spill
from wal2delta.errors import SourceError
from wal2delta.lsn import Lsn
from wal2delta.names import Xid
from wal2delta.pgoutput.decoder import HEADER_BYTES, POSTGRES_EPOCH_US

# Decoding by column pays from some 10 000 messages on; 8 MB are some 40 000 of 200 bytes, and small beside spill_bytes.
UNIT_BYTES = 8 << 20
_BEGIN, _COMMIT, _MESSAGE = b"BCM"
_BEGIN_FORM = struct.Struct(">cQqI")
_COMMIT_FORM = struct.Struct(">cBQQq")


@dataclass(frozen=True, slots=True)
class Unit:
    """Frames of whole, small transactions up to and with the commit that ends at `end_lsn`."""

    frames: list[bytes]
    size: int
    end_lsn: Lsn
    transactions: int

    @property
    def others(self) -> int:
        """How many messages are neither a begin nor a commit: an upper limit of the changes."""
        return len(self.frames) - 2 * self.transactions


class LargeTransaction:
    """One transaction to be decoded in parts: the frames between its begin and its commit.

    `size` is their bytes in memory and on disk; `close` frees the disk.
    """

    def __init__(self, spill: Spill | None, frames: list[bytes], size: int) -> None:
        first = next(spill.frames()) if spill is not None else frames[0]
        if first[HEADER_BYTES] != _BEGIN or frames[-1][HEADER_BYTES] != _COMMIT:
            raise SourceError(
                "replication stream", "a transaction did not begin with its begin", "connect again; report this"
            )
        _, _, time_us, xid = _BEGIN_FORM.unpack_from(first, HEADER_BYTES)
        self.size = size
        self.end_lsn = _end_of(frames[-1])
        self.xid = Xid(xid)
        self.commit_time_us = time_us + POSTGRES_EPOCH_US
        self.memory_bytes = sum(map(len, frames))
        self.others = (spill.count if spill is not None else 0) + len(frames) - 2
        self._spill = spill
        self._frames = frames

    @property
    def spilled(self) -> bool:
        """Whether part of it waits on disk."""
        return self._spill is not None

    def parts(self) -> Iterator[list[bytes]]:
        """The frames without begin and commit, in order, in lists of about `UNIT_BYTES`."""
        spilled = self._spill.frames() if self._spill is not None else iter(())
        part: list[bytes] = []
        size = 0
        for frame in islice(chain(spilled, self._frames), 1, 1 + self.others):
            part.append(frame)
            size += len(frame)
            if size >= UNIT_BYTES:
                yield part
                part, size = [], 0
        if part:
            yield part

    def close(self) -> None:
        """Let go of the frames."""
        self._frames = []
        if self._spill is not None:
            self._spill.close()


class TransactionBuffer:
    """Frames between the stream and the decoder."""

    def __init__(self, spill_bytes: int) -> None:
        self._spill_bytes = spill_bytes
        self._units: list[Unit | LargeTransaction] = []
        self._ready: list[bytes] = []
        self._ready_bytes = 0
        self._ready_commits = 0
        self._open: list[bytes] = []
        self._open_bytes = 0
        self._spill: Spill | None = None

    @property
    def empty(self) -> bool:
        """Whether nothing waits, and no transaction is open."""
        return not (self._units or self._ready or self.transaction_open)

    @property
    def transaction_open(self) -> bool:
        """Whether a begin has come whose commit has not."""
        return bool(self._open) or self._spill is not None

    @property
    def complete(self) -> bool:
        """Whether transactions wait that have their commit."""
        return bool(self._units or self._ready)

    @property
    def complete_end(self) -> Lsn | None:
        """The last complete transaction's position, as far as it is not in a unit yet."""
        return _end_of(self._ready[-1]) if self._ready else None

    @property
    def complete_bytes(self) -> int:
        """Bytes of small, complete transactions that are not in a unit yet."""
        return self._ready_bytes

    @property
    def complete_others(self) -> int:
        """Their messages but begins and commits."""
        return len(self._ready) - 2 * self._ready_commits

    def feed(self, frames: list[bytes]) -> None:
        """Take in what the stream brought, in its order."""
        commits = [i for i, frame in enumerate(frames) if frame[HEADER_BYTES] == _COMMIT]
        if commits and (self._spill is not None or self._open_bytes >= UNIT_BYTES):
            first = commits[0] + 1
            self._end_large(frames[:first])
            frames = frames[first:]
            commits = [at - first for at in commits[1:]]
        if commits:
            last = commits[-1] + 1
            self._ready += self._open
            self._ready += frames[:last]
            self._ready_bytes += self._open_bytes + sum(map(len, frames[:last]))
            self._ready_commits += len(commits)
            self._open, self._open_bytes = [], 0
            frames = frames[last:]
        self._extend_open(frames)
        if self._ready_bytes >= UNIT_BYTES:
            self._cut()

    def take(self, *, everything: bool) -> list[Unit | LargeTransaction]:
        """Give away the units that are full; with `everything` also the last complete transactions."""
        if everything:
            self._cut()
        units, self._units = self._units, []
        return units

    def close(self) -> None:
        """Drop what is left; the server will send it again."""
        for unit in self._units:
            if isinstance(unit, LargeTransaction):
                unit.close()
        if self._spill is not None:
            self._spill.close()
        self._units, self._ready, self._open, self._spill = [], [], [], None

    def _extend_open(self, frames: list[bytes]) -> None:
        if not self.transaction_open:
            # A message that belongs to no transaction has no place in the landing, and no commit to wait for.
            while frames and frames[0][HEADER_BYTES] == _MESSAGE:
                frames = frames[1:]
        if not frames:
            return
        self._open += frames
        self._open_bytes += sum(map(len, frames))
        if self._spill is not None or self._open_bytes >= self._spill_bytes:
            self._spill = self._spill or Spill()
            self._spill.write(self._open)
            self._open, self._open_bytes = [], 0

    def _end_large(self, rest: list[bytes]) -> None:
        self._cut()
        frames = self._open + rest
        size = (self._spill.size if self._spill is not None else 0) + sum(map(len, frames))
        self._units.append(LargeTransaction(self._spill, frames, size))
        self._open, self._open_bytes, self._spill = [], 0, None

    def _cut(self) -> None:
        if self._ready:
            # What is complete ends with a commit.
            self._units.append(Unit(self._ready, self._ready_bytes, _end_of(self._ready[-1]), self._ready_commits))
            self._ready, self._ready_bytes, self._ready_commits = [], 0, 0


def _end_of(commit: bytes) -> Lsn:
    return Lsn(_COMMIT_FORM.unpack_from(commit, HEADER_BYTES)[3])
