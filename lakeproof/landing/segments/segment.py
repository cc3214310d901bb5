"""Writes one segment: its Parquet files, then the manifest that makes them visible.

`lakeproof.drain` decides when a segment ends.

    Batch → a buffer per table and schema version ─bounded─► row groups → files, synced ─► folder, synced → manifest
    the thread that decodes                      hand-over   the writer thread             the thread that decodes

Memory: at most `drain.segment_bytes` of Arrow data wait for a row group or are in the writer thread's hands, over all
tables, and at most `drain.segment_files` Parquet files are open, however many tables a segment has: the one used least
recently is finished, and a table that comes again gets another file. At the end several are finished at a time
(`task_threads.py`). Nothing is visible before the manifest is: a crash leaves files that no manifest names. An error of the
writer thread is raised by the next call that hands over or waits, and by `seal` at the latest.

A segment ends in two steps. `seal` writes what waits, so that no rows are left in memory; `publish` waits for the disk or
the store and appends the manifest. Between them the next segment may begin where this one says that it ends.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, ORD, XID
from lakeproof.landing.chain import Chain
from lakeproof.landing.logical_messages import LogicalMessageWriter
from lakeproof.landing.segments.manifest import LandedCommit, Manifest, ManifestKind, SchemaEntry, SegmentFile
from lakeproof.landing.segments.row_file import RowFile
from lakeproof.landing.segments.row_order import ordinal_behind
from lakeproof.landing.segments.task_threads import TaskThreads
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableBatch
from lakeproof.schema import SchemaVersion
from lakeproof.storage.store import NewFile
from lakeproof.storage.times import now_text, time_us
from lakeproof.values.commit_times import counts_as, of_number

# A reader holds one row group in memory; below 100 k rows zstd and the footer cost more per row.
ROW_GROUP_ROWS = 131_072
# With wide rows: so much that the writer thread has work soon, and little is left for the segment's end.
ROW_GROUP_BYTES = 16 << 20
# Two row groups, each of which may be a unit of decoding larger: one is written, one waits. They count in
# `drain.segment_bytes`.
HAND_OVER_BYTES = 3 * ROW_GROUP_BYTES
# A store that takes 30 ms for each request then ends 200 files in a second, in place of 30.
ENDS_AT_ONCE = 8
_WRITER = re.compile(r"[0-9a-f]{32}")


def _counted(commit_us: int | None, created_at: str) -> int | None:
    return None if commit_us is None else counts_as(commit_us, time_us(created_at))


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Limits of an unfinished segment: decoded rows that are not written, open files, and rows of a row group.

    Each open Parquet writer keeps a descriptor and its column writers; 1024 descriptors is a common limit of a process.
    """

    buffered_bytes: int = 128 << 20
    open_files: int = 64
    group_rows: int = ROW_GROUP_ROWS


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """The place at which a segment begins: its manifest's number, its first ordinal, and the end of what came before."""

    number: int
    ordinal: int
    lsn: Lsn

    @classmethod
    def of(cls, chain: Chain) -> SegmentStart:
        """Return the chain's end."""
        return cls(chain.next_number, chain.next_ordinal, chain.end)


@dataclass(slots=True)
class _Part:
    """One unfinished file: the rows that wait for its next row group, and its counts. Only the writer thread uses `file`."""

    version: SchemaVersion
    file: RowFile
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    counts: ChangeCounts = field(default_factory=ChangeCounts)


class SegmentWriter:
    """Writes one segment of `chain`, from `start` (by default the chain's end) on. One thread at a time uses it.

    `writer` (32 hexadecimal digits) is in the names of the files, so that two writers never share one.
    """

    def __init__(
        self, chain: Chain, writer: str, limits: SegmentLimits | None = None, start: SegmentStart | None = None
    ) -> None:
        if not _WRITER.fullmatch(writer):
            raise ValueError("a writer id has 32 hexadecimal digits")
        self._chain = chain
        self._writer = writer
        self._limits = limits or SegmentLimits()
        self._start = start or SegmentStart.of(chain)
        self._end: Lsn | None = None
        self._parts: dict[str, _Part] = {}
        self._hand_over_bytes = min(HAND_OVER_BYTES, self._limits.buffered_bytes // 2)
        self._thread: TaskThreads[None] = TaskThreads("lakeproof-segment", 1, self._hand_over_bytes)
        # Parts whose files are begun, the least recently used first; and the waiting bytes of all parts. There may be 10,000
        # parts, so no loop over all of them may run for each one.
        self._open: OrderedDict[str, None] = OrderedDict()
        self._waiting_bytes = 0
        # Every file that is begun; and those that are closed, which only the writer thread adds.
        self._files: list[RowFile] = []
        self._ends: TaskThreads[tuple[NewFile, SegmentFile]] = TaskThreads("lakeproof-file", ENDS_AT_ONCE, ENDS_AT_ONCE)
        self._at_end = False
        self._made = 0
        self._schemas: list[SchemaEntry] = []
        self._messages = LogicalMessageWriter(lambda: self._create(self._name()))
        self._first_us: int | None = None
        self._last_us: int | None = None
        self._last: LandedCommit | None = None
        self.rows = 0
        self.transactions = 0

    def add(self, batch: Batch) -> None:
        """Add a decoded batch; `_lp_ord` then counts over the whole segment, from its first ordinal on.

        Rows may be written out at once; nothing is visible before `finish`.
        """
        base = self._start.ordinal + self.rows
        for changes in batch.changes:
            self._add_changes(changes, base)
            self.rows += changes.rows.num_rows
        self.transactions += batch.transactions
        self.announce(batch.schemas)
        self._messages.add(batch.logical_messages)
        times = [self._first_us, self._last_us, batch.first_commit_time_us, batch.last_commit_time_us]
        self._first_us = min((us for us in times if us is not None), default=None)
        self._last_us = max((us for us in times if us is not None), default=None)
        if self._buffered_bytes > self._limits.buffered_bytes:
            self._make_room()

    def announce(self, schemas: Iterable[SchemaInForce]) -> None:
        """Add versions that came into force, in stream order."""
        self._schemas += [SchemaEntry(s.version, s.from_lsn, s.from_seq) for s in schemas]

    def settle(self) -> None:
        """Wait until the writer thread has nothing in hand: before something large takes memory. Raises its error."""
        self._thread.wait()

    def finish(self, end: Lsn, catalog_lsn: Lsn | None = None) -> Manifest:
        """Seal the segment at `end` and publish it."""
        self.seal(end)
        return self.publish(catalog_lsn)

    def seal(self, end: Lsn) -> SegmentStart:
        """Write what waits and begin to make the files durable; returns where the next segment begins.

        Nothing can be added afterwards, and no rows are in memory.
        """
        if self._last is not None and self._last.end_lsn > end:
            raise InvariantError(
                f"segment {self._start.number}", f"it is to end at {end}, before the last of its changes", "report this"
            )
        # There is nothing left to decode meanwhile.
        self._thread.end()
        self._at_end = True
        while self._parts:
            # Room for one may be made by closing another.
            self._close(next(iter(self._parts)))
        self._end = end
        ordinal = ordinal_behind(self._start.ordinal, self.rows) if self.rows else self._start.ordinal
        return SegmentStart(self._start.number + 1, ordinal, end)

    def publish(self, catalog_lsn: Lsn | None = None) -> Manifest:
        """Make the files durable, then append the manifest of the sealed range: a progress range if it has no rows.

        `catalog_lsn` is the manifest's; by default its predecessor's. Raises FencedError if another writer has the number.
        The writer can't be used afterwards.
        """
        if self._end is None:
            raise InvariantError(
                f"segment {self._start.number}", "it is to become visible but not sealed", "report this"
            )
        message_file = self._messages.finish(self._chain.lake.paths.landing(self._chain.incarnation))
        done = self._ends.end()
        files = [entry for _, entry in done]
        written = [file for file, _ in done] + ([message_file[0]] if message_file else [])
        self._chain.lake.store.sync_names([file.key for file in written])
        failpoint("drain.after_data_files")
        created_at = now_text()
        manifest = Manifest(
            kind=ManifestKind.SEGMENT if written else ManifestKind.PROGRESS,
            number=self._start.number,
            incarnation=self._chain.incarnation,
            first_ordinal=self._start.ordinal,
            start_lsn=self._start.lsn,
            end_lsn=self._end,
            previous_sha256="",
            writer=self._writer,
            created_at=created_at,
            transactions=self.transactions if files else 0,
            last_commit=self._last,
            first_commit_us=_counted(self._first_us, created_at) if files else None,
            last_commit_us=_counted(self._last_us, created_at) if files else None,
            schemas=tuple(self._schemas),
            files=tuple(files),
            logical_messages=(message_file[1],) if message_file else (),
            catalog_lsn=self._chain.newest.catalog_lsn if catalog_lsn is None else catalog_lsn,
        )
        # From here on the manifest may exist, whatever the outcome (a folder that could not be synced, a lost reply): the
        # files are no longer ours to remove, and `sweep` decides about them.
        self._files, self._messages = [], LogicalMessageWriter(lambda: self._create(self._name()))
        return self._chain.append(manifest)

    def abandon(self) -> None:
        """Remove the files that the chain has not got yet; may be called at any time, any number of times."""
        self._thread.abandon()
        self._ends.abandon()
        for file in self._files:
            file.abandon()
        self._messages.abandon()
        self._parts.clear()
        self._open.clear()
        self._files.clear()

    def _add_changes(self, changes: TableBatch, base: int) -> None:
        rows = changes.rows
        if rows.column(LSN)[0].as_py() <= self._start.lsn.value:
            raise InvariantError(
                f"segment {self._start.number}", "a change came again that the chain has already", "report this"
            )
        schema_id = changes.version.id
        part = self._parts.get(schema_id)
        if part is None:
            part = self._parts[schema_id] = self._begin(changes.version)
        if base:
            index = rows.schema.get_field_index(ORD)
            shifted = pc.add(rows.column(index), pa.scalar(base, pa.int64()))
            rows = rows.set_column(index, rows.schema.field(index), shifted)
        self._note_commit(rows)
        part.waiting.append(rows)
        part.waiting_rows += rows.num_rows
        part.waiting_bytes += rows.nbytes
        self._waiting_bytes += rows.nbytes
        part.counts += changes.counts
        if part.waiting_rows >= self._limits.group_rows or part.waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group(part)

    def _note_commit(self, rows: pa.RecordBatch) -> None:
        end = Lsn(rows.column(LSN)[-1].as_py())
        if self._last is None or end > self._last.end_lsn:
            xid, time, number = (rows.column(name)[-1] for name in (XID, COMMIT_TIME, COMMIT_NUMBER))
            time_us = time.value if time.is_valid else of_number(number.as_py())
            self._last = LandedCommit(end, Xid(xid.as_py()), time_us)

    @property
    def _buffered_bytes(self) -> int:
        return self._waiting_bytes + self._thread.size

    def _make_room(self) -> None:
        """Hand over the largest parts first, until half of the limit is free; wait for the thread if that is not enough."""
        for part in sorted(self._parts.values(), key=lambda p: p.waiting_bytes, reverse=True):
            if 2 * self._waiting_bytes <= self._limits.buffered_bytes:
                break
            # Making room among the open files may have written some of them.
            if part.waiting:
                self._write_group(part)
        self._thread.wait(self._limits.buffered_bytes - self._waiting_bytes)

    def _write_group(self, part: _Part) -> None:
        batches, size = part.waiting, part.waiting_bytes
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0
        self._waiting_bytes -= size
        key = part.version.id
        while key not in self._open and len(self._open) >= self._limits.open_files:
            self._close(next(iter(self._open)))
        if key not in self._open and self._at_end:
            # A file that is about to be finished is still open.
            self._ends.wait(self._limits.open_files - len(self._open) - 1)
        self._open[key] = None
        self._open.move_to_end(key)
        self._thread.submit(partial(part.file.write, batches), size)
        if size > self._hand_over_bytes:
            # A value of many megabytes: nothing is read or decoded beside it.
            self._thread.wait()

    def _begin(self, version: SchemaVersion) -> _Part:
        file = RowFile(version, partial(self._create, self._name()))
        self._files.append(file)
        return _Part(version, file)

    def _name(self) -> str:
        self._made += 1
        return f"{self._start.number:020d}-{self._writer}-{self._made - 1:04d}.parquet"

    def _create(self, name: str) -> NewFile:
        return self._chain.lake.store.create(f"{self._chain.lake.paths.data(self._chain.incarnation)}/{name}")

    def _close(self, key: str) -> None:
        """Close a part's file, and let it become durable except for its name."""
        part = self._parts.pop(key)
        if part.waiting:
            self._write_group(part)
        self._open.pop(key, None)
        self._thread.submit(partial(self._finish_file, part, at_end=self._at_end), 0)

    def _finish_file(self, part: _Part, *, at_end: bool) -> None:
        part.file.close()
        landing = self._chain.lake.paths.landing(self._chain.incarnation)
        self._ends.submit(partial(part.file.finish, landing, part.counts))
        if not at_end:
            # It makes room for another file.
            self._ends.wait()
