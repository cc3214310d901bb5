"""A snapshot as it is written: what it is to copy, part after part of what is complete, and its end.

The documents and their reading belong to `wal2delta.lake.snapshots`, the chunks to `wal2delta.pipeline.copying`.

A part is put when a table is complete, but while small tables stream by at most every `INTERVAL_S`: 10,000 tables then
give a few dozen documents, and a kill costs the copies of the last two seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from wal2delta.errors import TransientError
from wal2delta.failpoints import failpoint
from wal2delta.lake.documents import SnapshotDoc, SnapshotTable
from wal2delta.lake.snapshots import Ended, Wanted, ended_key, part_key, wanted_key
from wal2delta.landing.fields import now_text
from wal2delta.landing.store import AlreadyExistsError, Store
from wal2delta.names import Oid, TableName

INTERVAL_S = 2.0


class SnapshotParts:
    """The documents of one snapshot in the making; raises TransientError where somebody else has made one of them."""

    def __init__(self, store: Store, folder: str, wanted: Wanted, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        # What the catalog said of a table at the consistent point, known once that has been read.
        self.fingerprint: Callable[[Oid], str | None] = lambda _oid: None
        self._store = store
        self._wanted = wanted
        self._clock = clock
        self._complete: dict[TableName, SnapshotTable] = {}
        self._put: set[TableName] = set()
        self._number = 0
        self._last = float("-inf")

    def begin(self) -> None:
        """Say what is to be copied: before the first chunk."""
        self._place(wanted_key(self.folder), self._wanted.to_bytes())
        failpoint("snapshot.after_wanted")

    def add(self, table: TableName, document: SnapshotTable) -> None:
        """A table is complete, with all its chunks durable; it is visible with the next part."""
        self._complete[table] = replace(document, fingerprint=self.fingerprint(document.version.oid))

    def publish(self, *, now: bool = False) -> None:
        """Put a part where there is something for it and the last one is old enough, or it is to be `now`."""
        if not self._complete or not (now or self._clock() - self._last >= INTERVAL_S):
            return
        part = SnapshotDoc(
            incarnation=self._wanted.incarnation,
            consistent_point=self._wanted.consistent_point,
            started_at=self._wanted.started_at,
            finished_at=now_text(),
            slot=self._wanted.slot,
            tables=dict(self._complete),
        )
        failpoint("snapshot.before_part")
        self._place(part_key(self.folder, self._number), part.to_bytes())
        failpoint("snapshot.after_part")
        self._put |= self._complete.keys()
        self._complete.clear()
        self._number += 1
        self._last = self._clock()

    def end(self, failed: Mapping[TableName, str], interrupted: str | None = None) -> None:
        """Nothing more comes; what was wanted, and is neither there nor `failed`, is left for another snapshot."""
        left = tuple(t for t in self._wanted.tables if t not in self._put and t not in failed)
        end = Ended(self._wanted.consistent_point, now_text(), failed, left, interrupted)
        failpoint("snapshot.before_end")
        self._place(ended_key(self.folder), end.to_bytes())

    def interrupted(self, reason: str) -> None:
        """Save what is complete and end, as far as that is still possible; else the next run ends it."""
        with suppress(OSError, TransientError):
            self.publish(now=True)
        if not self._store.exists(part_key(self.folder, self._number)):
            self._remove_files()
        with suppress(OSError, TransientError):
            self.end({}, reason)

    def _remove_files(self) -> None:
        for document in self._complete.values():
            for chunk in document.chunks:
                with suppress(OSError):
                    self._store.delete(f"{self.folder}/{chunk.path}")

    def _place(self, key: str, data: bytes) -> None:
        try:
            self._store.put_if_absent(key, data)
        except AlreadyExistsError:
            thing = f"snapshot at {self._wanted.consistent_point}"
            raise TransientError(thing, "another process writes one at the same point", "run it again") from None
