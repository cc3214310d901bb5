"""A history of which a file can't be read: how its table is held, and whether it was restored when a copy enters.

A history whose log can't be read belongs to `broken_log`, one with rows that nobody wrote to `lakeproof.proof.history`.

    found by maintenance, which reads history     the table is held, `history_lost`: so it stays, whatever else holds it
    a copy enters, the file was restored          history goes on
    a copy enters, and it was not                 history begins again with the copy: what was before it is gone
"""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakeproof.errors import TableError
from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.log import LogGapError
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.records.documents import RESNAPSHOT, CutTable, Held
from lakeproof.lake.rows.history_sum import sum_of
from lakeproof.lake.rows.memory import fit
from lakeproof.lake.spark.failures import raise_unless_about_the_data
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths


class HistoryLostError(TableError):
    """A file of the table's history can't be read."""


def lost_history(paths: LakePaths, table: TableName, unreadable: str | None) -> HistoryLostError | None:
    """The error of a table of which the file `unreadable` can't be read; None if that is no file of its history.

    What the copy does can't be undone, so the remedy is not a copy alone: nobody makes it unasked.
    """
    if unreadable is None or Path(paths.url(paths.history(table))) not in Path(unreadable).parents:
        return None
    remedy = f"restore that file from a backup, or its history begins again with the next copy; then {RESNAPSHOT}"
    return HistoryLostError(str(table), f"its history can't be read: {unreadable}", remedy)


def held_for(error: TableError, at: Lsn) -> Held:
    """How a table is held that stands at `at`."""
    return Held(at, error.reason, error.remedy, history_lost=isinstance(error, HistoryLostError))


def can_be_read(session: SparkSession, paths: LakePaths, table: TableName, at: CutTable) -> bool:
    """Whether every file of a history can be read; reads them in the caller's own `session`."""
    fit(session, at.row_bytes)
    try:
        sum_of(in_lake(at.version), read_layer(session, paths, table, at, "history"))
    except (PySparkException, Py4JJavaError, LogGapError) as error:
        raise_unless_about_the_data(session, error)
        return False
    return True
