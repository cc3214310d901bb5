"""Goes on in a Delta table whose log can't be read: begins it again with a state without rows, above all that a cut names.

Taking commits that no cut names out of a sound log is in `lakeproof.lake.delta.log.cleaned`,
as are the files of a log.

    V-1 ── (V is damaged, or gone) ── V+1: a checkpoint without rows ── what a snapshot brings

The versions before keep their numbers and files: what older cuts name is never another table's, and whoever can still read
it reads what it was. A checkpoint needs nothing of the log before it, and Delta begins with it.
"""

from __future__ import annotations

from dataclasses import replace

from lakeproof.errors import LakeError
from lakeproof.lake.columns import (
    current_columns,
    current_statistics,
    history_columns,
    history_statistics,
    in_lake,
    lake_types,
)
from lakeproof.lake.cycle.entries.lost_history import can_be_read
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.cleaned import begin_at, remove_unreadable
from lakeproof.lake.delta.log.protocol import metadata_of, new_fields
from lakeproof.lake.rows.file_rows import in_files
from lakeproof.lake.spark_on_demand import SparkOnDemand


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


def _begin_again(context: CycleContext, task: TableTask, layer: str, path: str, version: int) -> int:
    """Give the version after `version` a state without rows; what is above it goes first, since nobody can read it."""
    context.lease.check()
    remove_unreadable(path, version)
    schema = in_lake(task.version)
    is_history = layer == "history"
    columns = history_columns(schema) if is_history else current_columns(schema)
    statistics = history_statistics(schema) if is_history else current_statistics(schema)
    options = context.table_spec(task.table, statistics).options(columns)
    in_file = in_files(schema, columns)
    metadata = metadata_of(new_fields(lake_types(schema, columns)), options, physical=in_file)
    # It has the cycle's note, and not its transaction: the commit of the rows comes on top of it.
    begin_at(path, version + 1, metadata, context.commit_info(layer, task.table).user_metadata)
    return version + 1
