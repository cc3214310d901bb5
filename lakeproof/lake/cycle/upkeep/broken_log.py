"""Goes on in a Delta table that can't be read: with another log, or with another history.

Taking commits that no cut names out of a sound log is in `lakeproof.lake.delta.log.cleaned`, as are the files of a log. A
history with rows that nobody wrote is for `lakeproof.proof.lake.history`.

A log that can't be read begins again with a state without rows, above all that a cut names:

    V-1 ── (V is damaged, or gone) ── V+1: a checkpoint without rows ── what a snapshot brings

The versions before keep their numbers and files: what older cuts name is never another table's, and whoever can still read
it reads what it was. A checkpoint needs nothing of the log before it, and Delta begins with it.

A history of which a file can't be read:

    found by maintenance, which reads history     the table is held, `history_lost`: so it stays, whatever else holds it
    a copy enters, the file was restored          history goes on
    a copy enters, the file was not restored      history begins again with the copy: what was before it is gone
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lakeproof.errors import LakeError
from lakeproof.lake.columns import (
    in_lake,
    lake_types,
    layer_columns,
    layer_statistics,
)
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.cleaned import begin_at, remove_unreadable
from lakeproof.lake.delta.log.commits import LogGapError, is_within
from lakeproof.lake.delta.log.protocol import metadata_of, new_fields
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.file_rows import names_in_files
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lake.spark.failures import reading
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import Layer, TableName
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def is_broken(path: str, version: int) -> bool:
    """True if the log is damaged or not whole up to `version`, which a cut names; reads it from its last checkpoint on.

    A file that exists and can't be read just now (too many are open, a disk's error) raises OSError: nothing is known then.
    """
    try:
        table_files(path, version)
    except LakeError:
        return True
    return False


def on_sound_logs(spark: SparkOnDemand, context: CycleContext, task: TableTask) -> TableTask:
    """Return the task on top of readable logs: if a copy enters, an unreadable log is begun again without a row.

    A history that was lost and whose files somebody has restored is lost no more.

    Nothing is synced here: the cycle syncs what is above the cut's versions before the next cut names it.
    """
    cut_table, lake = task.before, context.lease.lake
    entry = task.entry
    if entry is None or cut_table is None:
        return task
    current, history = lake.url(lake.paths.current(task.table)), lake.url(lake.paths.history(task.table))
    is_lost = "history" in entry.unreadable and not is_broken(history, cut_table.history_version)
    if is_lost and can_be_read(spark.get(), lake, task.table, cut_table):
        entry = replace(entry, unreadable=entry.unreadable - {"history"})
    if is_broken(current, cut_table.current_version):
        version = _begin_again(context, task, "current", current, cut_table.current_version)
        cut_table, entry = replace(cut_table, current_version=version), entry.without("current")
    if is_broken(history, cut_table.history_version):
        version = _begin_again(context, task, "history", history, cut_table.history_version)
        cut_table, entry = replace(cut_table, history_version=version), entry.without("history")
    return replace(task, before=cut_table, work=entry)


def _begin_again(context: CycleContext, task: TableTask, layer: Layer, path: str, version: int) -> int:
    """Give the version after `version` a state without rows; what is above it goes first, since nobody can read it."""
    context.lease.check()
    remove_unreadable(path, version)
    schema = in_lake(task.version)
    columns = layer_columns(schema, layer)
    options = context.table_spec(task.table, layer_statistics(schema, layer)).options(columns)
    in_file = names_in_files(schema, columns)
    metadata = metadata_of(new_fields(lake_types(schema, columns)), options, physical=in_file)
    # It has the cycle's note, and not its transaction: the commit of the rows comes on top of it.
    begin_at(path, version + 1, metadata, context.commit_info(layer, task.table).user_metadata)
    return version + 1


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
