"""The logical messages of one segment, and its transactions' origins, in a Parquet file beside those of the rows.

FORMAT.md says what the columns mean; `segment.py` makes the file visible. Memory: at most `GROUP_BYTES` wait for a row
group, and the message that goes beyond that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.hidden_columns import COMMIT_NUMBER, COMMIT_TIME, LSN, MESSAGE, SEQ, XID
from lakeproof.landing.segments.manifest import LogicalMessageFile
from lakeproof.lsn import Lsn
from lakeproof.pgoutput.messages import LogicalMessage, Origin
from lakeproof.pgoutput.rows import StreamMessage
from lakeproof.storage.parquet import abandon
from lakeproof.storage.store import NewFile
from lakeproof.values.commit_times import is_of_calendar, number_of

GROUP_BYTES = 16 << 20
_MESSAGE_OVERHEAD_BYTES = 500  # of the Python objects that stand for one
KINDS = ("message", "origin")
SCHEMA = pa.schema(
    [
        (LSN, pa.int64()),
        (SEQ, pa.int64()),
        (MESSAGE, pa.int64()),
        (XID, pa.int64()),
        (COMMIT_TIME, pa.timestamp("us", "UTC")),
        (COMMIT_NUMBER, pa.int64()),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("lsn", pa.uint64()),
        ("name", pa.string()),
        ("content", pa.binary()),
    ]
)


class LogicalMessageWriter:
    """Writes the file of one segment, which `create` makes when the first message comes."""

    def __init__(self, create: Callable[[], NewFile]) -> None:
        self._create = create
        self._waiting: list[StreamMessage] = []
        self._waiting_bytes = 0
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._count = 0

    def add(self, messages: Sequence[StreamMessage]) -> None:
        """Add messages in stream order."""
        for placed in messages:
            self._waiting.append(placed)
            self._waiting_bytes += _MESSAGE_OVERHEAD_BYTES
            if isinstance(placed.message, LogicalMessage):
                self._waiting_bytes += len(placed.message.prefix) + len(placed.message.content)
            if self._waiting_bytes >= GROUP_BYTES:
                self._write()

    def finish(self, folder: str) -> tuple[NewFile, LogicalMessageFile] | None:
        """Make the file durable except for its name; None without messages. The entry's path is below `folder`."""
        if self._waiting:
            self._write()
        if self._writer is None or self._file is None:
            return None
        self._writer.close()
        self._file.finish()
        path = self._file.key.removeprefix(f"{folder}/")
        return self._file, LogicalMessageFile(path, self._count, self._file.bytes_written, self._file.sha256)

    def abandon(self) -> None:
        """Remove what was written."""
        abandon(self._writer, self._file)

    def _write(self) -> None:
        if self._writer is None:
            self._file = self._create()
            self._writer = pq.ParquetWriter(self._file, SCHEMA, compression="zstd")
        self._writer.write_batch(_batch(self._waiting, self._count))
        self._count += len(self._waiting)
        self._waiting, self._waiting_bytes = [], 0


def _batch(placed: Sequence[StreamMessage], first: int) -> pa.RecordBatch:
    transactions = [p.transaction for p in placed]
    times = [None if t is None else t.commit_time_us for t in transactions]
    items = [p.message for p in placed]
    messages = [item if isinstance(item, LogicalMessage) else None for item in items]
    kinds = pa.array([0 if message is not None else 1 for message in messages], pa.int8())
    columns = [
        pa.array([(p.transaction.end_lsn if p.transaction else _lsn(p.message)).value for p in placed], pa.int64()),
        pa.array([p.seq for p in placed], pa.int64()),
        pa.array(range(first, first + len(placed)), pa.int64()),
        pa.array([t and t.xid for t in transactions], pa.int64()),
        pa.array([us if us is not None and is_of_calendar(us) else None for us in times], pa.timestamp("us", "UTC")),
        pa.array([None if us is None or is_of_calendar(us) else number_of(us) for us in times], pa.int64()),
        pa.DictionaryArray.from_arrays(kinds, pa.array(KINDS, pa.string())),
        pa.array([_lsn(item).value for item in items], pa.uint64()),
        pa.array([item.prefix if isinstance(item, LogicalMessage) else item.name for item in items], pa.string()),
        pa.array([message and message.content for message in messages], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _lsn(message: LogicalMessage | Origin) -> Lsn:
    return message.lsn if isinstance(message, LogicalMessage) else message.origin_lsn
