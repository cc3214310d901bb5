"""Locks on an object store: a document that is taken and renewed by compare-and-swap, and expires if nobody renews it.

A lock decides who waits, and is no fence: see `Store`.

The age of a lock is measured by the store's own clock: when it wrote the document, against when it writes a small object
now. Machines' clocks are never compared; this process's own only measures how long ago its last renewal was.

    alone:   swap the document, then look for shared holders        shared:  put a holder's object, then look at the document

Each writes before it looks, so of two that come at the same moment at least one sees the other.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from lakeproof.errors import LakeproofError, TransientError
from lakeproof.storage.document import Document
from lakeproof.storage.store import Lock, reason_with_holder
from lakeproof.storage.times import now_text

if TYPE_CHECKING:
    from obstore import PutMode

    from lakeproof.storage.object.store import ObjectStore

_RENEW_AGAIN_S = 2.0
_RETRY_S = 0.2
_CLOCK = ".clock"
_log = logging.getLogger("lakeproof.storage")


@dataclass(frozen=True, slots=True)
class LockTimes:
    """How long a lock lives without a renewal, and how often its holder renews it.

    A lock whose document is older than `ttl_s` is free: its holder is dead, or has been cut off for as long. A holder may
    miss one renewal and be late with the next.
    """

    ttl_s: float = 30.0
    renew_s: float = 10.0


LOCK_TIMES = LockTimes()


@dataclass(frozen=True, slots=True)
class Version:
    """A key's bytes, the version that a swap names, and when the store wrote it."""

    data: bytes
    e_tag: str | None
    version: str | None
    written_at: datetime | None = None

    @property
    def mode(self) -> PutMode:
        """The condition of a put that replaces this version and no other."""
        given = {"e_tag": self.e_tag, "version": self.version}
        return {name: value for name, value in given.items() if value is not None}  # type: ignore[return-value]  # a part of it


@dataclass(frozen=True, slots=True)
class LockDoc(Document):
    """A lock's document: `holder` in words (the last one's if `released`), its token, and a beat that makes it new."""

    FORMAT = "lakeproof.lock/1"
    REMEDY = "delete it: a lock is taken anew"

    holder: str
    token: str
    beat: int
    released: bool


def _elapsed_s() -> float:
    """Return the seconds since some moment, those in which this machine slept among them if it counts them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Renewal:
    """Keeps a lock alive from a thread of its own: `renew` does it once and returns False if the lock is lost."""

    def __init__(self, thing: str, renew: Callable[[], bool], times: LockTimes) -> None:
        self._times = times
        self._thing = thing
        self._renew = renew
        self._over = threading.Event()
        self._lost = False
        self._renewed_at = _elapsed_s()
        self._thread = threading.Thread(target=self._run, name="lakeproof lock", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise TransientError if another process has taken the lock, or may have: it was not renewed in time."""
        if self._lost or _elapsed_s() - self._renewed_at > self._times.ttl_s:
            raise TransientError(
                self._thing, "its lock was not renewed in time, so another process may go on", "start again"
            )

    def end(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._times.renew_s
        warned = False
        while not self._over.wait(wait_s):
            begun = _elapsed_s()
            try:
                if not self._renew():
                    self._lost = True
                    _log.warning("%s: another process has taken its lock", self._thing)
                    return
            except LakeproofError as error:
                wait_s = _RENEW_AGAIN_S
                if not warned and _elapsed_s() - self._renewed_at > self._times.ttl_s:
                    warned = True
                    _log.warning("%s: its lock could not be renewed in time: %s", self._thing, error.reason)
            else:
                wait_s, self._renewed_at, warned = self._times.renew_s, begun, False


class SharedObjectLock:
    """A shared lock, held until it is released or this process ends."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """Give the lock back."""
        release, self._release = self._release, None
        if release is not None:
            release()


class ObjectLocks:
    """The locks of one store."""

    def __init__(self, store: ObjectStore, times: LockTimes = LOCK_TIMES) -> None:
        self._times = times
        self._store = store

    @contextmanager
    def lock(self, key: str, thing: str, reason: str) -> Iterator[Renewal]:
        """Hold the lock alone; see `Store.lock`."""
        remedy = f"wait until it has ended (if it was killed, {self._times.ttl_s:g} s), then try again"
        taken = self._take(key)
        if taken is None:
            raise TransientError(thing, reason_with_holder(reason, self.lock_holder(key)), remedy)
        doc, version = taken

        def renew() -> bool:
            nonlocal doc, version
            newer = replace(doc, beat=doc.beat + 1)
            swapped = self._store.swap(key, newer.to_bytes(), version)
            if swapped is not None:
                doc, version = newer, swapped
            return swapped is not None

        renewal = Renewal(thing, renew, self._times)
        try:
            if self._is_shared(key):
                raise TransientError(thing, reason, remedy)
            yield renewal
        finally:
            renewal.end()
            # If it fails the lock expires by itself; if somebody else has it, it is theirs.
            with suppress(LakeproofError):
                self._store.swap(key, replace(doc, beat=doc.beat + 1, released=True).to_bytes(), version)

    def share_lock(self, key: str, wait_s: float) -> Lock | None:
        """Hold the lock together with others; see `Store.share_lock`."""
        deadline = time.monotonic() + wait_s
        while (lock := self._share(key)) is None:
            if time.monotonic() + _RETRY_S >= deadline:
                return None
            time.sleep(_RETRY_S)
        return lock

    def is_locked(self, key: str) -> bool | None:
        """True if a process holds the lock, alone or shared; None if that can't be known."""
        try:
            return self._is_held_alone(key) or self._is_shared(key)
        except LakeproofError:
            return None

    def lock_holder(self, key: str) -> str | None:
        """Return the process that holds the lock alone, or was the last one to; None if unknown."""
        with suppress(LakeproofError):
            read = self._read(key)
            return None if read is None else read[0].holder or None
        return None

    def _take(self, key: str) -> tuple[LockDoc, Version] | None:
        """Swap the document for ours; None if somebody holds it, or was faster."""
        read = self._read(key)
        if read is not None and not read[0].released and self._is_young(read[1].written_at):
            return None
        doc = _own_doc(0 if read is None else read[0].beat + 1)
        version = self._store.swap(key, doc.to_bytes(), None if read is None else read[1])
        return None if version is None else (doc, version)

    def _share(self, key: str) -> Lock | None:
        token = secrets.token_hex(16)
        own, beat = f"{_holders(key)}/.{token}", 0

        def renew() -> bool:
            nonlocal beat
            beat += 1
            self._store.put(own, f"{_own_words()} {beat}".encode())
            return True

        renew()
        if self._read(key) is None:
            # `exists` once the lock was taken.
            self._store.swap(key, replace(_own_doc(0), holder="", released=True).to_bytes(), None)
        if self._is_held_alone(key):
            self._store.delete(own)
            return None
        renewal = Renewal(key, renew, self._times)

        def release() -> None:
            renewal.end()
            with suppress(LakeproofError):
                self._store.delete(own)

        return SharedObjectLock(release)

    def _read(self, key: str) -> tuple[LockDoc, Version] | None:
        version = self._store.read_version(key)
        return None if version is None else (LockDoc.from_bytes(version.data, f"lock {key}"), version)

    def _is_held_alone(self, key: str) -> bool:
        read = self._read(key)
        return read is not None and not read[0].released and self._is_young(read[1].written_at)

    def _is_shared(self, key: str) -> bool:
        written = self._store.written(_holders(key))
        if not written:
            return False
        now = self._now()
        for holder, time_ in written.items():
            if (now - time_).total_seconds() >= self._times.ttl_s:
                self._store.delete(holder)
        return any((now - time_).total_seconds() < self._times.ttl_s for time_ in written.values())

    def _is_young(self, written_at: datetime | None) -> bool:
        return written_at is None or (self._now() - written_at).total_seconds() < self._times.ttl_s

    def _now(self) -> datetime:
        """Return the time by the store's clock: it writes a small object."""
        self._store.put(_CLOCK, secrets.token_hex(8).encode())
        clock = self._store.read_version(_CLOCK)
        if clock is None or clock.written_at is None:
            raise TransientError(_CLOCK, "the store does not say when it wrote it", "try again")
        return clock.written_at


def _holders(key: str) -> str:
    folder, _, name = key.rpartition("/")
    return f"{folder}/.{name}.shared" if folder else f".{name}.shared"


def _own_words() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} since {now_text()}"


def _own_doc(beat: int) -> LockDoc:
    return LockDoc(holder=_own_words(), token=secrets.token_hex(16), beat=beat, released=False)
