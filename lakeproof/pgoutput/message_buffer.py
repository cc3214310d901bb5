"""Messages in one buffer, which NumPy reads at many offsets at once.

`transaction_positions.py` reads transactions from it, and `tuples.py` values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from lakeproof.errors import InvariantError
from lakeproof.pgoutput.decoder import HEADER_BYTES, ProtocolError, decode

Frame: TypeAlias = bytes | bytearray | memoryview
Ints: TypeAlias = npt.NDArray[np.int64]
Octets: TypeAlias = npt.NDArray[np.uint8]
Flags: TypeAlias = npt.NDArray[np.bool_]

# Arrow's string offsets are 32 bits wide. The drain's flush and spill limits are far below.
BATCH_BYTES_MAX = (1 << 31) - 64
# So many bytes follow the last message of every buffer, so that a read at the end of a truncated message stays inside the
# buffer. The message's own end is checked separately.
PADDING_BYTES = 16
_XID_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class MessageBuffer:
    """Message i has the bytes start[i] (its tag) to end[i] (exclusive) of `octets`; they ascend, with anything between them.

    Slices share the buffer, so a caller that keeps one for long should keep the result of `kept`.
    """

    octets: Octets
    start: Ints
    end: Ints

    @classmethod
    def none(cls) -> MessageBuffer:
        """Return a buffer without messages."""
        return cls(np.zeros(PADDING_BYTES, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> MessageBuffer:
        """Join XLogData frames with their 25-byte headers; raises ProtocolError for any other frame."""
        sizes: Ints = np.fromiter(map(len, frames), np.int64, len(frames))
        octets: Octets = np.frombuffer(bytearray().join([*frames, bytes(PADDING_BYTES)]), np.uint8)
        end: Ints = np.cumsum(sizes)
        start = end - sizes
        bad = np.flatnonzero((sizes <= HEADER_BYTES) | (octets[start] != ord("w")))
        if bad.size:
            first = int(start[bad[0]])
            raise ProtocolError(octets[first : first + 1].tobytes(), 0, f"frame {bad[0]} is no XLogData with a message")
        return cls(octets, start + HEADER_BYTES, end)

    @classmethod
    def join(cls, buffers: Sequence[MessageBuffer]) -> MessageBuffer:
        """Join the messages of all, in order, for the decoder; raises InvariantError if they exceed 2 GiB."""
        buffers = [buffer for buffer in buffers if len(buffer)]
        total = sum(buffer.size for buffer in buffers)
        if total > BATCH_BYTES_MAX:
            raise InvariantError(
                "a batch of messages", f"{total} bytes are more than {BATCH_BYTES_MAX}", "decode it in parts"
            )
        if len(buffers) == 1:
            return buffers[0].frozen()
        parts = [buffer.octets[buffer.begin : buffer.stop] for buffer in buffers]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        moves = [int(start) - buffer.begin for start, buffer in zip(starts, buffers, strict=False)]
        none = np.zeros(0, np.int64)
        joined = cls(
            np.concatenate([*parts, np.zeros(PADDING_BYTES, np.uint8)]),
            np.concatenate([none, *(buffer.start + move for buffer, move in zip(buffers, moves, strict=True))]),
            np.concatenate([none, *(buffer.end + move for buffer, move in zip(buffers, moves, strict=True))]),
        )
        return joined.frozen()

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, part: slice) -> MessageBuffer:
        return MessageBuffer(self.octets, self.start[part], self.end[part])

    def __iter__(self) -> Iterator[bytes]:
        return map(self.message, range(len(self)))

    @property
    def begin(self) -> int:
        """The offset of the first message."""
        return int(self.start[0]) if len(self) else 0

    @property
    def stop(self) -> int:
        """The end of the last message."""
        return int(self.end[-1]) if len(self) else 0

    @property
    def size(self) -> int:
        """The bytes of the messages and of what lies between them."""
        return self.stop - self.begin

    @property
    def tags(self) -> Octets:
        """The first byte of each message."""
        return self.octets[self.start]

    def kept(self) -> MessageBuffer:
        """Return the same messages for keeping: a small slice would keep everything that was received with it."""
        return self if 2 * self.size >= len(self.octets) else self.copy()

    def copy(self) -> MessageBuffer:
        """Copy the messages to a buffer of their own."""
        octets = np.empty(self.size + PADDING_BYTES, np.uint8)
        octets[: self.size] = self.octets[self.begin : self.stop]
        return MessageBuffer(octets, self.start - self.begin, self.end - self.begin)

    def without_xids(self, which: Flags) -> MessageBuffer:
        """Remove the xid after the tag of each of these messages; writes to the buffer."""
        moved = self.start[which] + _XID_BYTES
        self.octets[moved] = self.tags[which]
        start = self.start.copy()
        start[which] = moved
        return MessageBuffer(self.octets, start, self.end)

    def message(self, index: int) -> bytes:
        """Return one message's bytes."""
        return self.octets[int(self.start[index]) : int(self.end[index])].tobytes()

    def where(self, tags: bytes) -> Flags:
        """Return for each message whether it has one of these tags."""
        selected = np.zeros(256, np.bool_)
        selected[np.frombuffer(tags, np.uint8)] = True
        matches: Flags = selected[self.tags]
        return matches

    def uint32(self, offsets: Ints) -> Ints:
        """Read four bytes at each offset, unsigned."""
        return self._read(offsets, ">u4")

    def int64(self, offsets: Ints) -> Ints:
        """Read eight bytes at each offset, signed."""
        return self._read(offsets, ">i8")

    def refuse(self, index: int, reason: str) -> NoReturn:
        """Raise a message's ProtocolError: the plain decoder's if it raises one, since that knows the offset."""
        decode(self.message(index))
        raise ProtocolError(self.message(index)[:1], 0, reason)

    def frozen(self) -> MessageBuffer:
        """Return a read-only view of the buffer, which is what the compiled loops are compiled for."""
        octets = self.octets.view()
        octets.flags.writeable = False
        return MessageBuffer(octets, self.start, self.end)

    def _read(self, offsets: Ints, dtype: str) -> Ints:
        width = np.dtype(dtype).itemsize
        # Overlapping and unaligned: one number beginning at every byte. Only those asked for are read.
        every = np.ndarray((len(self.octets) - width + 1,), dtype, self.octets, strides=(1,))
        read: Ints = every[offsets].astype(np.int64)
        return read
