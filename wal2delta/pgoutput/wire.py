"""A batch of XLogData frames as one buffer that NumPy reads at many offsets at once.

What the bytes mean belongs to `places.py` (transactions) and `tuples.py` (values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from wal2delta.errors import InvariantError
from wal2delta.pgoutput.decoder import HEADER_BYTES, ProtocolError, decode

Frame: TypeAlias = bytes | bytearray | memoryview
Ints: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Arrow's string offsets are 32 bits wide. The drain's flush and spill limits are far below.
BATCH_BYTES_MAX = (1 << 31) - 64
# Lets a read at the end of a truncated message stay inside the buffer; the message's own end is checked apart.
_PADDING = bytes(16)


@dataclass(frozen=True, slots=True)
class Wire:
    """The frames end to end: message i has the bytes at[i] (its tag) to end[i], exclusive."""

    data: bytes
    octets: Octets
    at: Ints
    end: Ints
    tags: Octets

    @classmethod
    def join(cls, frames: Sequence[Frame]) -> Wire:
        """Join frames with their 25-byte headers; raises ProtocolError for what is no XLogData frame with a message."""
        sizes: Ints = np.fromiter(map(len, frames), np.int64, len(frames))
        total = int(sizes.sum())
        if total > BATCH_BYTES_MAX:
            raise InvariantError(
                "a batch of messages", f"{total} bytes are more than {BATCH_BYTES_MAX}", "decode it in parts"
            )
        data = b"".join([*frames, _PADDING])
        octets: Octets = np.frombuffer(data, np.uint8)
        end: Ints = np.cumsum(sizes)
        start = end - sizes
        bad = np.flatnonzero((sizes <= HEADER_BYTES) | (octets[start] != ord("w")))
        if bad.size:
            first = int(start[bad[0]])
            raise ProtocolError(data[first : first + 1], 0, f"frame {bad[0]} is no XLogData with a message")
        at = start + HEADER_BYTES
        return cls(data, octets, at, end, octets[at])

    def __len__(self) -> int:
        return len(self.at)

    def message(self, index: int) -> bytes:
        """One message's bytes."""
        return self.data[int(self.at[index]) : int(self.end[index])]

    def where(self, tags: bytes) -> Flags:
        """Which messages have one of these tags."""
        wanted = np.zeros(256, np.bool_)
        wanted[np.frombuffer(tags, np.uint8)] = True
        found: Flags = wanted[self.tags]
        return found

    def uint16(self, at: Ints) -> Ints:
        """Two bytes at each offset."""
        return self._read(at, ">u2")

    def int32(self, at: Ints) -> Ints:
        """Four bytes at each offset, signed."""
        return self._read(at, ">i4")

    def uint32(self, at: Ints) -> Ints:
        """Four bytes at each offset, unsigned."""
        return self._read(at, ">u4")

    def int64(self, at: Ints) -> Ints:
        """Eight bytes at each offset, signed."""
        return self._read(at, ">i8")

    def refuse(self, index: int, reason: str) -> NoReturn:
        """Raise the ProtocolError of a message: the plain decoder's where it has one, since that knows the offset."""
        self.reread(index)
        raise ProtocolError(self.message(index)[:1], 0, reason)

    def reread(self, index: int) -> None:
        """Put a message through the plain decoder, for its errors."""
        decode(self.message(index))

    def _read(self, at: Ints, dtype: str) -> Ints:
        width = np.dtype(dtype).itemsize
        # Overlapping and unaligned: one number beginning at every byte. Only those asked for are read.
        every = np.ndarray((len(self.data) - width + 1,), dtype, self.data, strides=(1,))
        read: Ints = every[at].astype(np.int64)
        return read
