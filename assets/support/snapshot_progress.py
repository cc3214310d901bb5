"""Reports a running snapshot's progress as observations of the tables that are being copied.

Computing the progress does not belong here (`lakeproof.snapshot.progress`), nor the lines in the run's log (`event_log`).
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

# An observation is a row in Dagster's database, and each copying connection makes one: two connections make 240 an hour.
INTERVAL_S = 30.0


class SnapshotObservations:
    """Takes events from the engine's threads, and logs observations of `tables` from the run's own thread."""

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
        """Take an event; may be called from any thread."""
        if event.kind == "bootstrap.progress":
            with self._lock:
                self._newest = event

    def observe(self) -> None:
        """Log observations if they are due; called in the run's thread, as often as it likes."""
        with self._lock:
            newest = self._newest
            if newest is None or self._clock() - self._last < INTERVAL_S:
                return
            self._newest = None
        self._last = self._clock()
        fields = newest.fields
        snapshot = md.optional(
            **{f"snapshot_{name}": fields.get(name) for name in ("rows", "bytes", "tables", "tables_done", "fraction")},
            rows_per_s=fields.get("rows_per_s"),
            bytes_per_s=fields.get("bytes_per_s"),
            seconds_left=fields.get("seconds_left"),
            consistent_point=fields.get("consistent_point"),
        )
        for key, copying in fields.get("copying", {}).items():
            if key in self._tables:
                asset = table_key(Layer.SNAPSHOT, self._source, self._tables[key])
                self._log_event(dg.AssetObservation(asset, metadata={**snapshot, **copying}))
