"""Raw frames of one large transaction, waiting on local disk for their commit.

When something is spilled is decided in `buffer.py`. The file has no name, so that the kernel frees it with the process,
kill -9 included: nothing is left to sweep. It lies in Python's temporary folder; set TMPDIR where that is in memory.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator

from wal2delta.errors import InvariantError

_LENGTH = struct.Struct(">I")
_BUFFER_BYTES = 1 << 20


class Spill:
    """Frames in the order they were written; `count` of them, `size` bytes without the framing.

    Raises OSError where the disk is full.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile("w+b", buffering=_BUFFER_BYTES, prefix="wal2delta-spill-")  # noqa: SIM115  close
        self.count = 0
        self.size = 0

    def write(self, frames: list[bytes]) -> None:
        """Append."""
        pack = _LENGTH.pack
        for frame in frames:
            self._file.write(pack(len(frame)))
            self._file.write(frame)
            self.size += len(frame)
        self.count += len(frames)

    def frames(self) -> Iterator[bytes]:
        """Read them all, from the first; nothing may be written meanwhile."""
        self._file.flush()
        self._file.seek(0)
        for _ in range(self.count):
            (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            yield self._exactly(length)

    def close(self) -> None:
        """Free the disk."""
        self._file.close()

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._file.read(size)
        if len(data) != size:
            raise InvariantError("spill file", f"{size} bytes were written where {len(data)} are", "report this")
        return data
