"""The notes of one segment: logical messages and transactions' origins, in a Parquet file beside those of the rows.

What the columns mean is in FORMAT.md; finding notes in the bytes belongs to `lakeproof.pgoutput`, making them visible to
`segment.py`. Memory: at most `GROUP_BYTES` wait for a row group, and the note that goes beyond it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.landing.manifest import NoteFile
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.messages import LogicalMessage, Origin
from lakeproof.pgoutput.rows import Note
from lakeproof.storage.store import NewFile

GROUP_BYTES = 16 << 20
_NOTE_OVERHEAD_BYTES = 500  # of the Python objects that stand for one
KINDS = ("message", "origin")
SCHEMA = pa.schema(
    [
        ("_lp_lsn", pa.int64()),
        ("_lp_seq", pa.int64()),
        ("_lp_note", pa.int64()),
        ("_lp_xid", pa.int64()),
        ("_lp_commit_time", pa.timestamp("us", "UTC")),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("lsn", pa.uint64()),
        ("name", pa.string()),
        ("content", pa.binary()),
    ]
)


class NotesWriter:
    """The notes file of one segment, made when the first note comes; `create` gives it a place."""

    def __init__(self, create: Callable[[], NewFile]) -> None:
        self._create = create
        self._waiting: list[Note] = []
        self._waiting_bytes = 0
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._count = 0

    def add(self, notes: Sequence[Note]) -> None:
        """Take in notes in stream order."""
        for note in notes:
            self._waiting.append(note)
            self._waiting_bytes += _NOTE_OVERHEAD_BYTES
            if isinstance(note.said, LogicalMessage):
                self._waiting_bytes += len(note.said.prefix) + len(note.said.content)
            if self._waiting_bytes >= GROUP_BYTES:
                self._write()

    def finish(self, folder: str) -> tuple[NewFile, NoteFile] | None:
        """Make the file durable but for its name; None where there are no notes. The entry's path is below `folder`."""
        if self._waiting:
            self._write()
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.finish()
        path = self._file.key.removeprefix(f"{folder}/")
        return self._file, NoteFile(path, self._count, self._file.bytes_written, self._file.sha256)

    def abandon(self) -> None:
        """Remove what was written."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
        if self._file is not None:
            self._file.abandon()

    def _write(self) -> None:
        if self._writer is None:
            self._file = self._create()
            self._writer = pq.ParquetWriter(self._file, SCHEMA, compression="zstd")
        self._writer.write_batch(_batch(self._waiting, self._count))
        self._count += len(self._waiting)
        self._waiting, self._waiting_bytes = [], 0


def _batch(notes: Sequence[Note], first: int) -> pa.RecordBatch:
    transactions = [note.transaction for note in notes]
    said = [note.said for note in notes]
    messages = [one if isinstance(one, LogicalMessage) else None for one in said]
    kinds = pa.array([0 if message is not None else 1 for message in messages], pa.int8())
    columns = [
        pa.array(
            [(note.transaction.end_lsn if note.transaction else _lsn(note.said)).value for note in notes], pa.int64()
        ),
        pa.array([note.seq for note in notes], pa.int64()),
        pa.array(range(first, first + len(notes)), pa.int64()),
        pa.array([t and t.xid for t in transactions], pa.int64()),
        pa.array([t and t.commit_time_us for t in transactions], pa.timestamp("us", "UTC")),
        pa.DictionaryArray.from_arrays(kinds, pa.array(KINDS, pa.string())),
        pa.array([_lsn(one).value for one in said], pa.uint64()),
        pa.array([one.prefix if isinstance(one, LogicalMessage) else one.name for one in said], pa.string()),
        pa.array([message and message.content for message in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _lsn(said: LogicalMessage | Origin) -> Lsn:
    return said.lsn if isinstance(said, LogicalMessage) else said.origin_lsn
