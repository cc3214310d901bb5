"""A history of which a file can't be read: how its table is held, and whether the file was restored when a copy enters.

A history whose log can't be read is for `broken_log`, a history with rows that nobody wrote for
`lakeproof.proof.lake.history`.

    found by maintenance, which reads history     the table is held, `history_lost`: so it stays, whatever else holds it
    a copy enters, the file was restored          history goes on
    a copy enters, the file was not restored      history begins again with the copy: what was before it is gone
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.log.commits import LogGapError, is_within
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lake.spark.failures import reading
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class HistoryLostError(TableHeldError):
    """A file of the table's history can't be read."""


def lost_history(lake: SourceLake, table: TableName, unreadable: str | None) -> HistoryLostError | None:
    """Return the error of a table of which the file `unreadable` can't be read; None if that is no file of its history.

    The copy's effect can't be undone, so the way out is not a copy alone: nobody makes it unasked.
    """
    if unreadable is None or not is_within(lake.url(lake.paths.history(table)), unreadable):
        return None
    cause, way_out = HeldCause.HISTORY_UNREADABLE, WayOut.RESTORE_FILE_OR_SNAPSHOT
    return HistoryLostError(str(table), cause, way_out, {"file": unreadable})


def can_be_read(session: SparkSession, lake: SourceLake, table: TableName, cut_table: CutTable) -> bool:
    """True if every file of a history can be read; reads them in the caller's own `session`."""
    # Imported here because they import Spark.
    from lakeproof.lake.delta.versions import read_layer
    from lakeproof.lake.rows.history_sum import sum_of

    fit_table(session, cut_table.row_bytes, cut_table.version)
    with reading(session, LogGapError) as attempt:
        sum_of(in_lake(cut_table.version), read_layer(session, lake, table, cut_table, "history"))
    return attempt.error is None
