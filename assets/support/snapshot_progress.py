"""A running snapshot's progress as observations of the tables that are being copied.

How far it is is computed by `lakeproof.snapshot.progress`; the lines of the run's log are `assets.support.event_log`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

import dagster as dg

from assets.support import metadata as md
from assets.support.keys import Layer, table_key
from lakeproof.events import Event
from lakeproof.names import TableName

# An observation is a row in Dagster's database, and there is one for each connection that copies: 240 an hour of two.
INTERVAL_S = 30.0


class SnapshotProgress:
    """Takes events from the engine's threads, and gives observations of `tables` from the run's own."""

    def __init__(
        self,
        source: str,
        tables: Collection[TableName],
        log_event: Callable[[dg.AssetObservation], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._tables = {table.key: table for table in tables}
        self._log_event = log_event
        self._clock = clock
        self._lock = threading.Lock()
        self._newest: Event | None = None
        self._last = clock()

    def take(self, event: Event) -> None:
        """From any thread."""
        if event.kind == "bootstrap.progress":
            with self._lock:
                self._newest = event

    def observe(self) -> None:
        """In the run's thread, as often as it likes."""
        with self._lock:
            newest = self._newest
            if newest is None or self._clock() - self._last < INTERVAL_S:
                return
            self._newest = None
        self._last = self._clock()
        told = newest.fields
        whole = md.known(
            **{f"snapshot_{name}": told.get(name) for name in ("rows", "bytes", "tables", "tables_done", "fraction")},
            rows_per_s=told.get("rows_per_s"),
            bytes_per_s=told.get("bytes_per_s"),
            seconds_left=told.get("seconds_left"),
            consistent_point=told.get("consistent_point"),
        )
        for key, copying in told.get("copying", {}).items():
            if key in self._tables:
                asset = table_key(Layer.SNAPSHOT, self._source, self._tables[key])
                self._log_event(dg.AssetObservation(asset, metadata={**whole, **copying}))
