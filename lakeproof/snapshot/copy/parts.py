"""Writes a snapshot's documents: its request, part after part of complete tables, and its end.

A part is put every `INTERVAL_S` if a table has become complete, and at the end: 10,000 tables give a few dozen documents,
and a kill costs the copies of the last two seconds. Right before a part is put, the catalog is compared with what the
snapshot saw of the tables in it, once for all of them: only a table that has not been altered counts. Then the names of
their files are made durable, in one go, too.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import SourceConfig
from lakeproof.errors import LakeproofError, TransientError
from lakeproof.failpoints import failpoint
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.unchanged import change_since, read_catalog
from lakeproof.postgres.connections.connect import Connection, close_quietly
from lakeproof.postgres.copying.cost import SnapshotCost, snapshot_cost
from lakeproof.postgres.copying.snapshot import SnapshotSession
from lakeproof.snapshot.folder import SnapshotEnd, SnapshotRequest, end_key, is_closed, part_key, request_key
from lakeproof.snapshot.state import SnapshotDoc, SnapshotTable
from lakeproof.storage.store import AlreadyExistsError, Store
from lakeproof.storage.times import now_text

INTERVAL_S = 2.0


class CatalogNow:
    """The catalog as the snapshot saw it (`then`), compared with the catalog now over its own connection."""

    def __init__(self, session: SnapshotSession, source: SourceConfig, then: Fingerprint) -> None:
        self.then = then
        self._session = session
        self._source = source
        self._conn: Connection | None = None

    def changed_tables(self, tables: Mapping[TableName, Oid]) -> dict[TableName, str]:
        """Return the tables that were altered since the snapshot, with the reason. Raises as `source_errors`."""
        if not tables:
            return {}
        now = read_catalog(self._connection(), self._source, tables.values())
        reasons = ((table, change_since(self.then, now, oid)) for table, oid in tables.items())
        return {table: reason for table, reason in reasons if reason is not None}

    def cost(self, pids: Iterable[int]) -> SnapshotCost:
        """Return the snapshot's cost to the source, with the locks of these backends. Raises as `source_errors`."""
        return snapshot_cost(self._connection(), self._session.slot, [*pids, *self._session.pids])

    def _connection(self) -> Connection:
        if self._conn is None:
            self._conn = self._session.open("lakeproof bootstrap")
        return self._conn

    def close(self) -> None:
        """Close the connection, if one was opened."""
        close_quietly(self._conn)
        self._conn = None


class SnapshotParts:
    """The documents of one snapshot as they are written; raises TransientError if another process wrote one of them."""

    def __init__(self, store: Store, folder: str, request: SnapshotRequest, catalog: CatalogNow) -> None:
        self.folder = folder
        self.catalog = catalog
        self._store = store
        self._request = request
        self.consistent_point = request.consistent_point
        self._complete: dict[TableName, SnapshotTable] = {}
        self._put: set[TableName] = set()
        self._number = 0
        self._last = float("-inf")

    def begin(self) -> None:
        """Put the request, before the first chunk."""
        self._place(request_key(self.folder), self._request.to_bytes())
        failpoint("snapshot.after_request")

    def add(self, table: TableName, document: SnapshotTable) -> None:
        """Add a complete table to the next part; its chunks are durable except for their names."""
        oid, then = document.version.oid, self.catalog.then
        self._complete[table] = replace(document, fingerprint=then.digest(oid), files=then.files(oid))

    def due(self) -> bool:
        """True if a table waits for a part, and the last part is old enough."""
        return bool(self._complete) and time.monotonic() - self._last >= INTERVAL_S

    def publish(self) -> tuple[list[TableName], dict[TableName, str]]:
        """Put a part of the complete tables; return the tables in it, and those altered meanwhile, with the reason."""
        self._last = time.monotonic()
        oids = {table: document.version.oid for table, document in self._complete.items()}
        changed = self.catalog.changed_tables(oids)
        for table in changed:
            self._remove_files(self._complete.pop(table))
        if not self._complete:
            return [], changed
        part = SnapshotDoc(
            incarnation=self._request.incarnation,
            consistent_point=self._request.consistent_point,
            started_at=self._request.started_at,
            finished_at=now_text(),
            slot=self._request.slot,
            tables=dict(self._complete),
        )
        self._store.sync_names(
            f"{self.folder}/{chunk.path}" for table in part.tables.values() for chunk in table.chunks
        )
        failpoint("snapshot.before_part")
        self._place_part(part.to_bytes())
        failpoint("snapshot.after_part")
        put = list(self._complete)
        self._put.update(put)
        self._complete.clear()
        self._number += 1
        return put, changed

    def end(
        self, failed: Mapping[TableName, str], gone: Collection[TableName] = (), interrupted: str | None = None
    ) -> None:
        """Put the end; requested tables that are not complete, `failed` or `gone` are left for another snapshot."""
        over = self._put | failed.keys() | set(gone)
        left = tuple(t for t in self._request.tables if t not in over)
        end = SnapshotEnd(self._request.consistent_point, now_text(), failed, left, tuple(sorted(gone)), interrupted)
        failpoint("snapshot.before_end")
        self._place(end_key(self.folder), end.to_bytes())

    def interrupted(self, reason: str) -> None:
        """Put a last part and the end, if that is still possible; else the next run ends the snapshot."""
        with suppress(OSError, LakeproofError):
            self.publish()
        with suppress(OSError, LakeproofError):
            if not self._store.exists(part_key(self.folder, self._number)):
                for document in self._complete.values():
                    self._remove_files(document)
        with suppress(OSError, LakeproofError):
            self.end({}, interrupted=reason)

    def _remove_files(self, document: SnapshotTable) -> None:
        for chunk in document.chunks:
            with suppress(OSError, LakeproofError):
                self._store.delete(f"{self.folder}/{chunk.path}")

    def _place_part(self, data: bytes) -> None:
        """Put a part, unless another run has ended this snapshot: it has removed the files that no part named."""
        key = part_key(self.folder, self._number)
        self._check_open()
        self._place(key, data)
        try:
            self._check_open()
        except TransientError:
            self._store.delete(key)
            raise

    def _check_open(self) -> None:
        if is_closed(self._store, self.folder):
            thing = f"snapshot at {self._request.consistent_point}"
            raise TransientError(thing, "another process has ended it: this one's lock has expired", "run it again")

    def _place(self, key: str, data: bytes) -> None:
        try:
            self._store.put_if_absent(key, data)
        except AlreadyExistsError:
            thing = f"snapshot at {self._request.consistent_point}"
            raise TransientError(thing, "another process writes one at the same point", "run it again") from None
