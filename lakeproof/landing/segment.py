"""Writing one segment: the Parquet files of one link, then the manifest that makes them visible.

Decoding belongs to `lakeproof.pgoutput`, deciding when a segment ends to `lakeproof.drain`.

    Batch → a buffer per table and schema version → row groups → files, synced → folder, synced → manifest

Memory: at most `drain.segment_bytes` of Arrow data wait for a row group, over all tables, and at most `drain.segment_files`
Parquet writers are open, however many tables a segment has: the one used least recently is finished, and a table that comes
again gets another file. Nothing is visible before the manifest is: a crash leaves files that nobody names.
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

from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.landing.chain import Chain
from lakeproof.landing.decoded_size import DecodedCount
from lakeproof.landing.logical_messages import NotesWriter
from lakeproof.landing.manifest import COUNTS, DataFile, Kind, LandedCommit, Manifest, SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Xid
from lakeproof.pgoutput.rows import Batch, SchemaInForce, TableChanges
from lakeproof.schema import SchemaVersion
from lakeproof.storage.fields import now_text
from lakeproof.storage.parquet import open_parquet
from lakeproof.storage.store import NewFile

# A row group is the unit a reader holds in memory; below 100 k rows zstd and the footer cost more per row.
ROW_GROUP_ROWS = 131_072
ROW_GROUP_BYTES = 64 << 20
# Values that repeat over a transaction; data columns are left plain (a dictionary that overflows is work for nothing).
_DICTIONARY_COLUMNS = ["_lp_lsn", "_lp_op", "_lp_xid", "_lp_commit_time"]
_STATISTICS_COLUMNS = ["_lp_lsn", "_lp_row"]
_WRITER = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """What a segment in the making may keep: decoded rows, and open files.

    Each open Parquet writer keeps a descriptor and its column writers; 1024 descriptors is a common limit of a process.
    """

    buffered_bytes: int = 128 << 20
    open_files: int = 64


@dataclass(slots=True)
class _Part:
    """One file in the making: what waits for its next row group, and its counts."""

    version: SchemaVersion
    schema_id: str
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_rows: int = 0
    waiting_bytes: int = 0
    file: NewFile | None = None
    writer: pq.ParquetWriter | None = None
    rows: int = 0
    decoded: DecodedCount = field(default_factory=DecodedCount)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


class SegmentWriter:
    """One segment of `chain`, from its end on. Made by one thread, used by that thread.

    `writer` (32 hexadecimal digits) is in the names of the files, so that two writers never meet in one.
    """

    def __init__(self, chain: Chain, writer: str, limits: SegmentLimits | None = None) -> None:
        if not _WRITER.fullmatch(writer):
            raise ValueError("a writer id has 32 hexadecimal digits")
        self._chain = chain
        self._writer = writer
        self._limits = limits or SegmentLimits()
        self._number = chain.next_number
        self._parts: dict[str, _Part] = {}
        # Those with an open writer, the one used least recently first; and what waits, over all parts: with 10,000 of them
        # nothing may look at each one for each one.
        self._open: OrderedDict[str, None] = OrderedDict()
        self._waiting_bytes = 0
        self._done: list[tuple[NewFile, DataFile]] = []
        self._made = 0
        self._schemas: list[SchemaEntry] = []
        self._notes = NotesWriter(self._create)
        self._first_us: int | None = None
        self._last_us: int | None = None
        self._last: LandedCommit | None = None
        self.rows = 0
        self.transactions = 0

    def add(self, batch: Batch) -> None:
        """Take in what was decoded; `_lp_row` is made to count over the whole segment.

        Rows may be written out at once; nothing is visible before `finish`.
        """
        base = self.rows
        for changes in batch.changes:
            self._add_changes(changes, base)
            self.rows += changes.rows.num_rows
        self.transactions += batch.transactions
        self.announce(batch.schemas)
        self._notes.add(batch.notes)
        if batch.first_commit_time_us is not None:
            self._first_us = min(batch.first_commit_time_us, self._first_us or batch.first_commit_time_us)
        if batch.last_commit_time_us is not None:
            self._last_us = max(batch.last_commit_time_us, self._last_us or batch.last_commit_time_us)
        if self._waiting_bytes > self._limits.buffered_bytes:
            self._write_largest()

    def announce(self, schemas: Iterable[SchemaInForce]) -> None:
        """Name versions that came into force, in stream order."""
        self._schemas += [SchemaEntry(s.version, s.from_lsn, s.from_seq) for s in schemas]

    def finish(self, end: Lsn, catalog_lsn: Lsn | None = None) -> Manifest:
        """Make the files durable, then append the manifest of (chain's end, `end`]: a progress range without rows.

        `catalog_lsn` is the manifest's; where it is not given, its predecessor's.

        Raises FencedError where another writer has the number. The writer is of no use afterwards.
        """
        if self._last is not None and self._last.end_lsn > end:
            raise InvariantError(
                f"segment {self._number}", f"it is to end at {end}, before the last of its changes", "report this"
            )
        while self._parts:
            # Room for one may be made by closing another.
            self._close(next(iter(self._parts)))
        files = [entry for _, entry in self._done]
        noted = self._notes.finish(self._chain.paths.landing(self._chain.incarnation))
        written = [file for file, _ in self._done] + ([noted[0]] if noted else [])
        self._chain.store.settle([file.key for file in written])
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
            notes=(noted[1],) if noted else (),
            catalog_lsn=self._chain.newest.catalog_lsn if catalog_lsn is None else catalog_lsn,
        )
        # From here on the manifest may stand, whatever the answer is (a folder that could not be synced, a reply that was
        # lost): the files are no longer ours to remove, and `sweep` decides about them.
        self._done, self._notes = [], NotesWriter(self._create)
        return self._chain.append(manifest)

    def abandon(self) -> None:
        """Remove what was written and is not in the chain's hands; may be called at any time, any number of times."""
        for part in self._parts.values():
            if part.writer is not None:
                with suppress(OSError):
                    part.writer.close()
            if part.file is not None:
                part.file.abandon()
        for file, _ in self._done:
            file.abandon()
        self._notes.abandon()
        self._parts.clear()
        self._open.clear()
        self._done.clear()

    def _add_changes(self, changes: TableChanges, base: int) -> None:
        rows = changes.rows
        if rows.num_rows == 0:
            return
        if rows.column("_lp_lsn")[0].as_py() <= self._chain.end.value:
            raise InvariantError(
                f"segment {self._number}", "a change came again that the chain has already", "report this"
            )
        schema_id = changes.version.id
        part = self._parts.get(schema_id)
        if part is None:
            part = self._parts[schema_id] = _Part(changes.version, schema_id)
        if base:
            at = rows.schema.get_field_index("_lp_row")
            rows = rows.set_column(at, rows.schema.field(at), pc.add(rows.column(at), pa.scalar(base, pa.int64())))
        self._note_commit(rows)
        part.waiting.append(rows)
        part.waiting_rows += rows.num_rows
        part.waiting_bytes += rows.nbytes
        self._waiting_bytes += rows.nbytes
        part.rows += rows.num_rows
        for name in COUNTS:
            part.counts[name] += getattr(changes.counts, name)
        if part.waiting_rows >= ROW_GROUP_ROWS or part.waiting_bytes >= ROW_GROUP_BYTES:
            self._write_group(part)

    def _note_commit(self, rows: pa.RecordBatch) -> None:
        end = Lsn(rows.column("_lp_lsn")[-1].as_py())
        if self._last is None or end > self._last.end_lsn:
            xid, time = rows.column("_lp_xid")[-1].as_py(), rows.column("_lp_commit_time")[-1].value
            self._last = LandedCommit(end, Xid(xid), time)

    def _write_largest(self) -> None:
        """The parts with the most first, until half of the limit is free."""
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
        return self._chain.store.create(f"{self._chain.paths.data(self._chain.incarnation)}/{name}")

    def _close(self, key: str) -> None:
        """Finish a part's file, durably but for its name."""
        part = self._parts[key]
        if part.waiting:
            self._write_group(part)
        if part.file is None or part.writer is None:
            raise InvariantError(f"segment {self._number}", "a part of it has no rows", "report this")
        part.writer.close()
        part.file.finish()
        entry = DataFile(
            path=part.file.key.removeprefix(self._chain.paths.landing(self._chain.incarnation) + "/"),
            oid=part.version.oid,
            schema_id=part.schema_id,
            table=part.version.table,
            rows=part.rows,
            bytes=part.file.bytes_written,
            sha256=part.file.sha256,
            decoded=part.decoded.so_far,
            **part.counts,
        )
        self._done.append((part.file, entry))
        del self._parts[key]
        self._open.pop(key, None)
