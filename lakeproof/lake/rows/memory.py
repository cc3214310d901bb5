"""How many rows Spark looks at together, by the largest row of a table; and rows that are too large for the driver.

How large rows are is counted where they are written (`lakeproof.landing.decoded_size`); settings that do not follow
from a table belong to `session`.

Spark and Parquet count rows where they should count octets: a reader takes 4,096 rows at a time, a writer looks at its
memory after 100 and a window keeps 4,096, whatever their size. That is quick for ordinary rows and kills the driver where
each has a document of megabytes. So a table whose rows may be large is read and written in a session of its own with as few
rows at a time as stay below `TOGETHER_BYTES`; every other keeps Spark's own numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import TableError
from lakeproof.lake.records.documents import RESNAPSHOT, CutTable
from lakeproof.landing.reader import Slice
from lakeproof.names import TableName
from lakeproof.snapshot.state import SnapshotTable

# What rows that are looked at together may take, in each task and at each place that collects some; less, where this part of
# the driver's memory is less.
TOGETHER_BYTES = 16 << 20
_TOGETHER_SHARE = 128
# Where all of Spark's own numbers are kept: what its reader takes.
ROWS_TOGETHER_MAX = 4_096
# The driver's memory in rows of the largest size that it can still write: a value is copied by the reader, the sort, the
# writer and its compression, each of which doubles what it grows by.
COPIES = 12
_WRITER_ROWS = 100
# Rows that are kept for a second look stay on disk alone where fewer than so many are looked at together.
_KEPT_ROWS_MIN = 512
_ON_DISK = "lakeproof.keptOnDisk"


def largest_row(before: CutTable | None, entering: SnapshotTable | None, files: Iterable[Slice]) -> int:
    """What a row of a table may take at most, of all that is read and written for it."""
    there = 0 if before is None else before.row_bytes
    coming = 0 if entering is None else entering.row_bytes
    return max(there, coming, max((piece.file.decoded.row for piece in files), default=0))


def fit(session: SparkSession, row_bytes: int) -> None:
    """Make the caller's own `session` (`newSession()`) read and write rows of this size."""
    if not settings(row_bytes):
        return
    for name, value in settings(row_bytes, min(TOGETHER_BYTES, driver_bytes(session) // _TOGETHER_SHARE)).items():
        session.conf.set(name, value)


def settings(row_bytes: int, together: int = TOGETHER_BYTES) -> dict[str, str]:
    """What `fit` sets; nothing for rows of an ordinary size."""
    rows = max(1, together // max(1, row_bytes))
    if rows >= ROWS_TOGETHER_MAX:
        return {}
    return {
        "spark.sql.parquet.columnarReaderBatchSize": str(rows),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
        "spark.sql.windowExec.buffer.in.memory.threshold": str(rows),
        "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": str(rows),
        _ON_DISK: str(rows < _KEPT_ROWS_MIN).lower(),
        # Of Parquet's writer, through Hadoop's settings: both its pages and its row groups go by them.
        "parquet.page.size.row.check.min": str(min(rows, _WRITER_ROWS)),
        "parquet.page.size.row.check.max": str(rows),
    }


def keep(rows: DataFrame) -> DataFrame:
    """`rows` persisted: in memory and beyond it on disk, or on disk alone where `fit` has said that they are large.

    Spark's memory for what it keeps is half of the heap, and does not know how little of it large arrays leave.
    """
    on_disk = rows.sparkSession.conf.get(_ON_DISK, "false") == "true"
    return rows.persist(StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK_DESER)


def refuse_too_large(session: SparkSession, table: TableName, row_bytes: int) -> None:
    """Raise TableError where a row would not go through the driver's memory, rather than let it die."""
    heap = driver_bytes(session)
    if row_bytes * COPIES > heap:
        needed = -(-row_bytes * COPIES >> 30)
        raise TableError(
            str(table),
            f"it has a row of up to {row_bytes >> 20} MiB, more than goes through a driver of {heap >> 20} MiB",
            f"set spark.driver_memory to {needed}g or more, then {RESNAPSHOT}",
        )


def driver_bytes(session: SparkSession) -> int:
    """The driver's heap."""
    jvm = cast("Any", session._jvm)  # noqa: SLF001  no public name for it
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())
