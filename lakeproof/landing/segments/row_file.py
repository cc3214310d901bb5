"""Writes one file of a segment: rows of one table under one schema version, counted and summed on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import COMMIT_TIME, LSN, OP, TEXT, UNCHANGED, XID
from lakeproof.landing.segments.decoded_size import DecodedCount
from lakeproof.landing.segments.file_columns import columns_with_statistics, file_names
from lakeproof.landing.segments.manifest import SegmentFile
from lakeproof.schema import SchemaVersion
from lakeproof.storage.parquet import abandon, open_parquet
from lakeproof.storage.store import NewFile
from lakeproof.values.cast import MARKED

if TYPE_CHECKING:
    from lakeproof.landing.segments.row_sums import RowSum

# Values that repeat over a transaction. Data columns stay plain: building a dictionary that overflows is wasted work.
_DICTIONARY_COLUMNS = [LSN, OP, XID, COMMIT_TIME]


class RowFile:
    """One file, which `create` makes when the first rows come. One thread at a time uses it."""

    def __init__(self, version: SchemaVersion, create: Callable[[], NewFile]) -> None:
        self._version = version
        self._create = create
        self._file: NewFile | None = None
        self._writer: pq.ParquetWriter | None = None
        self._sum: RowSum | None = None
        self._decoded = DecodedCount()
        self._refused = 0
        self._rows = 0

    def write(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write a row group."""
        rows = self._counted(batches)
        if self._writer is None:
            self._file = self._create()
            statistics = columns_with_statistics(self._version, rows.schema)
            self._writer = open_parquet(
                self._file,
                rows.schema,
                dictionaries=_DICTIONARY_COLUMNS,
                statistics=statistics,
                row_bytes=rows.nbytes // rows.num_rows,
            )
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        self._rows += rows.num_rows

    def close(self) -> None:
        """Write the footer: only `finish` is left."""
        if self._writer is not None:
            self._writer.close()

    def finish(self, folder: str, counts: ChangeCounts) -> tuple[NewFile, SegmentFile]:
        """Make the file, which is closed, durable except for its name; the entry's path is below `folder`."""
        if self._file is None or self._sum is None:
            raise InvariantError(f"landing {folder}", "a file of a segment has no rows", "report this")
        self._file.finish()
        return self._file, SegmentFile(
            path=self._file.key.removeprefix(f"{folder}/"),
            oid=self._version.oid,
            schema_id=self._version.id,
            table=self._version.table,
            rows=self._rows,
            bytes=self._file.bytes_written,
            sha256=self._file.sha256,
            sum=self._sum.total,
            refused=self._refused,
            decoded=self._decoded.so_far,
            counts=counts,
        )

    def abandon(self) -> None:
        """Remove what was written."""
        abandon(self._writer, self._file)

    def _counted(self, batches: Sequence[pa.RecordBatch]) -> pa.Table:
        """Return the rows under the names of their file, counted and summed."""
        # Imported here because it imports the compiler, which only a process that decodes should load.
        from lakeproof.landing.segments.row_sums import RowSum

        rows = pa.Table.from_batches(batches)
        names = file_names(self._version)
        rows = rows.rename_columns([*rows.column_names[: rows.num_columns - len(names)], *names])
        if self._sum is None:
            self._sum = RowSum({name: c.attnum for name, c in zip(names, self._version.columns, strict=True)})
        self._sum.add(rows.drop_columns([UNCHANGED]))
        text = rows.column(TEXT)
        if text.null_count < len(text):
            self._refused += pc.sum(pc.starts_with(text, MARKED)).as_py() or 0
        self._decoded.add(rows)
        return rows
