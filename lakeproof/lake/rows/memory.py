"""The number of rows that Spark processes together, by a table's largest row and its columns; and rows too large for it.

Measuring rows belongs to those who write them (`lakeproof.landing.segments.decoded_size`); settings that do not depend on a
table belong to `spark.session`.

Spark and Parquet count rows where they should count octets: a reader takes 4,096 rows at a time, a writer checks its
memory after 100 and a window keeps 4,096, for rows of any size. That is quick for ordinary rows and kills the driver if
each row has a document of megabytes. So a table whose rows may be large is read and written in its own session
with as few rows at a time as stay below `TOGETHER_BYTES`; every other table keeps Spark's own numbers.

Spark writes and compiles Java for each expression of a plan. For an expression over hundreds of columns (a bag's digest, a
history's sum, a projection) that takes seconds and hundreds of megabytes, for three rows as for a million, and of what is
too large to compile all is lost. So the plans of a table with more than `COMPILED_COLUMNS_MAX` columns are interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakeproof.config.section.spark import is_local
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The most memory that rows processed together may take, in each task and in each buffer; less, if this share of a heap is
# less.
TOGETHER_BYTES = 16 << 20
_TOGETHER_SHARE = 128
# From here on Spark's own numbers are kept: it is what its reader takes.
ROWS_TOGETHER_MAX = 4_096
# A heap in rows of the largest size that it can still write: a value is copied by the reader, the sort, the
# writer and its compression, each of which doubles what it grows by.
COPIES = 12
_WRITER_ROWS = 100
# The least share of a heap for each view that is computed beside others. Tasks are as many as cores, however many views
# there are, and what is kept to be read again goes to disk if it has no room; plans and tables sent to every task do not.
VIEW_HEAP_BYTES = 256 << 20
# The largest table that all views together send to every task; Spark's own number, which is for one query.
BROADCAST_BYTES = 10 << 20
_BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
# Rows that are kept to be read again stay on disk alone if fewer than this number are processed together.
_KEPT_ROWS_MIN = 512
_ON_DISK = "lakeproof.keptOnDisk"
# Spark itself compiles no whole stage over more than 100 (`spark.sql.codegen.maxFields`), but its single expressions.
COMPILED_COLUMNS_MAX = 300
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_EXECUTOR_MEMORY, _EXECUTOR_DEFAULT = "spark.executor.memory", "1g"


def fit_table(session: SparkSession, row_bytes: int, version: SchemaVersion) -> None:
    """Do what `fit` does, and interpret the plans of a table with very many columns."""
    fit(session, row_bytes)
    if len(version.columns) > COMPILED_COLUMNS_MAX:
        for name, value in _INTERPRETED.items():
            session.conf.set(name, value)


def fit(session: SparkSession, row_bytes: int, at_once: int = 1) -> None:
    """Make the caller's own `session` (`newSession()`) read and write rows of this size, beside others of `at_once`.

    Each gets its share of the heap: fewer large rows at a time, and smaller tables that are sent to every task.
    """
    if at_once > 1 and not session.sparkContext.getConf().contains(_BROADCAST):
        session.conf.set(_BROADCAST, str(BROADCAST_BYTES // at_once))
    if settings_for_rows(row_bytes):
        together = min(TOGETHER_BYTES, heap_bytes(session) // at_once // _TOGETHER_SHARE)
        for name, value in settings_for_rows(row_bytes, together).items():
            session.conf.set(name, value)


def views_at_once(session: SparkSession, configured: int) -> int:
    """Return how many of `configured` views are computed at a time: each has `VIEW_HEAP_BYTES`, or one is alone."""
    return max(1, min(configured, heap_bytes(session) // VIEW_HEAP_BYTES))


def settings_for_rows(row_bytes: int, together: int = TOGETHER_BYTES) -> dict[str, str]:
    """Return the settings that `fit` makes; none for rows of an ordinary size."""
    rows = max(1, together // max(1, row_bytes))
    if rows >= ROWS_TOGETHER_MAX:
        return {}
    return {
        "spark.sql.parquet.columnarReaderBatchSize": str(rows),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
        "spark.sql.windowExec.buffer.in.memory.threshold": str(rows),
        "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": str(rows),
        _ON_DISK: str(rows < _KEPT_ROWS_MIN).lower(),
        # Parquet's writer reads these through Hadoop's settings: both its pages and its row groups depend on them.
        "parquet.page.size.row.check.min": str(min(rows, _WRITER_ROWS)),
        "parquet.page.size.row.check.max": str(rows),
    }


def has_ordinary_rows(session: SparkSession) -> bool:
    """True if `fit` has found the session's rows such that Spark's own numbers do: `TOGETHER_BYTES` hold 4,096 of them."""
    return session.conf.get(_ON_DISK, "") == ""


def persist(rows: DataFrame) -> DataFrame:
    """Persist `rows`: in memory and on disk, or on disk alone if `fit` found them large.

    Spark persists in up to half of the heap, and does not know how little of it large arrays leave.
    """
    from pyspark import StorageLevel

    on_disk = rows.sparkSession.conf.get(_ON_DISK, "false") == "true"
    return rows.persist(StorageLevel.DISK_ONLY if on_disk else StorageLevel.MEMORY_AND_DISK_DESER)


def refuse_too_large(session: SparkSession, table: TableName, row_bytes: int) -> None:
    """Raise TableHeldError if a row would not fit through a heap, before it kills the process."""
    heap = heap_bytes(session)
    if row_bytes * COPIES > heap:
        needed = -(-row_bytes * COPIES >> 30)
        detail = {
            "row_mib": str(row_bytes >> 20),
            "driver_mib": str(heap >> 20),
            "driver_gib_needed": str(needed),
        }
        raise TableHeldError(str(table), HeldCause.ROW_TOO_LARGE, WayOut.MORE_MEMORY_THEN_SNAPSHOT, detail)


def heap_bytes(session: SparkSession) -> int:
    """Return the size of the heap that rows pass through: the driver's, or an executor's if that is smaller."""
    jvm: Any = session._jvm  # noqa: SLF001  no public name for it
    driver = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    if is_local(session.sparkContext.master):
        return driver
    executor = session.sparkContext.getConf().get(_EXECUTOR_MEMORY, _EXECUTOR_DEFAULT)
    return min(driver, int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(executor)))
