"""Goes on in a Delta table whose log can't be read: begins it again with a state without rows, above all that a cut names.

Taking commits that no cut names out of a sound log does not belong here but in `lakeproof.lake.delta.cleaned_log`,
nor do the files of a log (`lakeproof.lake.delta.log_restart`).

    V-1 ── (V is damaged, or gone) ── V+1: a checkpoint without rows ── what a snapshot brings

The versions before keep their numbers and files: what older cuts name is never another table's, and whoever can still read
it reads what it was. A checkpoint needs nothing of the log before it, and Delta begins with it.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from lakeproof.errors import LakeError
from lakeproof.lake.columns import current_columns, current_statistics, history_statistics, in_lake
from lakeproof.lake.cycle.lost_history import can_be_read
from lakeproof.lake.cycle.task import CycleContext, TableTask
from lakeproof.lake.delta.commit import TableSpec
from lakeproof.lake.delta.files import table_files
from lakeproof.lake.delta.jvm import Jvm, forget
from lakeproof.lake.delta.log_restart import begin_at, remove_place, remove_unreadable, scratch_place
from lakeproof.lake.fold.history import SNAPSHOT, state_rows
from lakeproof.lake.fold.table_state import empty_rows
from lakeproof.lake.rows.columns import pick
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion


def is_broken(path: str, version: int) -> bool:
    """True if the log is damaged or not whole up to `version`, which a cut names; reads it from its last checkpoint on.

    A file that exists and can't be read just now (too many are open, a disk's error) raises OSError: nothing is known then.
    """
    try:
        table_files(path, version)
    except LakeError:
        return True
    return False


def on_sound_logs(session: SparkSession, context: CycleContext, task: TableTask) -> TableTask:
    """Return the task on top of readable logs: if a copy enters, an unreadable log is begun again without a row.

    A history that was lost and whose files somebody has restored is lost no more.

    Nothing is synced here: the cycle syncs what is above the cut's versions before the next cut names it.
    """
    cut_table, lake = task.before, context.lease.lake
    if task.entry is None or cut_table is None:
        return task
    current, history = lake.url(lake.paths.current(task.table)), lake.url(lake.paths.history(task.table))
    if task.history_lost and not is_broken(history, cut_table.history_version):
        task = replace(task, history_lost=not can_be_read(session, lake, task.table, cut_table))
    if is_broken(current, cut_table.current_version):
        cut_table = replace(
            cut_table,
            current_version=_begin_again(session, context, task, "current", current, cut_table.current_version),
        )
        task = replace(task, before=cut_table, from_scratch=True)
    if is_broken(history, cut_table.history_version):
        cut_table = replace(
            cut_table,
            history_version=_begin_again(session, context, task, "history", history, cut_table.history_version),
        )
        task = replace(task, before=cut_table, history_lost=True)
    return task


def _begin_again(  # noqa: PLR0917  whose table, and which of its two it is
    session: SparkSession, context: CycleContext, task: TableTask, layer: str, path: str, version: int
) -> int:
    """Give the version after `version` a state without rows; what is above it goes first, since nobody can read it."""
    following = version + 1
    context.lease.check()
    remove_unreadable(path, version)
    note = context.commit_info(layer, task.table).user_metadata
    place = scratch_place(path)
    _make(session, place, in_lake(task.version), layer, note, portable=task.table in context.portable)
    begin_at(path, following, place)
    remove_place(place)
    for changed in (place, path):
        forget(session, changed)
    return following


def _make(session: SparkSession, place: str, schema: SchemaVersion, layer: str, note: str, *, portable: bool) -> None:
    """Make a table without rows, and its checkpoint.

    Its commit has the cycle's note, and not the cycle's transaction: Delta would take the commit of the rows for a repeat.
    """
    rows = _nothing(session, schema, layer)
    writer = rows.write.format("delta").option("userMetadata", note).mode("append")
    statistics = history_statistics(schema) if layer == "history" else current_statistics(schema)
    writer.options(**TableSpec(statistics=statistics, portable=portable).options(rows.columns)).save(place)
    jvm = Jvm(session)
    jvm.delta.DeltaLog.forTable(jvm.jsession, place).checkpoint()


def _nothing(session: SparkSession, schema: SchemaVersion, layer: str) -> DataFrame:
    """Return a frame of no rows with the columns of history or current."""
    rows = empty_rows(session, schema)
    if layer == "history":
        return state_rows(schema, rows, SNAPSHOT, Lsn.ZERO)
    return pick(rows, current_columns(schema))
