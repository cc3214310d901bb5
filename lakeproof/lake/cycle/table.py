"""One table in one cycle: history first, then current, each in exactly one commit.

Choosing tables and range belongs to `lakeproof.lake.planning`; running several tables and ending the cycle to `steps`; what
Spark writes of a table to `table_by_spark`.

Anything about a table's data that may be refused is evaluated before its history is committed: a refused table is left as it
was. A table without changes in the range is carried along without a commit. If a net change is empty, or meets no row,
current keeps its version while history gets its commit: the cut names both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.lake.cycle.linked_entry import prepare_linked_entry
from lakeproof.lake.cycle.linked_range import prepare_linked_range, refuse_unlinkable
from lakeproof.lake.cycle.table_parts import commit_current, range_of, since_snapshot, table_at_end, table_result
from lakeproof.lake.cycle.task import CycleContext, KeyedEntry, SnapshotEntry, TableResult, TableTask
from lakeproof.lake.delta.committer import Unsupported
from lakeproof.lake.fold.table_range import TableRange
from lakeproof.lake.records.held import TableHeldError
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.names import TableName


def write_table(spark: SparkOnDemand, context: CycleContext, task: TableTask) -> TableResult:
    """Write one table; raises TableError, before any commit, if its data can't be applied.

    `spark` is a session of the table's own, which starts if Spark has to write it.
    """
    try:
        _refuse_compared(task)
        return _write_changes(spark, context, task) if task.entry is None else _write_first(context, task, task.entry)
    except Unsupported as error:
        reason = str(error)
    try:
        session = spark.get()
    except NoSparkError as error:
        raise no_spark({task.table: reason}, error) from None
    # Imported here because it imports Spark.
    from lakeproof.lake.cycle.table_by_spark import written_by_spark

    return written_by_spark(session, context, task).by("spark", reason)


def why_spark(context: CycleContext, task: TableTask) -> str | None:
    """Return why Spark has to write a table, as far as manifests say it; rows may call for it all the same."""
    try:
        _refuse_compared(task)
        if task.entry is not None:
            changes = _of_one_schema(since_snapshot(context, task, task.entry))
        else:
            changes = _of_one_schema(range_of(context, task, task.files, context.intent.start_lsn))
        if task.entry is not None or changes.counts.rows:
            refuse_unlinkable(context, changes.landed, task.entry)
    except Unsupported as error:
        return str(error)
    return None


def no_spark(tables: Mapping[TableName, str], error: NoSparkError) -> NoSparkError:
    """Return the error about tables that Spark has to write, each with the reason, if it can't be started."""
    if len(tables) == 1:
        ((table, why),) = tables.items()
        return NoSparkError(
            f"table {table}", f"Spark has to write it ({why}), and {error.thing}: {error.reason}", error.remedy
        )
    listed = "; ".join(f"{table}: {why}" for table, why in tables.items())
    reason = f"Spark has to write them ({listed}), and {error.thing}: {error.reason}"
    return NoSparkError(f"{len(tables):,} tables", reason, error.remedy)


def _refuse_compared(task: TableTask) -> None:
    if isinstance(task.work, KeyedEntry) or (task.entry is not None and task.before is not None):
        raise Unsupported("a copy of it is compared with what the lake has")


def _of_one_schema(changes: TableRange) -> TableRange:
    if changes.older:
        raise Unsupported("its changes have several schema versions")
    return changes


def _write_changes(spark: SparkOnDemand, context: CycleContext, task: TableTask) -> TableResult:
    """Write a range in this process; raises `Unsupported`, before any commit, if Spark is to write it."""
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    changes = range_of(context, task, task.files, context.intent.start_lsn)
    if changes.counts.rows == 0:
        history = before.history_version, before.history_sum
        return TableResult(table_at_end(context, task, history, before.current_version), changes.counts, touched=False)
    reason = _why_here(spark, context, changes.counts)
    linked = prepare_linked_range(context, task, _of_one_schema(changes).landed, changes.counts)
    history = linked.history.commit(context)
    written = table_result(context, task, history, commit_current(context, linked.current), changes.counts)
    return written.by("arrow", reason)


def _why_here(spark: SparkOnDemand, context: CycleContext, counts: ChangeCounts) -> str:
    """Return why this process writes a range; raises `Unsupported` if Spark is here and is quicker."""
    rows, many = f"{counts.rows:,} rows", f"`compaction.spark_rows`, {context.spark_rows:,}"
    if counts.inserts_only:
        return f"{rows}, all of them inserts"
    if counts.rows < context.spark_rows:
        return f"{rows}, less than {many}"
    try:
        spark.get()
    except (NoSparkError, TableHeldError) as error:
        return f"{rows}, and Spark can't write them: {error.reason}"
    raise Unsupported(f"{rows}, no less than {many}")


def _write_first(context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows in this process; raises as `_write_changes`."""
    changes = _of_one_schema(since_snapshot(context, task, entry))
    linked = prepare_linked_entry(context, task, entry, changes.landed, changes.counts)
    history = linked.history.commit(context)
    written = table_result(context, task, history, commit_current(context, linked.current), changes.counts)
    return replace(written, deleted=0, rows=written.inserted).by("arrow", "a first copy")
