"""The store in a local folder: whatever is put survives a power cut once the call has returned.

A put writes a temporary file in the key's own folder, syncs it, gives it its name with `link()` (which, unlike a rename,
fails if the name is taken) or `rename()`, and syncs the folder. The first time that this process writes into a folder, it
syncs the folder and those above it up to the mount point: the process that created them may have died before that.

The answer of `link()` may be wrong: over NFS it may have given the name and still report that the name is taken, if the
first answer was lost on its way. So if it reports a failure, the file under the name decides: if it has these bytes, we
wrote it.
"""

from __future__ import annotations

import filecmp
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from lakeproof.config.location import SUPPORTED, LakeLocation
from lakeproof.errors import ConfigError, LakeError
from lakeproof.storage import locks
from lakeproof.storage.local_files import (
    TEMPORARY,
    checksum_file,
    entries_of,
    files_below,
    link_file,
    shared_bytes,
    sync,
    sync_all,
)
from lakeproof.storage.store import (
    AlreadyExistsError,
    Lock,
    LockHandle,
    NewFile,
    NotFoundError,
    SharedBytes,
    StoredFile,
    key_parts,
)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_WRITING = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
# Parquet writes many small pieces; without a buffer of this size each would be a system call.
_BUFFER_BYTES = 1 << 20


class LocalFile:
    """A `NewFile` written in place under its final name: invisible until a document or a commit names it."""

    def __init__(self, path: Path, key: str, *, durable: bool) -> None:
        self.key = key
        self._durable = durable
        self._path = path
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._file: BinaryIO | None = path.open("xb", buffering=_BUFFER_BYTES)

    @property
    def bytes_written(self) -> int:
        return self._bytes

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def closed(self) -> bool:
        return self._file is None

    def write(self, data: bytes) -> int:
        if self._file is None:
            raise ValueError(f"{self.key} is finished")
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self._file.write(view)
        self._bytes += len(view)
        return len(view)

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def finish(self) -> None:
        if self._file is None:
            return
        self._file.flush()
        if self._durable:
            # Its bytes may become those of tables: nobody writes them again.
            os.fchmod(self._file.fileno(), stat.S_IMODE(os.fstat(self._file.fileno()).st_mode) & ~_WRITING)
            os.fsync(self._file.fileno())
        self._file.close()
        self._file = None

    def abandon(self) -> None:
        self._path.unlink(missing_ok=True)
        if self._file is not None:
            # Closing would first write the rest of the buffer, on a disk that may be full.
            with suppress(OSError):
                self._file.close()
            self._file = None


class KernelLock:
    """A `LockHandle` that ends with its process, and not before."""

    def check(self) -> None:
        """Do nothing."""


class LocalStore:
    """A `Store` below one folder, which the first put creates."""

    def __init__(self, root: Path, location: LakeLocation | None = None) -> None:
        self.root = root
        self.location = location or LakeLocation(str(root))
        self._synced: set[Path] = set()
        self._has_root = False

    @property
    def writes_are_durable(self) -> bool:
        return False

    @property
    def holders_may_sleep(self) -> bool:
        return False

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        if follows is not None and not self.exists(follows):
            raise NotFoundError(follows)
        path = self._path(key)
        temporary = self._write_temporary(path, data, durable=durable)
        try:
            _link(temporary, path, key)
        except PermissionError as error:
            raise LakeError(
                str(self.root),
                f"its file system refuses hard links ({error.strerror}), which decide who writes a name first",
                "put the lake on a local file system with hard links",
            ) from error
        finally:
            _discard(temporary)
        if durable:
            sync(path.parent)

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        temporary = self._write_temporary(path, data)
        try:
            temporary.replace(path)
        except OSError:
            _discard(temporary)
            raise
        sync(path.parent)

    def get(self, key: str) -> bytes:
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFoundError(key) from None

    def exists(self, key: str) -> bool:
        return self._path(key).is_file()

    def size(self, key: str) -> int:
        try:
            return self._path(key).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise NotFoundError(key) from None

    def folders(self, prefix: str) -> list[str]:
        return sorted(e.name for e in entries_of(self._path(prefix)) if e.is_dir())

    def delete(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)

    def delete_all(self, prefix: str) -> None:
        shutil.rmtree(self._path(prefix), ignore_errors=True)

    def create(self, key: str, *, durable: bool = True) -> NewFile:
        path = self._path(key)
        self._make_folder(path.parent, durable=durable)
        try:
            return LocalFile(path, key, durable=durable)
        except FileExistsError:
            raise AlreadyExistsError(key) from None

    def link(self, source: str, target: str) -> bool:
        return link_file(self._path(source), self._path(target), (source, target))

    def shared(self, key: str) -> SharedBytes | None:
        return shared_bytes(self._path(key))

    def checksum_key(self, key: str) -> str | None:
        return checksum_file(key)

    def sync_files(self, keys: Iterable[str]) -> None:
        sync_all(self.root, [(key, self._path(key)) for key in keys])

    def entries(self, prefix: str, after: str = "") -> Iterator[StoredFile]:
        for key, entry in files_below(self._path(prefix), prefix.strip("/")):
            # Somebody may have removed it meanwhile.
            with suppress(FileNotFoundError):
                if key > after or entry.name.startswith("."):
                    yield StoredFile(key, entry.stat().st_size)

    def sync_names(self, keys: Iterable[str]) -> None:
        for folder in {self._path(key).parent for key in keys}:
            sync(folder)

    def open(self, key: str) -> BinaryIO:
        try:
            return self._path(key).open("rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise NotFoundError(key) from None

    def url(self, key: str) -> str:
        return str(self._path(key))

    def sweep(self, prefix: str, older_than_s: float) -> int:
        folder = self._path(prefix)
        limit = time.time() - older_than_s
        swept = 0
        for entry in entries_of(folder):
            # A put that has ended meanwhile has taken its file away.
            with suppress(FileNotFoundError):
                if entry.name.startswith(TEMPORARY) and entry.stat().st_mtime < limit:
                    (folder / entry.name).unlink()
                    swept += 1
        return swept

    @contextmanager
    def lock(self, key: str, thing: str, reason: str) -> Iterator[LockHandle]:
        self._make_root()
        with locks.exclusive(self._path(key), thing, reason):
            yield KernelLock()

    def share_lock(self, key: str, wait_s: float) -> Lock | None:
        self._make_root()
        return locks.hold_shared(self._path(key), wait_s)

    def is_locked(self, key: str) -> bool | None:
        try:
            return locks.is_locked(self._path(key))
        except OSError:
            return None

    def lock_holder(self, key: str) -> str | None:
        return locks.holder(self._path(key))

    def _path(self, key: str) -> Path:
        return self.root.joinpath(*key_parts(key))

    def _write_temporary(self, path: Path, data: bytes, *, durable: bool = True) -> Path:
        self._make_folder(path.parent, durable=durable)
        temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
        except OSError:
            _discard(temporary)
            raise
        return temporary

    def _make_folder(self, folder: Path, *, durable: bool) -> None:
        if not durable:
            self._make_root()
            folder.mkdir(parents=True, exist_ok=True)
            return
        if folder in self._synced:
            if folder.is_dir():
                return
            self._synced.clear()
        self._make_root()
        folder.mkdir(parents=True, exist_ok=True)
        if self.root not in self._synced:
            for above in _above(self.root):
                sync(above)
            self._synced.add(self.root)
        # From the top: a recorded folder was synced with all folders above it, even if a later one fails.
        for part in [*reversed(folder.relative_to(self.root).parents), folder.relative_to(self.root)][1:]:
            below = self.root / part
            if below not in self._synced:
                sync(below.parent)
                self._synced.add(below)

    def _make_root(self) -> None:
        """Create the lake's folder for this user alone if it is missing; an existing one keeps its mode."""
        if not self.root.is_dir():
            if self._has_root:
                reason = "its folder is gone since this process began: it was moved away, or its volume is not mounted"
                raise LakeError(str(self.root), reason, "bring it back, or configure its new place; then start again")
            self.root.parent.mkdir(parents=True, exist_ok=True)
            self.root.mkdir(mode=0o700, exist_ok=True)
        self._has_root = True

    def list(self, prefix: str, after: str = "") -> list[str]:
        files = files_below(self._path(prefix), prefix.strip("/"))
        return sorted(key for key, entry in files if key > after and not entry.name.startswith("."))


def local_folder(lake: str | Path) -> Path:
    """Return the absolute folder that `lake` names; raise ConfigError for any other scheme than file."""
    text = str(lake)
    match = _SCHEME.match(text)
    if match is None:
        if not text:
            raise ConfigError("lake", "the place of the lake is empty", f"give {SUPPORTED}")
        return Path(text).expanduser().absolute()
    parts = urlsplit(text)
    if match[1].lower() != "file":
        raise ConfigError("lake", f"the URL scheme {match[1]!r} is not supported", f"give {SUPPORTED}")
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError("lake", "the file URL does not name an absolute local folder", "write file:///path/to/lake")
    return Path(unquote(parts.path))


def _above(folder: Path) -> list[Path]:
    """Return the folders above `folder`, which hold its name and theirs, up to the mount point or an unreadable one.

    The process that created them may have died before it synced their names.
    """
    above: list[Path] = []
    while not os.path.ismount(folder) and os.access(folder.parent, os.R_OK):
        folder = folder.parent
        above.append(folder)
    return above[::-1]


def _link(source: Path, path: Path, key: str) -> None:
    """Give the file a second name; raise AlreadyExistsError if something else has it, and as `os.link`."""
    try:
        os.link(source, path)
    except OSError as error:
        if _has_same_bytes(source, path):
            return
        if isinstance(error, FileExistsError):
            raise AlreadyExistsError(key) from None
        raise


def _has_same_bytes(source: Path, path: Path) -> bool:
    """True if the file `path` has the bytes of `source`."""
    try:
        return path.samefile(source) or filecmp.cmp(source, path, shallow=False)
    except OSError:
        return False


def _discard(temporary: Path) -> None:
    """Remove the file if possible: only the put's own result matters, and `sweep` finds what is left."""
    with suppress(OSError):
        temporary.unlink()
