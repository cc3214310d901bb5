"""One table in one cycle: history first, then current, each in exactly one commit.

Choosing tables and range belongs to `lakeproof.lake.planning`; running several tables and ending the cycle to `steps`; what
Spark writes of a table to `table_by_spark`.

Anything about a table's data that may be refused is evaluated before its history is committed: a refused table is left as it
was. A table without changes in the range is carried along without a commit. If a net change is empty, or meets no row,
current keeps its version while history gets its commit: the cut names both.
"""

from __future__ import annotations

from dataclasses import replace

from lakeproof.errors import InvariantError
from lakeproof.lake.cycle.linked_entry import prepare_linked_entry
from lakeproof.lake.cycle.linked_range import prepare_linked_range
from lakeproof.lake.cycle.table_parts import commit_current, range_of, since_snapshot, table_at_end, table_result
from lakeproof.lake.cycle.task import CycleContext, SnapshotEntry, TableResult, TableTask
from lakeproof.lake.delta.commit import Unsupported
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand


def write_table(spark: SparkOnDemand, context: CycleContext, task: TableTask) -> TableResult:
    """Write one table; raises TableError, before any commit, if its data can't be applied.

    `spark` is a session of the table's own, which starts if Spark has to write it.
    """
    if task.keyed is None and (task.entry is None or task.before is None):
        try:
            return _write_changes(context, task) if task.entry is None else _write_first(context, task, task.entry)
        except Unsupported as error:
            not_linked = str(error)
    else:
        not_linked = "a copy of it is compared with what the lake has"
    try:
        session = spark.get()
    except NoSparkError as error:
        raise named(error, task, f"write it ({not_linked})") from None
    # Imported here because it imports Spark.
    from lakeproof.lake.cycle.table_by_spark import written_by_spark

    return replace(written_by_spark(session, context, task), not_linked=not_linked)


def named(error: NoSparkError, task: TableTask, what: str) -> NoSparkError:
    """Return the error with the table that Spark is needed for, and what it has to do."""
    reason = f"Spark has to {what}, and {error.thing}: {error.reason}"
    return NoSparkError(f"table {task.table}", reason, error.remedy)


def _write_changes(context: CycleContext, task: TableTask) -> TableResult:
    """Write a range in this process; raises `Unsupported`, before any commit, if Spark is to write it."""
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    changes = range_of(context, task, task.files, context.intent.start_lsn)
    if changes.counts.rows == 0:
        history = before.history_version, before.history_sum
        return TableResult(table_at_end(context, task, history, before.current_version), changes.counts, touched=False)
    if changes.older:
        raise Unsupported("the range has rows of several schema versions")
    linked = prepare_linked_range(context, task, changes.landed, changes.counts)
    history = linked.history.commit(context)
    return table_result(context, task, history, commit_current(context, linked.current), changes.counts)


def _write_first(context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows in this process; raises as `_write_changes`."""
    changes = since_snapshot(context, task, entry)
    if changes.older:
        raise Unsupported("the changes since the snapshot have several schema versions")
    linked = prepare_linked_entry(context, task, entry, changes.landed, changes.counts)
    history = linked.history.commit(context)
    written = table_result(context, task, history, commit_current(context, linked.current), changes.counts)
    return replace(written, deleted=0, rows=written.inserted)
