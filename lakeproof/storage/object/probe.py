"""Tries an object store before the first write to a lake: permissions, conditions, and two writers at the same moment.

Requests do not belong here (`store.py`). The lake records that it was tried, and at which place: one look at the
record for each process, one trial for each lake.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from lakeproof.errors import LakeError, TransientError
from lakeproof.storage.document import Document
from lakeproof.storage.object.errors import is_missing, is_refused_condition, passes, store_error
from lakeproof.storage.times import now_text

if TYPE_CHECKING:
    from obstore import PutMode

    from lakeproof.storage.object.lock import Version
    from lakeproof.storage.object.store import ObjectStore

T = TypeVar("T")
WRITERS = 8
CREATE_ROUNDS = 6
SWAP_ROUNDS = 3
_ATTEMPTS = 3
RECORD = ".store.json"
_FOLDER = ".probe"
_REMEDY = (
    "keep the lake in a store with conditional writes (`If-None-Match` and `If-Match` of PutObject), or in a folder"
)


@dataclass(frozen=True, slots=True)
class StoreDoc(Document):
    """The record that a place was tried."""

    FORMAT = "lakeproof.store/1"
    REMEDY = "delete it: the store is tried again"

    place: str
    probed_at: str


class Probed:
    """Makes sure that a store was tried before the first write of this process."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._done = False
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Try the store unless the lake records that it was; raises DefiniteError for what a person must change."""
        if self._done:
            return
        with self._lock:
            if not self._done:
                self._look()
                self._done = True

    def _look(self) -> None:
        place = f"{self._store.location.storage.endpoint or ''} {self._store.place}".strip()
        record = self._store.read_version(RECORD)
        if record is None or StoreDoc.from_bytes(record.data, self._store.thing(RECORD)).place != place:
            _Probe(self._store).run()
            self._store.put_raw(RECORD, StoreDoc(place, now_text()).to_bytes())


class _Probe:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folder = f"{_FOLDER}/{secrets.token_hex(8)}"
        self._thing = store.thing("")

    def run(self) -> None:
        self._store.written(self._folder)
        key = f"{self._folder}/.permissions"
        self._store.put_raw(key, b"1")
        try:
            self._store.read_version(key)
        finally:
            # Also tried if reading was refused: nothing should stay.
            self._store.delete(key)
        try:
            self._check_conditions()
            for kind, rounds in (("create", CREATE_ROUNDS), ("swap", SWAP_ROUNDS)):
                self._race_in_rounds(kind, rounds)
        finally:
            for leftover in self._store.written(self._folder):
                self._store.delete(leftover)

    def _check_conditions(self) -> None:
        """One writer after the other: what is there is not created again, and an old version is not replaced."""
        key = f"{self._folder}/.conditions"
        first = self._patiently(lambda: self._put("create", key, b"1", "create"))
        if first is None:
            raise self._busy()
        if self._patiently(lambda: self._put("create", key, b"2", "create")) is not None:
            raise self._refusal("it creates a key that is there already: it ignores the condition of a put")
        mode = first.mode
        if self._patiently(lambda: self._put("swap", key, b"3", mode)) is None:
            raise self._refusal("it does not replace the version that a put names")
        if self._patiently(lambda: self._put("swap", key, b"4", mode)) is not None:
            raise self._refusal("it replaces another version than a put names: it ignores the condition")

    def _race_in_rounds(self, kind: str, rounds: int) -> None:
        """Race until so many rounds had a winner: a round whose winner's answer was lost proves nothing."""
        proved = 0
        for number in range(_ATTEMPTS * rounds):
            proved += self._race(kind, f"{self._folder}/.{kind}-{number}")
            if proved == rounds:
                return
        raise self._busy()

    def _race(self, kind: str, key: str) -> bool:
        """Let several write one key at the same moment; True if one of them had the answer that it won."""
        mode: PutMode = "create"
        if kind == "swap":
            first = self._patiently(lambda: self._put("create", key, b"first", "create"))
            if first is None:
                raise self._busy()
            mode = first.mode
        together = threading.Barrier(WRITERS)

        def write(number: int) -> bool | None:
            together.wait()
            try:
                return self._put(kind, key, f"writer {number}".encode(), mode) is not None
            except Exception as error:  # broad: whatever the library raises is sorted here
                if passes(error):
                    # Perhaps it was done: it counts as neither.
                    return None
                raise store_error(error, self._thing, f"trying a conditional put ({kind})") from error

        with ThreadPoolExecutor(WRITERS) as pool:
            results = list(pool.map(write, range(WRITERS)))
        winners = [number for number, result in enumerate(results) if result]
        if len(winners) > 1:
            raise self._refusal(
                f"{len(winners)} of {WRITERS} writers of one key at the same moment were answered that it is theirs"
            )
        there = self._store.read_version(key)
        if winners and (there is None or there.data != f"writer {winners[0]}".encode()):
            raise self._refusal("one writer was answered that a key is its own, and another's bytes are there")
        if not winners and None not in results:
            raise self._refusal("of several writers of one key at the same moment it accepted none")
        return bool(winners)

    def _put(self, kind: str, key: str, data: bytes, mode: PutMode) -> Version | None:
        """Return the new version, None if the condition was refused; raises the library's other errors."""
        try:
            return self._store.put_once(kind, key, data, mode)
        except Exception as error:
            if is_refused_condition(error) or is_missing(error):
                return None
            raise

    def _patiently(self, call: Callable[[], T]) -> T:
        """Call; an answer that was lost makes the whole trial one to begin again."""
        try:
            return call()
        except Exception as error:  # broad: whatever the library raises is sorted here
            raise store_error(error, self._thing, "trying a conditional put") from error

    def _busy(self) -> TransientError:
        return TransientError(self._thing, "the store was busy while it was tried", "try again")

    def _refusal(self, reason: str) -> LakeError:
        return LakeError(self._thing, f"{reason}. Two writers could both believe that they write the lake", _REMEDY)
