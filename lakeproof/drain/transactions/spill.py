"""Bytes of waiting transactions on local disk, in a bounded number of unnamed files.

`buffer.py` decides which transaction goes to disk; `spool.py` knows what its bytes mean.

A file has no name, so the kernel frees it with the process, even after kill -9: nothing is left to sweep. It is in Python's
temporary folder; set TMPDIR if that is in memory. Each transaction has its own file while there are fewer than
`drain.spill_files`; further ones share, and a shared file's disk is freed when the last of its transactions is closed.

Invariant bounded: all files together take at most `drain.spill_bytes_max`, whatever the source sends. A write beyond that
raises SpillLimitError, while the disk still has room for others.

Threads: the thread that reads the stream writes and cuts; another thread may read and close.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable
from contextlib import suppress
from typing import IO

from lakeproof.errors import InvariantError, LakeError, TransientError
from lakeproof.storage.disk import disk_error


class SpillLimitError(TransientError):
    """`drain.spill_bytes_max` is reached; `alone` is true if one transaction by itself is larger.

    `by_room`: the limit is not configured, but was set by the disk's free room. A server that does not stream sends one
    transaction after another, and none that is rolled back.
    """

    def __init__(self, bytes_max: int, *, alone: bool, by_room: bool) -> None:
        whose = "one transaction by itself takes" if alone else "the waiting transactions take"
        super().__init__(
            f"temporary folder {tempfile.gettempdir()}",
            f"{whose} more than {bytes_max} bytes of it ({'half of what was free' if by_room else 'drain.spill_bytes_max'})",
            "nothing of it was acknowledged; "
            + ("make room there, or set TMPDIR" if by_room else "set that higher, with so much room there")
            + ", then start again (a drain without an end goes on by itself once there is room)",
        )
        self.alone = alone
        self.by_room = by_room


class _File:
    """An open temporary file: the next write goes to `end`, and `users` spills are in it."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile("w+b", buffering=0, prefix="lakeproof-spill-")  # noqa: SIM115  close
        self.end = 0
        self.users = 0

    def append(self, data: bytes | memoryview) -> int:
        """Write at the end; returns the offset."""
        start = self.end
        left = memoryview(data)
        while left:
            written = os.pwrite(self._file.fileno(), left, self.end)
            self.end += written
            left = left[written:]
        return start

    def read_into(self, start: int, room: memoryview) -> None:
        """Read as many bytes as `room` has."""
        while room:
            count = os.preadv(self._file.fileno(), [room], start)
            if not count:
                raise InvariantError("spill file", "it is shorter than what was written to it", "report this")
            start, room = start + count, room[count:]

    def truncate(self, end: int) -> None:
        os.ftruncate(self._file.fileno(), end)
        self.end = end

    def close(self) -> None:
        self._file.close()


def _free() -> int:
    return shutil.disk_usage(tempfile.gettempdir()).free


class SpillFiles:
    """The spill files of one connection: at most `files_max`, of `bytes_max` bytes; 0 is half of what is free."""

    def __init__(self, files_max: int, bytes_max: int = 0, *, free: Callable[[], int] = _free) -> None:
        self._free = free
        self._files_max = files_max
        self._bytes_max = bytes_max
        self._by_room = not bytes_max
        self._used_bytes = 0
        self._files: list[_File] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    @property
    def crowded(self) -> bool:
        """True if more than half of the limit is taken."""
        return 2 * self._used_bytes > self._bytes_max > 0

    def take(self) -> _File:
        """Return a file for one more spill; raises LakeError if none can be created."""
        with self._lock:
            if len(self._files) < self._files_max:
                try:
                    self._bytes_max = self._bytes_max or self._free() // 2
                    self._files.append(_File())
                except OSError as error:
                    raise _no_room(error) from error
                file = self._files[-1]
            else:
                file = min(self._files, key=lambda f: f.users)
            file.users += 1
            return file

    def release(self, file: _File) -> None:
        """Close one spill of the file."""
        with self._lock:
            file.users -= 1
            if not file.users:
                self._used_bytes -= file.end
                self._files.remove(file)
                file.close()

    def grow(self, size: int, of_one: int) -> None:
        """Count `size` more bytes of a spill that will then have `of_one` bytes. Raises SpillLimitError."""
        with self._lock:
            if self._used_bytes + size > self._bytes_max:
                raise SpillLimitError(self._bytes_max, alone=of_one > self._bytes_max, by_room=self._by_room)
            self._used_bytes += size

    def truncate(self, file: _File, end: int) -> None:
        """Free the part of the file after `end`."""
        with self._lock:
            before = file.end
            file.truncate(end)
            self._used_bytes -= before - end


class Spill:
    """A run of bytes that grows at its end: pieces are written, and read by their offset in the run.

    `size` is the number of bytes written and not cut off.
    """

    def __init__(self, files: SpillFiles) -> None:
        self._files = files
        self._file: _File | None = files.take()
        # Extents: each one's offset in the run, and in the file. There is one as long as the file is not shared.
        self._offsets = array("Q")
        self._places = array("Q")
        self.size = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append a piece; raises LakeError if the disk is full, SpillLimitError beyond the limit."""
        file = self._opened()
        self._files.grow(len(data), self.size + len(data))
        try:
            place = file.append(data)
        except OSError as error:
            raise _no_room(error) from error
        if not self._places or self._places[-1] + (self.size - self._offsets[-1]) != place:
            self._offsets.append(self.size)
            self._places.append(place)
        self.size += len(data)

    def read(self, offset: int, size: int) -> bytes:
        """Read a piece as it was written; may run concurrently with `write`."""
        piece = bytearray(size)
        self.read_into(offset, memoryview(piece))
        return bytes(piece)

    def read_into(self, offset: int, room: memoryview) -> None:
        """Read a piece into the caller's memory, to its end."""
        extent = bisect_right(self._offsets, offset) - 1
        self._opened().read_into(self._places[extent] + offset - self._offsets[extent], room)

    def cut(self, size: int) -> None:
        """Drop what follows the first `size` bytes, a whole number of pieces; frees the disk if it is last in its file."""
        file = self._opened()
        while self.size > size:
            start = max(size, self._offsets[-1])
            place = self._places[-1] + start - self._offsets[-1]
            if place + self.size - start == file.end:
                with suppress(OSError):
                    self._files.truncate(file, place)
            if start == self._offsets[-1]:
                self._offsets.pop()
                self._places.pop()
            self.size = start

    def close(self) -> None:
        """Free the disk; may be called twice."""
        file, self._file = self._file, None
        if file is not None:
            self._files.release(file)

    def _opened(self) -> _File:
        if self._file is None:
            raise InvariantError("spill file", "it is used after its end", "report this")
        return self._file


def _no_room(error: OSError) -> LakeError:
    return disk_error(f"temporary folder {tempfile.gettempdir()}", "writing a waiting transaction to it", error)
