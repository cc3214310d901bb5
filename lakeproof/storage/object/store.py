"""The store in an object store (S3 and what speaks like it, Google's, Azure's): conditional puts in place of `link()`.

The keys and their meaning do not belong here, nor large files (`files.py`), locks (`lock.py`), and what is
tried before the first write (`probe.py`).

A put that was answered is durable and listed. A conditional put whose answer was lost, or that was refused, is followed by
reading the key: if it has these bytes, we wrote it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, BinaryIO, TypeVar

import obstore

from lakeproof.config.location import LakeLocation, ObjectPlace
from lakeproof.errors import LakeproofError
from lakeproof.storage.object.client import make_client, spark_url
from lakeproof.storage.object.errors import code_of, is_missing, is_refused_condition, passes, status_of, store_error
from lakeproof.storage.object.files import READ_AHEAD_BYTES, ObjectFile, RangedFile, as_binary
from lakeproof.storage.object.lock import LOCK_TIMES, LockTimes, ObjectLocks, Version
from lakeproof.storage.object.probe import Probed
from lakeproof.storage.object.requests import Requests
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

if TYPE_CHECKING:
    from obstore import ObjectMeta, PutMode
    from obstore.store import ObjectStore as Client

T = TypeVar("T")
# The answers to a range of an empty file, and of a listing.
_NO_RANGE = 416
_UNEXPLAINED = frozenset({301, 307, 400, 403})
_LIST_PAGE = 1000


class ObjectStore:
    """A `Store` below a prefix of a bucket. It sends nothing before it is used; several threads may use it.

    `requests.counts` has the requests that were sent, by kind.
    """

    def __init__(self, place: ObjectPlace, location: LakeLocation, lock_times: LockTimes = LOCK_TIMES) -> None:
        self.place = place
        self.location = location
        self.requests = Requests(location.storage.retry_s)
        self._clients: dict[bool, Client] = {}
        self._making = threading.Lock()
        self._bucket_seen = False
        self._probed = Probed(self)
        self._locks = ObjectLocks(self, lock_times)

    @property
    def writes_are_durable(self) -> bool:
        return True

    @property
    def holders_may_sleep(self) -> bool:
        return True

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        del durable, follows
        path = _path(key)
        self._probed.ensure()
        if self._write(path, data, None) is None:
            raise AlreadyExistsError(key)

    def put(self, key: str, data: bytes) -> None:
        path = _path(key)
        self._probed.ensure()
        self.put_raw(path, data)

    def get(self, key: str) -> bytes:
        path = _path(key)
        return self._send("get", path, lambda: bytes(obstore.get(self.client, path).bytes()))

    def exists(self, key: str) -> bool:
        return self.size_or_none(key) is not None

    def size(self, key: str) -> int:
        size = self.size_or_none(key)
        if size is None:
            raise NotFoundError(key)
        return size

    def size_or_none(self, key: str) -> int | None:
        """Return the number of stored bytes, None if there is nothing."""
        path = _path(key)
        try:
            return self._send("head", path, lambda: self._head(path))
        except NotFoundError:
            if not self._bucket_seen:
                # This answer has no body, so it does not distinguish a missing bucket from a missing key.
                self.folders(path.rpartition("/")[0])
            return None

    def folders(self, prefix: str) -> list[str]:
        path = _path(prefix)
        listed = self._send("list", path, lambda: obstore.list_with_delimiter(self.client, path or None))
        prefixes, objects = listed["common_prefixes"], listed["objects"]
        self._count_pages(len(prefixes) + len(objects))
        return sorted(name.rpartition("/")[2] for name in prefixes)

    def list(self, prefix: str, after: str = "") -> list[str]:
        listed = self._listed(prefix, after)
        return sorted(o["path"] for o in listed if not o["path"].rpartition("/")[2].startswith("."))

    def delete(self, key: str) -> None:
        path = _path(key)
        try:
            self._send("delete", path, lambda: obstore.delete(self.client, path))
        except NotFoundError:
            return

    def delete_all(self, prefix: str) -> None:
        for listed in self._listed(prefix):
            self.delete(listed["path"])

    def create(self, key: str, *, durable: bool = True) -> NewFile:
        del durable
        path = _path(key)
        self._probed.ensure()
        return ObjectFile(self, path)

    def link(self, source: str, target: str) -> bool:
        """Copy in the store: only one writer ever copies to a name, so nobody takes it between the look and the copy."""
        source, target = _path(source), _path(target)
        self._probed.ensure()
        if self.exists(target):
            raise AlreadyExistsError(target)
        self._send("copy", source, lambda: obstore.copy(self.client, source, target))
        return False

    def shared(self, key: str) -> SharedBytes | None:
        del key
        return None

    def checksum_key(self, key: str) -> str | None:
        del key
        return None

    def sync_files(self, keys: Iterable[str]) -> None:
        """Do nothing: a file that somebody has written is durable and listed."""

    def entries(self, prefix: str, after: str = "") -> Iterator[StoredFile]:
        # Hadoop puts an object of no bytes for a folder that it makes; the library shows it under the folder's name.
        files = (StoredFile(listed["path"], listed["size"]) for listed in self._listed(prefix, after))
        return (file for file in files if file.bytes > 0 or "." in file.key.rpartition("/")[2])

    def sync_names(self, keys: Iterable[str]) -> None:
        """Do nothing: a finished file is durable and listed."""

    def open(self, key: str) -> BinaryIO:
        path = _path(key)
        try:
            first, size = self._send("get", path, lambda: self._first_range(path))
        except NotFoundError:
            raise NotFoundError(key) from None

        def fetch(start: int, end: int) -> bytes:
            return self._send("get", path, lambda: bytes(obstore.get_range(self.client, path, start=start, end=end)))

        return as_binary(RangedFile(fetch, first, size))

    def url(self, key: str) -> str:
        path = _path(key)
        root = spark_url(self.place, self.location.storage)
        return f"{root}/{path}" if path else root

    def sweep(self, prefix: str, older_than_s: float) -> int:
        """Return 0: a put leaves nothing behind, and unfinished uploads can't be listed; the bucket's rule ends them."""
        del prefix, older_than_s
        return 0

    def lock(self, key: str, thing: str, reason: str) -> AbstractContextManager[LockHandle]:
        self._probed.ensure()
        return self._locks.lock(_path(key), thing, reason)

    def share_lock(self, key: str, wait_s: float) -> Lock | None:
        self._probed.ensure()
        return self._locks.share_lock(_path(key), wait_s)

    def is_locked(self, key: str) -> bool | None:
        return self._locks.is_locked(_path(key))

    def lock_holder(self, key: str) -> str | None:
        return self._locks.lock_holder(_path(key))

    # What files, locks and the probe need ---------------------------------------------------------

    @property
    def client(self) -> Client:
        """The client that sends each request once."""
        return self._client(repeats=False)

    @property
    def patient_client(self) -> Client:
        """A client that repeats failed requests itself, for the parts of large files."""
        return self._client(repeats=True)

    def thing(self, key: str) -> str:
        """Return the key's name in errors."""
        return f"{self.place}/{key}" if key else str(self.place)

    def put_raw(self, key: str, data: bytes) -> None:
        """Put without a look at the probe's record: for the probe, and the store's own keys."""
        self._send("put", key, lambda: obstore.put(self.client, key, data, use_multipart=False))

    def put_once(self, kind: str, key: str, data: bytes, mode: PutMode) -> Version:
        """Put conditionally, without any repetition; raises the library's errors."""
        result = self.requests.once(kind, lambda: obstore.put(self.client, key, data, mode=mode, use_multipart=False))
        return Version(data, result["e_tag"], result["version"])

    def read_version(self, key: str) -> Version | None:
        """Return the bytes with their version, None if there are none."""

        def read() -> Version:
            result = obstore.get(self.client, key)
            meta = result.meta
            return Version(bytes(result.bytes()), meta["e_tag"], meta["version"], meta["last_modified"])

        try:
            return self._send("get", key, read)
        except NotFoundError:
            return None

    def swap(self, key: str, data: bytes, before: Version | None) -> Version | None:
        """Replace the version `before` (None: nothing) by `data`; return the new version, None if it is another one."""
        return self._write(key, data, before)

    def written(self, prefix: str) -> dict[str, datetime]:
        """Return every key below the folder, also the store's own, with the time at which the store wrote it."""
        return {o["path"]: o["last_modified"] for o in self._listed(prefix)}

    def _client(self, *, repeats: bool) -> Client:
        with self._making:
            if repeats not in self._clients:
                self._clients[repeats] = make_client(self.place, self.location.storage, repeats=repeats)
            return self._clients[repeats]

    def _send(self, kind: str, key: str, call: Callable[[], T]) -> T:
        result = self.requests.send(kind, self.thing(key), key, call)
        self._bucket_seen = True
        return result

    def _listed(self, prefix: str, after: str = "") -> Sequence[ObjectMeta]:
        path, offset = _path(prefix), _path(after) or None
        listed = self._send("list", path, lambda: obstore.list(self.client, path or None, offset=offset).collect())
        self._count_pages(len(listed))
        return listed

    def _count_pages(self, entries: int) -> None:
        self.requests.count("list", max(0, (entries - 1) // _LIST_PAGE))

    def _head(self, path: str) -> int:
        """Return the size; an answer without a body does not say why a look-up was refused, so a read asks again."""
        try:
            return obstore.head(self.client, path)["size"]
        except Exception as error:  # broad: whatever the library raises is sorted by the caller
            if status_of(error) in _UNEXPLAINED and not code_of(error):
                self.requests.count("get")
                obstore.get(self.client, path, options={"range": (0, 1)}).bytes()
            raise

    def _first_range(self, path: str) -> tuple[bytes, int]:
        """Return the file's first bytes and its size, in one request unless it is empty."""
        try:
            result = obstore.get(self.client, path, options={"range": (0, READ_AHEAD_BYTES)})
            return bytes(result.bytes()), result.meta["size"]
        except Exception as error:  # broad: the library has no error of its own for this answer
            if status_of(error) == _NO_RANGE and self.size_or_none(path) == 0:
                return b"", 0
            raise

    def _write(self, key: str, data: bytes, before: Version | None) -> Version | None:
        """Put `data` if the key has the version `before` (None: nothing); None if something else is there.

        Whatever the store reports, what stands under the key decides: our bytes, others, or what was there before.
        """
        for pause in self.requests.pauses():
            try:
                kind, mode = ("create", "create") if before is None else ("swap", before.mode)
                version = self.put_once(kind, key, data, mode)
                self._bucket_seen = True
                if version.e_tag is not None or version.version is not None:
                    return version
                failure: Exception | None = None
            except LakeproofError:
                raise
            except Exception as error:  # broad: whatever the library raises is sorted here
                failure = error
                if is_missing(error) and before is not None:
                    return None
                if not is_refused_condition(error) and not passes(error):
                    raise store_error(error, self.thing(key), "writing it") from error
            there = self.read_version(key)
            if there is not None and there.data == data:
                return there
            before_now = None if before is None else before.data
            if (None if there is None else there.data) != before_now:
                return None
            # It is as it was: the request never arrived, or the key was taken only for a moment.
            if not pause():
                raise store_error(failure or OSError("nothing was written"), self.thing(key), "writing it")
        raise AssertionError("there is no end of pauses")


def _path(key: str) -> str:
    return "/".join(key_parts(key))
