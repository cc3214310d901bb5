"""Messages in one buffer, which NumPy reads at many offsets at once.

What the bytes mean belongs to `places.py` (transactions) and `tuples.py` (values), receiving them to `lakeproof.postgres`.
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
# So many bytes stand behind the last message of every buffer: a read at the end of a truncated one stays inside; the
# message's own end is checked apart.
PADDING_BYTES = 16
_XID_BYTES = 4


@dataclass(frozen=True, slots=True, eq=False)
class Wire:
    """Message i has the bytes at[i] (its tag) to end[i] (exclusive) of `octets`; they ascend, with anything between them.

    Slices share the buffer, so whoever keeps one for long keeps what `kept` gives.
    """

    octets: Octets
    at: Ints
    end: Ints

    @classmethod
    def none(cls) -> Wire:
        """No message."""
        return cls(np.zeros(PADDING_BYTES, np.uint8), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Wire:
        """Of XLogData frames with their 25-byte headers; raises ProtocolError for what is no such frame with a message."""
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
    def join(cls, wires: Sequence[Wire]) -> Wire:
        """The messages of all, in order, for the decoder; raises InvariantError where they are more than 2 GiB."""
        wires = [wire for wire in wires if len(wire)]
        total = sum(wire.size for wire in wires)
        if total > BATCH_BYTES_MAX:
            raise InvariantError(
                "a batch of messages", f"{total} bytes are more than {BATCH_BYTES_MAX}", "decode it in parts"
            )
        if len(wires) == 1:
            return wires[0].frozen()
        parts = [wire.octets[wire.begin : wire.stop] for wire in wires]
        starts = np.cumsum([0, *(len(part) for part in parts)])
        moves = [int(start) - wire.begin for start, wire in zip(starts, wires, strict=False)]
        none = np.zeros(0, np.int64)
        joined = cls(
            np.concatenate([*parts, np.zeros(PADDING_BYTES, np.uint8)]),
            np.concatenate([none, *(wire.at + move for wire, move in zip(wires, moves, strict=True))]),
            np.concatenate([none, *(wire.end + move for wire, move in zip(wires, moves, strict=True))]),
        )
        return joined.frozen()

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, part: slice) -> Wire:
        return Wire(self.octets, self.at[part], self.end[part])

    def __iter__(self) -> Iterator[bytes]:
        return map(self.message, range(len(self)))

    @property
    def begin(self) -> int:
        """Where the first message stands."""
        return int(self.at[0]) if len(self) else 0

    @property
    def stop(self) -> int:
        """Where the last message ends."""
        return int(self.end[-1]) if len(self) else 0

    @property
    def size(self) -> int:
        """The bytes of the messages and of what stands between them."""
        return self.stop - self.begin

    @property
    def tags(self) -> Octets:
        """The first byte of each message."""
        return self.octets[self.at]

    def kept(self) -> Wire:
        """The same messages, for whoever keeps them: a small slice would keep all that was received with it."""
        return self if 2 * self.size >= len(self.octets) else self.copy()

    def copy(self) -> Wire:
        """The same messages in a buffer of their own."""
        octets = np.empty(self.size + PADDING_BYTES, np.uint8)
        octets[: self.size] = self.octets[self.begin : self.stop]
        return Wire(octets, self.at - self.begin, self.end - self.begin)

    def without_xids(self, which: Flags) -> Wire:
        """Each of these messages, which has an xid behind its tag, as it would be without; the buffer is written to."""
        moved = self.at[which] + _XID_BYTES
        self.octets[moved] = self.tags[which]
        at = self.at.copy()
        at[which] = moved
        return Wire(self.octets, at, self.end)

    def message(self, index: int) -> bytes:
        """One message's bytes."""
        return self.octets[int(self.at[index]) : int(self.end[index])].tobytes()

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

    def frozen(self) -> Wire:
        """With a buffer that can't be written by this way: the compiled loops are for such arrays."""
        octets = self.octets.view()
        octets.flags.writeable = False
        return Wire(octets, self.at, self.end)

    def _read(self, at: Ints, dtype: str) -> Ints:
        width = np.dtype(dtype).itemsize
        # Overlapping and unaligned: one number beginning at every byte. Only those asked for are read.
        every = np.ndarray((len(self.octets) - width + 1,), dtype, self.octets, strides=(1,))
        read: Ints = every[at].astype(np.int64)
        return read
