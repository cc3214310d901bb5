"""A table's logs that somebody else has written or broken: foreign commits, logs that can't be read, a lost history.

Taking our own commits out of a sound log, if no cut names them, is in `lakeproof.lake.delta.log.cleaned`, as are the files
of a log; what a snapshot corrects is in `commits_by_spark`. A history with rows that nobody wrote is for
`lakeproof.proof.lake.history`.

Foreign commits are looked for before a cycle writes a table, and taken back when a snapshot of it enters:

    V ── foreign ── …                        the table is held at V: a cut names V, so readers never see the foreign commit
    V ── foreign ── RESTORE to V ── ours     a snapshot enters: both tables are what V was again, then the difference is made

Both tables are read before either is written, so a table that is held has no commit of the cycle. The RESTORE carries the
cycle's `userMetadata`, and is made on the newest version or not at all.

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

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from lakeproof.errors import LakeError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import (
    in_lake,
    lake_types,
    layer_columns,
)
from lakeproof.lake.cycle.task import CycleTable, TableTask
from lakeproof.lake.delta.committer import commit_number
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.cleaned import CleanedLog, begin_at, clean_log, remove_unreadable, restore
from lakeproof.lake.delta.log.commits import NO_VERSION, DeltaCommit, ForeignCommitError, LogGapError, is_within
from lakeproof.lake.delta.log.protocol import metadata_of, new_fields
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.file_rows import names_in_files
from lakeproof.lake.rows.memory import fit_table
from lakeproof.lake.spark.failures import reading
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import LAYERS, Layer, TableName
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def hold_for_foreign_commits(table: TableName) -> Iterator[None]:
    """Turn a foreign commit or a log's gap in the block into TableHeldError: the table is held, the others go on."""
    try:
        yield
    except (ForeignCommitError, LogGapError) as error:
        cause = HeldCause.LOG_DAMAGED if isinstance(error, LogGapError) else HeldCause.FOREIGN_COMMIT
        # A copy begins a log that can't be read again. History's past is lost with it, so that is not done unasked.
        lost = error.layer == "history" and isinstance(error, LogGapError)
        way_out = WayOut.RESTORE_LOG_OR_SNAPSHOT if lost else WayOut.SNAPSHOT
        detail = {"layer": error.layer, "path": error.path, "problem": error.reason}
        raise TableHeldError(str(table), cause, way_out, detail) from None


def without_foreign_commits(target: CycleTable, before: CutTable | None, *, take_back: bool) -> CutTable | None:
    """Return `before` with the versions that the cycle writes on; what no cut names is taken out of both logs first.

    Raises TableHeldError if somebody else has committed to one of both tables since, unless `take_back` undoes it.
    """
    versions = {layer: NO_VERSION if before is None else before.version_of(layer) for layer in LAYERS}

    def is_ours(commit: DeltaCommit) -> bool:
        number = commit_number(commit, f"lakeproof/{target.lake.source}/")
        # If no cut has the table and later cycles have written it, its cuts were lost: a person looks at it.
        return number is not None and (before is not None or number <= target.intent.number)

    check = target.lease.check
    logs = {layer: clean_log(target.path(layer), versions[layer], is_ours, check) for layer in LAYERS}
    foreign: list[Layer] = [layer for layer, log in logs.items() if log.foreign]
    for layer in foreign:
        _refuse(target, layer, logs[layer], before, take_back=take_back)
    versions = {layer: log.base for layer, log in logs.items()}
    for layer in foreign:
        target.lease.check()
        versions[layer] = _taken_back(target, layer, logs[layer])
        failpoint("cycle.after_restore")
    if before is None:
        return None
    return replace(before, history_version=versions["history"], current_version=versions["current"])


def _refuse(target: CycleTable, layer: Layer, log: CleanedLog, before: CutTable | None, *, take_back: bool) -> None:
    """Raise TableHeldError unless the foreign commits are to be taken back, and can be."""
    thing, path, commit = str(target.table), target.path(layer), target.commit_info(layer)
    if before is None:
        cause, way_out = HeldCause.TABLE_NOT_NAMED, WayOut.MOVE_TABLE_THEN_SNAPSHOT
        raise TableHeldError(thing, cause, way_out, {"path": path})
    detail = {"layer": layer, "path": path, "problem": log.foreign[0].description}
    if any(map(commit.is_followed_by, log.foreign)):
        # The lake's cycles are older than its table: a person looks at it.
        raise TableHeldError(thing, HeldCause.FOREIGN_COMMIT, WayOut.BY_HAND, detail)
    if not take_back or any(map(commit.is_in, log.foreign)):
        raise TableHeldError(thing, HeldCause.FOREIGN_COMMIT, WayOut.SNAPSHOT, detail)


def _taken_back(target: CycleTable, layer: Layer, log: CleanedLog) -> int:
    """Make the table what it was before the foreign commits; returns the version that says so."""
    try:
        return restore(target.path(layer), log.base, log.newest, target.commit_info(layer).user_metadata)
    except LogGapError:
        raise
    except LakeError as error:
        # What a writer refuses it refuses again, and a file that is gone stays gone.
        detail = {"problem": error.reason}
        raise TableHeldError(str(target.table), HeldCause.FOREIGN_COMMIT_STAYS, WayOut.BY_HAND, detail) from error


def is_broken(path: str, version: int) -> bool:
    """True if the log is damaged or not whole up to `version`, which a cut names; reads it from its last checkpoint on.

    A file that exists and can't be read just now (too many are open, a disk's error) raises OSError: nothing is known then.
    """
    return _damage(path, version) is not None


def _damage(path: str, version: int) -> LakeError | None:
    try:
        table_files(path, version)
    except LakeError as error:
        return error
    return None


def on_sound_logs(spark: SparkOnDemand, task: TableTask) -> TableTask:
    """Return the task on top of readable logs: if a copy enters, an unreadable log is begun again without a row.

    A history that was lost and whose files somebody has restored is lost no more. Raises TableHeldError if history's log
    can't be read and the table was held for something else: its past is given up only if that is asked for.

    Nothing is synced here: the cycle syncs what is above the cut's versions before the next cut names it.
    """
    cut_table, entry = task.before, task.entry
    if entry is None or cut_table is None:
        return task
    is_lost = "history" in entry.unreadable and not is_broken(task.path("history"), cut_table.history_version)
    if is_lost and can_be_read(spark.get(), task.lake, task.table, cut_table):
        entry = replace(entry, unreadable=entry.unreadable - {"history"})
    damage = _damage(task.path("history"), cut_table.history_version)
    if damage is not None and entry.keeps_history:
        with hold_for_foreign_commits(task.table):
            raise LogGapError(task.path("history"), damage.reason, damage.remedy)
    if is_broken(task.path("current"), cut_table.current_version):
        version = _begin_again(task, "current", cut_table.current_version)
        cut_table, entry = replace(cut_table, current_version=version), entry.without("current")
    if damage is not None:
        version = _begin_again(task, "history", cut_table.history_version)
        cut_table, entry = replace(cut_table, history_version=version), entry.without("history")
    return replace(task, before=cut_table, work=entry)


def _begin_again(task: TableTask, layer: Layer, version: int) -> int:
    """Give the version after `version` a state without rows; what is above it goes first, since nobody can read it."""
    task.lease.check()
    remove_unreadable(task.path(layer), version)
    columns = layer_columns(task.schema, layer)
    fields, in_file = new_fields(lake_types(task.schema, columns)), names_in_files(task.schema, columns)
    metadata = metadata_of(fields, task.spec(layer).options(columns), physical=in_file)
    # It has the cycle's note, and not its transaction: the commit of the rows comes on top of it.
    begin_at(task.path(layer), version + 1, metadata, task.commit_info(layer).user_metadata)
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
