"""Ends segments in a thread of its own, one at a time, while the worker of `flush.py` decodes the next one.

Only this thread appends segments, and each only after the one before it: their order in the chain is that of the stream, and
after an error nothing later becomes visible. A segment that comes here is sealed. Its rows are in files, not in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lakeproof.failpoints import failpoint
from lakeproof.landing.segments.manifest import Manifest
from lakeproof.landing.segments.segment import SegmentWriter
from lakeproof.landing.segments.task_threads import TaskThreads
from lakeproof.lsn import Lsn

# Segments that are being ended while the next one is decoded.
ENDING_MAX = 1


@dataclass(frozen=True, slots=True)
class Flushed:
    """A durable manifest, and the time that writing and syncing its segment took."""

    manifest: Manifest
    seconds: float


class SegmentEnds:
    """Publishes sealed segments; `published` and `failed` are called in the thread that does it.

    All methods are for one thread at a time. After a failure no other segment is published.
    """

    def __init__(self, published: Callable[[Flushed], None], failed: Callable[[BaseException], None]) -> None:
        self._published = published
        self._failed = failed
        self._thread: TaskThreads[None] = TaskThreads("lakeproof-segment", 1, ENDING_MAX)
        self._newest: SegmentWriter | None = None

    def wait(self) -> None:
        """Wait until every segment that was begun is in the chain. Raises the error of one that is not."""
        self._thread.wait()

    def begin(self, segment: SegmentWriter, catalog_lsn: Lsn | None, begun: float) -> None:
        """Publish a segment whose end began at `begun` of the monotonic clock; waits for the one before."""
        self.wait()
        self._newest = segment
        self._thread.submit(partial(self._publish, segment, catalog_lsn, begun))

    def close(self) -> None:
        """End the thread after what it does now, and remove the files of a segment that has not become visible."""
        self._thread.abandon()
        if self._newest is not None:
            self._newest.abandon()

    def _publish(self, segment: SegmentWriter, catalog_lsn: Lsn | None, begun: float) -> None:
        try:
            manifest = segment.publish(catalog_lsn)
            failpoint("drain.after_manifest")
        except BaseException as error:
            self._failed(error)
            raise
        self._published(Flushed(manifest, time.monotonic() - begun))
