"""A snapshot's progress for people: an event and a small document once a second, with time left and cost to the source.

The complete parts are counted elsewhere: only the parts say that (`folder.py`). The state of the newest snapshot, running or
interrupted, comes from both. Nothing is decided from this document, a killed run leaves it as it was, and a file that
can't be read counts as none. So it is not one of the lake's documents (`lakeproof.storage.document`).

The time left is estimated from pages, including those of values stored out of line: a table's number of rows is unknown
until it has been read. An empty table counts as one page.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lakeproof.errors import LakeproofError
from lakeproof.events import Event, Report, counted
from lakeproof.landing.catalog_history import gone_since
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.copying.cost import SnapshotCost
from lakeproof.snapshot.folder import find_snapshot, missing_tables, read_end, read_request, unsettled_folders
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import NotFoundError
from lakeproof.storage.times import now_text

if TYPE_CHECKING:
    from lakeproof.postgres.copying.snapshot import Chunk

FORMAT = "lakeproof.snapshotprogress/1"
INTERVAL_S = 1.0
_BYTES_MAX = 100_000
# A full page is assumed to give this many bytes of COPY, until some pages have been read.
_PAGE_BYTES = 6000.0


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """The progress of a run at `reported_at`: rows and bytes (of COPY) received and pages of heap read in `seconds`.

    `tables_done` tables are completely copied; `seconds_left` is None until enough was copied for an estimate. `cost` is
    None until it was read.
    """

    consistent_point: str
    reported_at: str
    tables: int
    tables_done: int
    rows: int
    bytes: int
    pages: int
    pages_total: int
    seconds: float
    seconds_left: float | None
    cost: dict[str, Any] | None = None

    @property
    def fraction(self) -> float:
        """The part of the pages that is done."""
        return min(1.0, self.pages / self.pages_total) if self.pages_total else 1.0

    @property
    def rows_per_s(self) -> float:
        """The mean speed since the start."""
        return self.rows / self.seconds if self.seconds else 0.0


class SnapshotProgress:
    """The counters of one snapshot; any thread may call `received` and `ended`, only one thread `emit`."""

    def __init__(
        self,
        lake: SourceLake,
        point: Lsn,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost: SnapshotCost | None = None
        self._lake = lake
        self._point = point
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._emitted_at = clock()
        self._tables = self._tables_done = self._rows = self._bytes = self._pages = self._pages_total = 0
        self._ended_bytes = 0
        # The chunks that are being copied, by leaf and first page: bytes so far, and number of pages.
        self._open: dict[tuple[Oid, int], tuple[int, int]] = {}
        # The tables that are being copied: rows, bytes and pages.
        self._copying: dict[TableName, list[int]] = {}

    def expect(self, tables: Iterable[PublishedTable]) -> None:
        """Add tables to be copied."""
        for table in tables:
            self._tables += 1
            self._pages_total += sum(max(1, leaf.pages) + leaf.toast_pages for leaf in table.leaves)

    def received(self, chunk: Chunk, rows: int, size: int) -> None:
        """Count a block of the chunk."""
        with self._lock:
            self._rows += rows
            self._bytes += size
            key = (chunk.leaf.oid, chunk.from_page)
            before, _ = self._open.get(key, (0, 0))
            self._open[key] = (before + size, _pages(chunk))
            copying = self._copying.setdefault(chunk.table.table, [0, 0, 0])
            copying[0] += rows
            copying[1] += size

    def ended(self, chunk: Chunk) -> None:
        """Count a chunk as written."""
        with self._lock:
            self._ended_bytes += self._open.pop((chunk.leaf.oid, chunk.from_page), (0, 0))[0]
            self._pages += _pages(chunk)
            self._copying.setdefault(chunk.table.table, [0, 0, 0])[2] += _pages(chunk)

    def table_done(self, table: PublishedTable) -> None:
        """Count a table whose chunks are all written, or that was given up."""
        with self._lock:
            self._tables_done += 1
            self._copying.pop(table.table, None)

    def now(self) -> CopyProgress:
        """Return the progress."""
        with self._lock:
            seconds = self._clock() - self._started
            per_page = max(1.0, self._ended_bytes / self._pages) if self._ended_bytes else _PAGE_BYTES
            halves = sum(min(pages - 1, int(size / per_page)) for size, pages in self._open.values())
            pages = min(self._pages + halves, self._pages_total)
            left = seconds * (self._pages_total - pages) / pages if pages else None
            return CopyProgress(
                str(self._point), now_text(), self._tables, self._tables_done, self._rows, self._bytes, pages,
                self._pages_total, round(seconds, 3), None if left is None else round(left, 1),
                None if self.cost is None else asdict(self.cost),
            )  # fmt: skip

    def emit(self) -> None:
        """Report an event and write the document, if the last ones are old enough."""
        if self._clock() - self._emitted_at < INTERVAL_S:
            return
        self._emitted_at = self._clock()
        progress = self.now()
        fields = asdict(progress) | {
            "source": self._lake.source,
            "fraction": round(progress.fraction, 4),
            "rows_per_s": round(progress.rows_per_s),
            "bytes_per_s": round(progress.bytes / progress.seconds) if progress.seconds else 0,
            "copying": self._being_copied(),
        }
        self._report(Event("bootstrap.progress", sentence(progress), fields))
        # The chunks meet a full disk soon enough.
        with suppress(OSError, LakeproofError):
            document = json.dumps({"format": FORMAT, **asdict(progress)})
            self._lake.store.put(self._lake.paths.snapshot_progress, document.encode())

    def _being_copied(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {
                table.key: {"rows": rows, "bytes": size, "pages": pages}
                for table, (rows, size, pages) in self._copying.items()
            }

    def close(self) -> None:
        """Remove the document: the run is over."""
        with suppress(OSError, LakeproofError):
            self._lake.store.delete(self._lake.paths.snapshot_progress)


def read_progress(lake: SourceLake) -> CopyProgress | None:
    """Return what a running or a killed run wrote last; None if there is nothing readable."""
    try:
        with lake.store.open(lake.paths.snapshot_progress) as opened:
            document = json.loads(opened.read(_BYTES_MAX))
        return CopyProgress(**document) if document.pop("format") == FORMAT else None
    except (NotFoundError, OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _pages(chunk: Chunk) -> int:
    """Return the chunk's own pages plus its share of the TOAST pages; the last chunk gets the rest of these."""
    leaf = chunk.leaf
    every = max(1, leaf.pages)
    end = every if chunk.to_page is None else chunk.to_page
    share = leaf.toast_pages * min(end, every) // every - leaf.toast_pages * min(chunk.from_page, every) // every
    return max(1, end - chunk.from_page) + share


def sentence(progress: CopyProgress) -> str:
    """Return the progress as one line for people."""
    left = "" if progress.seconds_left is None else f", about {progress.seconds_left:,.0f} s left"
    cost = ""
    if progress.cost is not None:
        costs = [f"{counted(progress.cost['locks'], 'table')} locked"]
        if progress.cost["waiting"]:
            costs.append(f"{counted(progress.cost['waiting'], 'session waits', 'sessions wait')} for that")
        if progress.cost["xmin_age"] is not None:
            costs.append(f"xmin {progress.cost['xmin_age']:,} transactions old")
        if progress.cost["retained_wal_bytes"] is not None:
            costs.append(f"{progress.cost['retained_wal_bytes'] / 1e6:,.1f} MB of WAL kept")
        cost = f"; on the source: {', '.join(costs)}"
    done = f"{progress.tables_done:,} of {counted(progress.tables, 'table')}, {counted(progress.rows, 'row')}"
    return f"{done}, {progress.bytes / 1e6:,.1f} MB, {progress.rows_per_s:,.0f} rows/s{left}{cost}"


@dataclass(frozen=True, slots=True)
class SnapshotStatus:
    """The newest snapshot, while it runs or while tables are missing.

    `running` is None if the system can't tell; `holder` is who runs it, or ran it last. `tables` were requested,
    `tables_done` of them are complete, with `rows` and `bytes` of files; `progress` is what the run reports of itself.
    `missing` are published and have no copy from this snapshot or an earlier one; `interrupted` is why it ended
    before its end.
    """

    running: bool | None
    holder: str | None
    consistent_point: Lsn
    tables: int
    tables_done: int
    rows: int
    bytes: int
    missing: tuple[TableName, ...]
    interrupted: str | None
    progress: CopyProgress | None


def snapshot_status(chain: Chain, *, locked: bool | None) -> SnapshotStatus | None:
    """Read the newest snapshot's state; None if it is complete or there is none. Raises LakeError if it is damaged."""
    lake, incarnation = chain.lake, chain.incarnation
    newest_first = ((folder, read_request(lake, folder)) for folder in reversed(unsettled_folders(lake, incarnation)))
    folder, request = next((each for each in newest_first if each[1] is not None), ("", None))
    if request is None:
        return None
    missing = missing_tables(lake, incarnation)
    # Nobody can copy those that are gone since they were chosen.
    missing -= gone_since(chain, missing, request.consistent_point)
    if not missing and not locked:
        return None
    end = read_end(lake, folder)
    copied = find_snapshot(lake, folder)
    done = [] if copied is None else copied.tables.values()
    progress = read_progress(lake) if locked is not False else None
    return SnapshotStatus(
        running=locked,
        holder=lake.store.lock_holder(lake.paths.snapshot_lock),
        consistent_point=request.consistent_point,
        tables=len(request.tables),
        tables_done=len(done),
        rows=sum(table.rows for table in done),
        bytes=sum(table.bytes for table in done),
        missing=tuple(sorted(missing)),
        interrupted=None if end is None else end.interrupted,
        progress=progress
        if progress is not None and progress.consistent_point == str(request.consistent_point)
        else None,
    )
