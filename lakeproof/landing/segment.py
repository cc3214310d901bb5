"""Writes one segment: its Parquet files, then the manifest that makes them visible.

`lakeproof.drain` decides when a segment ends.

    Batch → a buffer per table and schema version → row groups → files, synced → folder, synced → manifest

Memory: at most `drain.segment_bytes` of Arrow data wait for a row group, over all tables, and at most `drain.segment_files`
Parquet writers are open, however many tables a segment has: the one used least recently is finished, and a table that comes
again gets another file. Nothing is visible before the manifest is: a crash leaves files that no manifest names.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.hidden_columns import COMMIT_TIME, LSN, OP, ROW, XID
from lakeproof.landing.chain import Chain
from lakeproof.landing.decoded_size import DecodedCount
from lakeproof.landing.logical_messages import LogicalMessageWriter
from lakeproof.landing.manifest import Kind, LandedCommit, Manifest, SchemaEntry, SegmentFile
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableChanges
from lakeproof.schema import SchemaVersion
from lakeproof.storage.parquet import open_parquet
from lakeproof.storage.store import NewFile
from lakeproof.storage.times import now_text

# A reader holds one row group in memory; below 100 k rows zstd and the footer cost more per row.
ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
# Values that repeat over a transaction. Data columns stay plain: building a dictionary that overflows is wasted work.
_DICTIONARY_COLUMNS = [LSN, OP, XID, COMMIT_TIME]
_STATISTICS_COLUMNS = [LSN, ROW]
_WRITER = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """Limits of an unfinished segment: decoded rows, and open files.

    Each open Parquet writer keeps a descriptor and its column writers; 1024 descriptors is a common limit of a process.
    """

    buffered_bytes: int = 128 << 20
    open_files: int = 64


@dataclass(slots=True)
class _Part:
    """One unfinished file: the rows that wait for its next row group, and its counts."""

    version: SchemaVersion
    schema_id: str
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    file: NewFile | None = None
    writer: pq.ParquetWriter | None = None
    rows: int = 0
    decoded: DecodedCount = field(default_factory=DecodedCount)
    counts: ChangeCounts = field(default_factory=ChangeCounts)


class SegmentWriter:
    """Writes one segment of `chain`, from the chain's end on. Only the thread that created it uses it.

    `writer` (32 hexadecimal digits) is in the names of the files, so that two writers never share one.
    """

    def __init__(self, chain: Chain, writer: str, limits: SegmentLimits | None = None) -> None:
        if not _WRITER.fullmatch(writer):
            raise ValueError("a writer id has 32 hexadecimal digits")
        self._chain = chain
        self._writer = writer
        self._limits = limits or SegmentLimits()
        self._number = chain.next_number
        self._parts: dict[str, _Part] = {}
        # Parts with an open writer, the least recently used first; and the waiting bytes of all parts. There may be 10,000
        # parts, so no loop over all of them may run for each one.
        self._open: OrderedDict[str, None] = OrderedDict()
        self._waiting_bytes = 0
        self._done: list[tuple[NewFile, SegmentFile]] = []
        self._made = 0
        self._schemas: list[SchemaEntry] = []
        self._messages = LogicalMessageWriter(self._create)
        self._first_us: int | None = None
        self._last_us: int | None = None
        self._last: LandedCommit | None = None
        self.rows = 0
        self.transactions = 0

    def add(self, batch: Batch) -> None:
        """Add a decoded batch; `_lp_row` then counts over the whole segment.

        Rows may be written out at once; nothing is visible before `finish`.
        """
        base = self.rows
        for changes in batch.changes:
            self._add_changes(changes, base)
            self.rows += changes.rows.num_rows
        self.transactions += batch.transactions
        self.announce(batch.schemas)
        self._messages.add(batch.logical_messages)
        if batch.first_commit_time_us is not None:
            self._first_us = min(batch.first_commit_time_us, self._first_us or batch.first_commit_time_us)
        if batch.last_commit_time_us is not None:
            self._last_us = max(batch.last_commit_time_us, self._last_us or batch.last_commit_time_us)
        if self._waiting_bytes > self._limits.buffered_bytes:
            self._write_largest()

    def announce(self, schemas: Iterable[SchemaInForce]) -> None:
        """Add versions that came into force, in stream order."""
        self._schemas += [SchemaEntry(s.version, s.from_lsn, s.from_seq) for s in schemas]

    def finish(self, end: Lsn, catalog_lsn: Lsn | None = None) -> Manifest:
        """Make the files durable, then append the manifest of (chain's end, `end`]: a progress range if it has no rows.

        `catalog_lsn` is the manifest's; by default its predecessor's. Raises FencedError if another writer has the number.
        The writer can't be used afterwards.
        """
        if self._last is not None and self._last.end_lsn > end:
            raise InvariantError(
                f"segment {self._number}", f"it is to end at {end}, before the last of its changes", "report this"
            )
        while self._parts:
            # Room for one may be made by closing another.
            self._close(next(iter(self._parts)))
        files = [entry for _, entry in self._done]
        message_file = self._messages.finish(self._chain.lake.paths.landing(self._chain.incarnation))
        written = [file for file, _ in self._done] + ([message_file[0]] if message_file else [])
        self._chain.lake.store.sync_names([file.key for file in written])
        failpoint("drain.after_data_files")
        manifest = Manifest(
            kind=Kind.SEGMENT if written else Kind.PROGRESS,
            number=self._number,
            incarnation=self._chain.incarnation,
            start_lsn=self._chain.end,
            end_lsn=end,
            previous_sha256="",
            writer=self._writer,
            created_at=now_text(),
            transactions=self.transactions if files else 0,
            last_commit=self._last,
            first_commit_us=self._first_us if files else None,
            last_commit_us=self._last_us if files else None,
            schemas=tuple(self._schemas),
            files=tuple(files),
            logical_messages=(message_file[1],) if message_file else (),
            catalog_lsn=self._chain.newest.catalog_lsn if catalog_lsn is None else catalog_lsn,
        )
        # From here on the manifest may exist, whatever the outcome (a folder that could not be synced, a lost reply): the
        # files are no longer ours to remove, and `sweep` decides about them.
        self._done, self._messages = [], LogicalMessageWriter(self._create)
        return self._chain.append(manifest)

    def abandon(self) -> None:
        """Remove the files that the chain has not got yet; may be called at any time, any number of times."""
        for part in self._parts.values():
            if part.writer is not None:
                with suppress(OSError):
                    part.writer.close()
            if part.file is not None:
                part.file.abandon()
        for file, _ in self._done:
            file.abandon()
        self._messages.abandon()
        self._parts.clear()
        self._open.clear()
        self._done.clear()

    def _add_changes(self, changes: TableChanges, base: int) -> None:
        rows = changes.rows
        if rows.num_rows == 0:
            return
        if rows.column(LSN)[0].as_py() <= self._chain.end.value:
            raise InvariantError(
                f"segment {self._number}", "a change came again that the chain has already", "report this"
            )
        schema_id = changes.version.id
        part = self._parts.get(schema_id)
        if part is None:
            part = self._parts[schema_id] = _Part(changes.version, schema_id)
        if base:
            index = rows.schema.get_field_index(ROW)
            shifted = pc.add(rows.column(index), pa.scalar(base, pa.int64()))
            rows = rows.set_column(index, rows.schema.field(index), shifted)
        self._note_commit(rows)
        part.waiting.append(rows)
        part.waiting_rows += rows.num_rows
        part.waiting_bytes += rows.nbytes
        self._waiting_bytes += rows.nbytes
        part.rows += rows.num_rows
        part.counts += changes.counts
        if part.waiting_rows >= ROW_GROUP_ROWS or part.waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group(part)

    def _note_commit(self, rows: pa.RecordBatch) -> None:
        end = Lsn(rows.column(LSN)[-1].as_py())
        if self._last is None or end > self._last.end_lsn:
            xid, time = rows.column(XID)[-1].as_py(), rows.column(COMMIT_TIME)[-1].value
            self._last = LandedCommit(end, Xid(xid), time)

    def _write_largest(self) -> None:
        """Write out the largest parts first, until half of the limit is free."""
        for part in sorted(self._parts.values(), key=lambda p: p.waiting_bytes, reverse=True):
            if 2 * self._waiting_bytes <= self._limits.buffered_bytes:
                return
            self._write_group(part)

    def _write_group(self, part: _Part) -> None:
        table = pa.Table.from_batches(part.waiting)
        if part.writer is None:
            while len(self._open) >= self._limits.open_files:
                self._close(next(iter(self._open)))
            part.file = self._create()
            part.writer = open_parquet(
                part.file, table.schema, dictionaries=_DICTIONARY_COLUMNS, statistics=_STATISTICS_COLUMNS
            )
        self._open[part.schema_id] = None
        self._open.move_to_end(part.schema_id)
        part.writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
        part.decoded.add(table)
        self._waiting_bytes -= part.waiting_bytes
        part.waiting, part.waiting_rows, part.waiting_bytes = [], 0, 0

    def _create(self) -> NewFile:
        name = f"{self._number:020d}-{self._writer}-{self._made:04d}.parquet"
        self._made += 1
        return self._chain.lake.store.create(f"{self._chain.lake.paths.data(self._chain.incarnation)}/{name}")

    def _close(self, key: str) -> None:
        """Finish a part's file, durably except for its name."""
        part = self._parts[key]
        if part.waiting:
            self._write_group(part)
        if part.file is None or part.writer is None:
            raise InvariantError(f"segment {self._number}", "a part of it has no rows", "report this")
        part.writer.close()
        part.file.finish()
        entry = SegmentFile(
            path=part.file.key.removeprefix(self._chain.lake.paths.landing(self._chain.incarnation) + "/"),
            oid=part.version.oid,
            schema_id=part.schema_id,
            table=part.version.table,
            rows=part.rows,
            bytes=part.file.bytes_written,
            sha256=part.file.sha256,
            decoded=part.decoded.so_far,
            counts=part.counts,
        )
        self._done.append((part.file, entry))
        del self._parts[key]
        self._open.pop(key, None)
