"""How far a snapshot is, for people: an event and a small file once a second, with the time left and the source's cost.

Copying belongs to `copying`; what is complete to the parts (`lakeproof.snapshot.folder`): nothing is decided by what stands
here, so the file is not fsynced, and a killed run leaves it as it was.

The time left goes by pages, those of values stored out of line too: how many rows a table has is not known before it is
read. An empty table counts as a page.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lakeproof.events import Event, Report
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog_published import PublishedTable
from lakeproof.postgres.copy_cost import SnapshotCost
from lakeproof.postgres.copy_snapshot import Chunk
from lakeproof.storage.fields import now_text

FORMAT = "lakeproof.snapshotprogress/1"
INTERVAL_S = 1.0
_FILE_BYTES_MAX = 100_000
# A page that is full of rows is about this many bytes of COPY, until some have been seen.
_PAGE_BYTES = 6000.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run was at `at`: rows and bytes (of COPY) received, pages of heap read, since `seconds`.

    `tables_done` are copied whole; `seconds_left` is None as long as too little was copied to tell. `cost` is None before it
    was asked for.
    """

    consistent_point: str
    at: str
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
        """Of the pages."""
        return min(1.0, self.pages / self.pages_total) if self.pages_total else 1.0

    @property
    def rows_per_s(self) -> float:
        """Since the beginning."""
        return self.rows / self.seconds if self.seconds else 0.0


class SnapshotProgress:
    """The counters of one snapshot; `received` and `ended` may be called by any thread, `tell` by one."""

    def __init__(
        self,
        source: str,
        point: Lsn,
        place: Path,
        report: Report,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cost: SnapshotCost | None = None
        self._source = source
        self._point = point
        self._place = place
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._started = self._told = clock()
        self._tables = self._tables_done = self._rows = self._bytes = self._pages = self._pages_total = 0
        self._ended_bytes = 0
        # Chunks that are being copied, by leaf and first page: their bytes so far, and how many pages they are.
        self._open: dict[tuple[Oid, int], tuple[int, int]] = {}
        # Of the tables that are being copied: rows, bytes and pages.
        self._copying: dict[TableName, list[int]] = {}

    def expect(self, tables: Iterable[PublishedTable]) -> None:
        """These are to be copied."""
        for table in tables:
            self._tables += 1
            self._pages_total += sum(max(1, leaf.pages) + leaf.toast_pages for leaf in table.leaves)

    def received(self, chunk: Chunk, rows: int, size: int) -> None:
        """A block of the chunk has come."""
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
        """The chunk is written."""
        with self._lock:
            self._ended_bytes += self._open.pop((chunk.leaf.oid, chunk.from_page), (0, 0))[0]
            self._pages += _pages(chunk)
            self._copying.setdefault(chunk.table.table, [0, 0, 0])[2] += _pages(chunk)

    def table_done(self, table: PublishedTable) -> None:
        """All chunks of a table are written, or it was given up."""
        with self._lock:
            self._tables_done += 1
            self._copying.pop(table.table, None)

    def now(self) -> Progress:
        """How far it is."""
        with self._lock:
            seconds = self._clock() - self._started
            per_page = max(1.0, self._ended_bytes / self._pages) if self._ended_bytes else _PAGE_BYTES
            halves = sum(min(pages - 1, int(size / per_page)) for size, pages in self._open.values())
            pages = min(self._pages + halves, self._pages_total)
            left = seconds * (self._pages_total - pages) / pages if pages else None
            return Progress(
                str(self._point), now_text(), self._tables, self._tables_done, self._rows, self._bytes, pages,
                self._pages_total, round(seconds, 3), None if left is None else round(left, 1),
                None if self.cost is None else asdict(self.cost),
            )  # fmt: skip

    def tell(self) -> None:
        """An event and the file, where the last ones are old enough."""
        if self._clock() - self._told < INTERVAL_S:
            return
        self._told = self._clock()
        at = self.now()
        fields = asdict(at) | {
            "source": self._source,
            "fraction": round(at.fraction, 4),
            "rows_per_s": round(at.rows_per_s),
            "bytes_per_s": round(at.bytes / at.seconds) if at.seconds else 0,
            "copying": self._being_copied(),
        }
        self._report(Event("bootstrap.progress", sentence(at), fields))
        write_progress(self._place, at)

    def _being_copied(self) -> dict[str, dict[str, int]]:
        with self._lock:
            return {
                table.key: {"rows": rows, "bytes": size, "pages": pages}
                for table, (rows, size, pages) in self._copying.items()
            }

    def close(self) -> None:
        """The run is over, so there is nothing to follow."""
        with suppress(OSError):
            self._place.unlink()


def write_progress(place: Path, progress: Progress) -> None:
    """Replace the file; a failure is nobody's: the chunks meet a full disk soon enough."""
    draft = place.with_name(f"{place.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        draft.write_text(json.dumps({"format": FORMAT, **asdict(progress)}), encoding="utf-8")
        draft.replace(place)


def read_progress(place: Path) -> Progress | None:
    """What a running one, or one that was killed, wrote last; None where there is nothing that can be read."""
    try:
        with place.open("rb") as file:
            document = json.loads(file.read(_FILE_BYTES_MAX))
        return Progress(**document) if document.pop("format") == FORMAT else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _pages(chunk: Chunk) -> int:
    """The chunk's own, and its share of those out of line; the last chunk has what is left over of these."""
    leaf = chunk.leaf
    every = max(1, leaf.pages)
    end = every if chunk.to_page is None else chunk.to_page
    share = leaf.toast_pages * min(end, every) // every - leaf.toast_pages * min(chunk.from_page, every) // every
    return max(1, end - chunk.from_page) + share


def sentence(at: Progress) -> str:
    """For people."""
    left = "" if at.seconds_left is None else f", about {at.seconds_left:,.0f} s left"
    cost = ""
    if at.cost is not None:
        told = [f"{at.cost['locks']} tables locked"]
        if at.cost["waiting"]:
            told.append(f"{at.cost['waiting']} sessions wait for that")
        if at.cost["xmin_age"] is not None:
            told.append(f"xmin {at.cost['xmin_age']:,} transactions old")
        if at.cost["retained_wal_bytes"] is not None:
            told.append(f"{at.cost['retained_wal_bytes'] / 1e6:,.1f} MB of WAL kept")
        cost = f"; on the source: {', '.join(told)}"
    done = f"{at.tables_done:,} of {at.tables:,} tables, {at.rows:,} rows, {at.bytes / 1e6:,.1f} MB"
    return f"{done}, {at.rows_per_s:,.0f} rows/s{left}{cost}"
