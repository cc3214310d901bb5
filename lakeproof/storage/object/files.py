"""Large files of an object store: written in parts with bounded memory, and read in ranges with a bounded read-ahead.

A file stays in memory up to `PART_BYTES` and is then put at once, conditionally. A larger one is uploaded in parts, of which
`UPLOADS` are on their way. All files that are open keep at most `MEMORY_BYTES_MAX`; one that would need more goes on in a
temporary file on this machine's disk, and is uploaded when it is finished, one such file at a time.
"""

from __future__ import annotations

import errno
import hashlib
import io
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

import obstore

from lakeproof.errors import LakeproofError
from lakeproof.storage.object.errors import store_error
from lakeproof.storage.store import AlreadyExistsError

if TYPE_CHECKING:
    from obstore import WritableFile

    from lakeproof.storage.object.store import ObjectStore

# S3 takes 10,000 parts of a file, so a file has at most 80 GB.
PART_BYTES = 8 << 20
UPLOADS = 2
MEMORY_BYTES_MAX = 256 << 20
READ_AHEAD_BYTES = 1 << 20
READ_AHEAD_BYTES_MAX = 8 << 20


class UploadMemory:
    """The parts that all unfinished files of this process keep in memory."""

    def __init__(self, parts: int) -> None:
        self._left = parts
        self._lock = threading.Lock()

    def take(self, parts: int) -> bool:
        """Reserve so many parts; False if there is no room."""
        with self._lock:
            if self._left < parts:
                return False
            self._left -= parts
            return True

    def give(self, parts: int) -> None:
        """Give back what was reserved."""
        with self._lock:
            self._left += parts


MEMORY = UploadMemory(MEMORY_BYTES_MAX // PART_BYTES)
# A file that was on disk is read and uploaded with two parts more in memory.
_one_from_disk = threading.Lock()


class ObjectFile:
    """A `NewFile` of an object store: nothing has its name before it is finished."""

    def __init__(self, store: ObjectStore, key: str, memory: UploadMemory = MEMORY) -> None:
        self.key = key
        self._store = store
        self._memory = memory
        self._reserved = 0
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._buffer = bytearray()
        self._upload: WritableFile | None = None
        self._spool: IO[bytes] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    @property
    def bytes_written(self) -> int:
        return self._bytes

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def closed(self) -> bool:
        return self._closed

    def write(self, data: bytes) -> int:
        """Append; raises the first failure of an upload once, then takes and drops what a writer still flushes."""
        if self._closed:
            raise ValueError(f"{self.key} is finished")
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self._bytes += len(view)
        if self._failure is None:
            try:
                self._append(view)
            except BaseException as error:
                self._failure = error
                raise
        return len(view)

    def flush(self) -> None:
        """Do nothing: a part is sent when it is full."""

    def finish(self) -> None:
        if self._closed:
            return
        if self._failure is not None:
            raise self._failure
        if self._upload is not None:
            self._complete(self._upload.close)
            self._store.requests.count("part", -(-self._bytes // PART_BYTES))
        elif self._spool is not None:
            self._send_spool(self._spool)
        else:
            self._store.put_if_absent(self.key, bytes(self._buffer))
        self._closed = True
        self._let_go()

    def abandon(self) -> None:
        finished, self._closed = self._closed, True
        if finished:
            # What can't be removed now is no manifest's: the sweep finds it.
            with suppress(LakeproofError):
                self._store.delete(self.key)
        elif self._upload is not None:
            with suppress(Exception):  # broad: what can't be aborted is the lifecycle rule's
                # Only leaving the block by an error aborts an upload.
                self._upload.__exit__(InterruptedError, InterruptedError(), None)
        self._let_go()

    def _append(self, view: memoryview) -> None:
        if self._upload is None and self._spool is None:
            if not self._reserved and not self._reserve(1):
                self._spool = tempfile.TemporaryFile()  # noqa: SIM115  closed when the file is finished or abandoned
            elif len(self._buffer) + len(view) > PART_BYTES:
                self._outgrow()
        if self._spool is not None:
            self._spool.write(view)
        elif self._upload is not None:
            for start in range(0, len(view), PART_BYTES):
                self._send_part(view[start : start + PART_BYTES])
        else:
            self._buffer += view

    def _outgrow(self) -> None:
        """Go on as an upload, or on disk if that would take too much memory."""
        if self._reserve(UPLOADS):
            self._check_absent()
            self._store.requests.count("multipart")
            self._upload = obstore.open_writer(
                self._store.patient_client, self.key, buffer_size=PART_BYTES, max_concurrency=UPLOADS
            )
            self._send_part(memoryview(self._buffer))
        else:
            self._spool = tempfile.TemporaryFile()  # noqa: SIM115  closed when the file is finished or abandoned
            self._spool.write(self._buffer)
            self._memory.give(self._reserved)
            self._reserved = 0
        self._buffer = bytearray()

    def _reserve(self, parts: int) -> bool:
        taken = self._memory.take(parts)
        self._reserved += parts if taken else 0
        return taken

    def _check_absent(self) -> None:
        if self._store.size_or_none(self.key) is not None:
            raise AlreadyExistsError(self.key)

    def _send_part(self, view: memoryview) -> None:
        if self._upload is not None and len(view):
            try:
                self._upload.write(bytes(view))
            except Exception as error:  # broad: whatever the library raises is sorted here
                raise store_error(error, self._store.thing(self.key), "writing a part of it") from error

    def _complete(self, call: Callable[[], object]) -> None:
        """Complete the upload; if its answer was lost, the file under the name decides."""
        self._store.requests.count("complete")
        try:
            call()
        except Exception as error:  # broad: whatever the library raises is sorted here
            if self._store.size_or_none(self.key) != self._bytes:
                raise store_error(error, self._store.thing(self.key), "completing it") from error

    def _send_spool(self, spool: IO[bytes]) -> None:
        spool.seek(0)
        if self._bytes <= PART_BYTES:
            self._store.put_if_absent(self.key, spool.read())
            return
        self._check_absent()
        self._store.requests.count("multipart")
        with _one_from_disk:
            self._complete(
                lambda: obstore.put(
                    self._store.patient_client,
                    self.key,
                    spool,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=1,
                )
            )
        self._store.requests.count("part", -(-self._bytes // PART_BYTES))

    def _let_go(self) -> None:
        self._memory.give(self._reserved)
        self._reserved = 0
        self._buffer = bytearray()
        self._upload = None
        if self._spool is not None:
            self._spool.close()
            self._spool = None


class RangedFile(io.RawIOBase):
    """A file opened for reading: `fetch(start, end)` gives a range; `first` are its first bytes, `size` its length.

    What is read in order is fetched in ranges that double, up to `READ_AHEAD_BYTES_MAX`; after a jump they are small again.
    """

    def __init__(self, fetch: Callable[[int, int], bytes], first: bytes, size: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._size = size
        self._window, self._start = first, 0
        self._ahead = READ_AHEAD_BYTES
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any, /) -> int:
        """Fill the buffer, but for the file's end."""
        target = memoryview(buffer).cast("B")
        length_left = max(0, min(len(target), self._size - self._position))
        done = 0
        while done < length_left:
            if not self._start <= self._position < self._start + len(self._window):
                self._read_on(length_left - done)
            piece = memoryview(self._window)[self._position - self._start :][: length_left - done]
            target[done : done + len(piece)] = piece
            done += len(piece)
            self._position += len(piece)
        return done

    def readall(self) -> bytes:
        """Return the rest of the file."""
        return self.read(max(0, self._size - self._position)) or b""

    def _read_on(self, length_left: int) -> None:
        in_order = self._position == self._start + len(self._window)
        self._ahead = min(READ_AHEAD_BYTES_MAX, 2 * self._ahead) if in_order else READ_AHEAD_BYTES
        # A large read is one request, in pieces of the same limit.
        length = min(max(length_left, self._ahead), READ_AHEAD_BYTES_MAX)
        end = min(self._size, self._position + length)
        self._window, self._start = self._fetch(self._position, end), self._position
        if len(self._window) != end - self._start:
            # With a number: an error of Arrow's has none, and is taken for damage of the file.
            raise OSError(errno.EIO, f"a range of {end - self._start} bytes came with {len(self._window)}")


def as_binary(file: RangedFile) -> BinaryIO:
    """Return the file under the type that readers take."""
    return cast(BinaryIO, file)
