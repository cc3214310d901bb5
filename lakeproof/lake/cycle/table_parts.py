"""What writing a table in a cycle takes, whatever is written: its range added up, its rows before, its entry in the cut.

The ways to write a table do not belong here (`table`, `keyed_entry`), nor the two commits (`history_commit`,
`current_commit`).
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.lake.cycle.task import CycleContext, TableResult, TableTask
from lakeproof.lake.delta.commit import Applied
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.fold.table_range import RangeSpan, TableRange
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn


def range_of(context: CycleContext, task: TableTask, files: Sequence[Slice], start: Lsn) -> TableRange:
    """Return the table's changes from `start` to the cycle's end."""
    first_ordinals = {s.number: s.first_ordinal for s in context.intent.segments}
    span = RangeSpan(start, context.intent.end_lsn, first_ordinals)
    return TableRange(context.chain, task.version, task.before, files, span)


def resolve(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    """Return the changes added up by Spark on top of `base`; None if there are none."""
    return None if changes.counts.rows == 0 else changes.resolve(session, base)


def rows_before(session: SparkSession, context: CycleContext, task: TableTask, before: CutTable) -> DataFrame:
    """Return the rows of current at the version that the cut before names."""
    return read_layer(session, context.lease.lake, task.table, before)


def release(*resolved: ResolvedChanges | None) -> None:
    """Give back what added-up ranges keep."""
    for one in filter(None, resolved):
        one.release()


def table_at_end(context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: int) -> CutTable:
    """Return the table's entry in the cut; `history` and `current` are its versions by then."""
    before = task.before
    incarnation = context.intent.incarnation
    if task.entry is not None:
        point, snapshotted = task.entry.consistent_point, incarnation
    elif before is not None:
        point, snapshotted = before.snapshot_lsn, before.snapshot_incarnation
    else:
        raise InvariantError(str(task.table), "neither in the lake nor entering it", "report this")
    low = None if before is None else before.history_low
    version, rows = history
    fields = (context.intent.end_lsn, point, version, current, task.version, incarnation, snapshotted, low)
    return CutTable(*fields, task.row_bytes, rows, _exact_from(context, task))


def _exact_from(context: CycleContext, task: TableTask) -> Lsn | None:
    """Return the position after which history has every change, if the cycle writes all that its range has."""
    before, entry, intent = task.before, task.entry, context.intent
    if before is None:
        # What landed before a later copy was never read. Before the very first ones, and before a table was created, nothing
        # did.
        if entry is None or (entry.key is None and not entry.was_held):
            return None
        is_first = entry.key is not None and intent.number == 1 and entry.consistent_point <= intent.start_lsn
        return None if is_first else entry.consistent_point
    missed = entry is not None and (entry.was_held or before.at_lsn != intent.start_lsn)
    if missed or before.incarnation != intent.incarnation:
        return intent.end_lsn
    return before.exact_from


def table_result(
    context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: Applied, counts: ChangeCounts
) -> TableResult:
    """Return the result of a table whose two commits are made."""
    cut_table = table_at_end(context, task, history, current.version)
    return TableResult(cut_table, counts, current.inserted, current.deleted)
