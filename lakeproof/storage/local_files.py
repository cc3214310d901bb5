"""Files of a local folder that others write too, Spark above all: linked, listed with their sizes, and synced."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from lakeproof.failpoints import failpoint
from lakeproof.storage.store import AlreadyExistsError, NotFoundError, SharedBytes

# The errors of `link()` after which a copy is as good: another file system, or one without links, or too many of them.
_CANT_LINK = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
TEMPORARY = ".lp-"


def link_file(source: Path, target: Path, keys: tuple[str, str]) -> bool:
    """Give a file a second name, or copy it durably; as `Store.link`, whose `keys` are named in errors."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        raise AlreadyExistsError(keys[1]) from None
    except FileNotFoundError:
        raise NotFoundError(keys[0]) from None
    except OSError as error:
        if error.errno not in _CANT_LINK:
            raise
        _copy(source, target, keys[1])
        return False
    return True


def _copy(source: Path, target: Path, key: str) -> None:
    """Copy the file, durably: under the name it is whole or not there."""
    if target.exists():
        raise AlreadyExistsError(key)
    temporary = target.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        shutil.copyfile(source, temporary)
        sync(temporary)
        failpoint("links.after_copy")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def shared_bytes(file: Path) -> SharedBytes | None:
    """Return the inode of a file that has several names; as `Store.shared`."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return SharedBytes((status.st_dev, status.st_ino), status.st_nlink) if status.st_nlink > 1 else None


def checksum_file(key: str) -> str:
    """Return the key of Hadoop's checksums of a file, which stand beside it."""
    folder, _, name = key.rpartition("/")
    return f"{folder}/.{name}.crc" if folder else f".{name}.crc"


def files_below(folder: Path, key: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every file below a folder that has the key, by its own key."""
    waiting = [(os.fspath(folder), f"{key}/" if key else "")]
    while waiting:
        place, before = waiting.pop()
        for entry in entries_of(place):
            if not entry.is_dir():
                yield f"{before}{entry.name}", entry
            elif not entry.is_symlink():
                # What a link leads to is not below the folder.
                waiting.append((entry.path, f"{before}{entry.name}/"))


def entries_of(place: str | Path) -> list[os.DirEntry[str]]:
    """Return what a folder has, nothing if there is none."""
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def sync_all(root: Path, files: Iterable[tuple[str, Path]]) -> None:
    """Sync files by their keys, each with its checksums, then folders up to `root`; as `Store.sync_files`.

    The deepest folder comes first: a name is useless before the file that it names is durable.
    """
    folders: set[Path] = set()
    for key, file in files:
        try:
            sync(file)
        except FileNotFoundError:
            raise NotFoundError(key) from None
        beside = file.with_name(f".{file.name}.crc")
        if beside.exists():
            sync(beside)
        folders.add(file.parent)
    up = {p for folder in folders for p in (folder, *folder.parents) if p == root or root in p.parents}
    for folder in sorted(up, key=lambda p: (-len(p.parts), p)):
        sync(folder)


def sync(place: Path) -> None:
    """Make a file's contents, or a folder's names, durable."""
    descriptor = os.open(place, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
