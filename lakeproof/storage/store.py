"""The small interface through which manifests, cycle documents and landing files become durable.

Implementations do not belong here (`local.py`, `object/store.py`), nor do paths (`paths.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from lakeproof.config.location import LakeLocation
from lakeproof.errors import LakeError, TransientError


class AlreadyExistsError(Exception):
    """A `put_if_absent` or `create` met something else under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NotFoundError(Exception):
    """Nothing is stored under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NewFile(Protocol):
    """A large file on its way into a store: a binary file object that counts and digests what is written.

    After `finish` its contents are durable; its name is durable after `Store.sync_names` with its key.
    """

    key: str

    @property
    def bytes_written(self) -> int:
        """Bytes so far."""

    @property
    def sha256(self) -> str:
        """64 hexadecimal digits over the bytes so far."""

    @property
    def closed(self) -> bool:
        """True after `finish` or `abandon`."""

    def write(self, data: bytes) -> int:
        """Append `data` and return the number of bytes."""

    def flush(self) -> None:
        """Write the buffer of this process to the file."""

    def finish(self) -> None:
        """Make the contents durable and close the file."""

    def abandon(self) -> None:
        """Close and remove the file; may be called at any time, also after `finish`."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file: its key, and its bytes."""

    key: str
    bytes: int


@dataclass(frozen=True, slots=True)
class SharedBytes:
    """Bytes on a disk that several names share: `identity` is the same for each of them, `names` is their number."""

    identity: tuple[int, ...]
    names: int


class Lock(Protocol):
    """A lock that this process holds, at the longest until it ends."""

    def release(self) -> None:
        """Give the lock back; once is enough, and more is no error."""


class LockHandle(Protocol):
    """A lock that a block holds alone."""

    def check(self) -> None:
        """Raise TransientError if another process may hold the lock by now; a store that knows better does nothing."""


class Store(Protocol):
    """Bytes under keys (`a/b/c`, relative to the lake). A put is durable when the method returns.

    Keys whose last part begins with a dot are the store's own, or Hadoop's, and never listed.

    `writes_are_durable`: what anybody has written is durable, with its name, when the writing has returned; so nobody needs
    `sync_files` or `sync_names`.

    A lock's key has no other use, and `exists` once the lock was taken. A lock lets a newcomer wait for a living process, or
    shows that one lives; it is no fence. What must not be written twice is put if absent, under a number or with something
    of the writer's. So has the name of a large file: two writers never create the same.
    """

    location: LakeLocation

    @property
    def writes_are_durable(self) -> bool:
        """True if there is nothing to sync."""

    @property
    def holders_may_sleep(self) -> bool:
        """True if a process can live on when another one has taken over its lock; then no number may be used again."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        """Store `data` completely or not at all; raise AlreadyExistsError if the key has something else.

        Without `durable` a power cut may leave less, as long as there was no `sync_files`. In a folder, which somebody may
        move away, raise NotFoundError unless the key `follows` is there.

        If the key has these very bytes, that is success: a store may have done it and lost the answer. So a document
        that only one writer may put contains something of that writer's.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing the old bytes in one step."""

    def get(self, key: str) -> bytes:
        """Return the stored bytes; raise NotFoundError."""

    def exists(self, key: str) -> bool:
        """True if something is stored under the key."""

    def size(self, key: str) -> int:
        """Return the number of stored bytes; raise NotFoundError."""

    def folders(self, prefix: str) -> list[str]:
        """Return the names (not keys) of the folders right below `prefix`, sorted."""

    def delete(self, key: str) -> None:
        """Remove the key; a missing key is no error."""

    def delete_all(self, prefix: str) -> None:
        """Remove every file below the folder `prefix`, and the folder; not durably."""

    def create(self, key: str, *, durable: bool = True) -> NewFile:
        """Begin a large file; raise AlreadyExistsError, now or when it is finished, if the key is taken.

        Without `durable` it is so only after `sync_files`, unless the store's writes are.
        """

    def link(self, source: str, target: str) -> bool:
        """Give the bytes of one key a second one, complete or not at all; True if both share them, False for a copy.

        A source of any size, and it is not read by this process. Raises NotFoundError without a source, AlreadyExistsError
        if the target is taken, by these bytes or others.
        """

    def shared(self, key: str) -> SharedBytes | None:
        """Return the identity of bytes that several names share, None if no other name has them, or if there is no file."""

    def checksum_key(self, key: str) -> str | None:
        """Return the key of the checksums with which Hadoop compares a file as it reads it, None if the store compares."""

    def sync_files(self, keys: Iterable[str]) -> None:
        """Make files durable that others have written, in this order, then their names and those of the folders above.

        Raises NotFoundError at the first that is missing.
        """

    def sync_names(self, keys: Iterable[str]) -> None:
        """Make the names of finished files durable, all at once."""

    def open(self, key: str) -> BinaryIO:
        """Open for reading with seek; raise NotFoundError. The caller closes it."""

    def url(self, key: str) -> str:
        """Return the absolute path or URL under which Spark finds the key; everything else asks `open`."""

    def sweep(self, prefix: str, older_than_s: float) -> int:
        """Remove the leftovers of interrupted puts right below `prefix`, if that old; return their number."""

    def list(self, prefix: str, after: str = "") -> list[str]:
        """Return every key below the folder `prefix` that sorts after the key `after`, sorted; empty if there is none."""

    def entries(self, prefix: str, after: str = "") -> Iterator[StoredFile]:
        """Yield every file below the folder `prefix` whose key sorts after `after`, in any order.

        Those that are not listed come too; those in a local folder do wherever they sort.
        """

    def lock(self, key: str, thing: str, reason: str) -> AbstractContextManager[LockHandle]:
        """Hold the lock `key` alone for the block.

        Raises TransientError about `thing`, for `reason` and naming the holder, if another process holds it. It is free when
        the block has ended, and soon after the process has, however it ended.
        """

    def share_lock(self, key: str, wait_s: float) -> Lock | None:
        """Hold the lock `key` together with whoever else shares it; None if somebody holds it alone for `wait_s` seconds."""

    def is_locked(self, key: str) -> bool | None:
        """True if a process holds the lock, alone or shared; False if nobody does; None if that can't be known."""

    def lock_holder(self, key: str) -> str | None:
        """Return the process that holds the lock alone, or was the last one to, in words for messages; None if unknown."""


def key_parts(key: str) -> list[str]:
    """Return a key's parts; raises ValueError for one that would lead elsewhere."""
    parts = [part for part in key.split("/") if part]
    if any(part in (".", "..") or "\0" in part for part in parts):
        raise ValueError(f"not a key: {key[:80]!r}")
    return parts


def reason_with_holder(reason: str, holder: str | None) -> str:
    """Return the reason for which a lock can't be had, with the process that holds it alone, if one does."""
    return reason if holder is None else f"{reason}: {holder}"


def refuse_if_locked(store: Store, key: str, thing: str, reason: str) -> None:
    """Raise TransientError as `Store.lock` would by now: before work is begun that would only have to wait."""
    if store.is_locked(key):
        reason = reason_with_holder(reason, store.lock_holder(key))
        raise TransientError(thing, reason, "wait until it has ended, then try again")


def put_new(store: Store, key: str, data: bytes, thing: str) -> None:
    """Put a document, durably; raises TransientError about `thing` if another process has put it."""
    try:
        store.put_if_absent(key, data)
    except AlreadyExistsError:
        raise TransientError(thing, "another process has written it", "nothing is lost; try again") from None


def number_in(key: str) -> int:
    """Return the number that a document is named by; raises LakeError for a foreign file."""
    name = key.rpartition("/")[2].removesuffix(".json")
    if not name.isdecimal():
        raise LakeError(key, "its name is not a number", "move the file away")
    return int(name)


def get_or_none(store: Store, key: str) -> bytes | None:
    """Return the stored bytes, None if nothing is stored under the key."""
    try:
        return store.get(key)
    except NotFoundError:
        return None
