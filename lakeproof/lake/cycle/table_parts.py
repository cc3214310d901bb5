"""What writing a table in a cycle takes, whatever is written: its range added up, its rows before, its entry in the cut.

The ways to write a table do not belong here (`table`, `keyed_entry`), nor the two commits (`history_commit`,
`current_commit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.task import CycleContext, SnapshotEntry, TableResult, TableTask
from lakeproof.lake.delta.committer import Applied
from lakeproof.lake.fold.table_range import RangeSpan, TableRange
from lakeproof.lake.records.documents import NOBODY, CutTable
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakeproof.lake.delta.apply import Prepared
    from lakeproof.lake.delta.link_commit import RowCommit
    from lakeproof.lake.fold.net_change import ResolvedChanges


def range_of(context: CycleContext, task: TableTask, files: Sequence[Slice], start: Lsn) -> TableRange:
    """Return the table's changes from `start` to the cycle's end."""
    first_ordinals = {s.number: s.first_ordinal for s in context.intent.segments}
    span = RangeSpan(start, context.intent.end_lsn, first_ordinals)
    return TableRange(context.chain, task.version, task.before, files, span)


def files_since(chain: Chain, table: TableName, entry: SnapshotEntry, end: Lsn) -> list[Slice]:
    """Return the table's files after its snapshot, up to `end`; for a table created in the stream only files of its OID.

    An earlier table may have had the same name.
    """
    files = slices(chain, entry.consistent_point, end, table)
    return [f for f in files if entry.key is not None or f.file.oid == entry.table.version.oid]


def since_snapshot(context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes after a snapshot."""
    files = files_since(context.chain, task.table, entry, context.intent.end_lsn)
    return range_of(context, task, files, entry.consistent_point)


def resolve(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    """Return the changes added up by Spark on top of `base`; None if there are none."""
    return None if changes.counts.rows == 0 else changes.resolve(session, base)


def rows_before(session: SparkSession, context: CycleContext, task: TableTask, before: CutTable) -> DataFrame:
    """Return the rows of current at the version that the cut before names."""
    from lakeproof.lake.delta.versions import read_layer

    return read_layer(session, context.lease.lake, task.table, before)


def commit_current(context: CycleContext, prepared: Prepared | RowCommit) -> Applied:
    """Make current's commit."""
    context.lease.check()
    applied = prepared.commit()
    failpoint("cycle.after_current")
    return applied


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
    low, last = (None, NOBODY) if before is None else (before.history_low, before.written_by)
    version, rows = history
    fields = (context.intent.end_lsn, point, version, current, task.version, incarnation, snapshotted, low)
    return CutTable(*fields, task.row_bytes, rows, _exact_from(context, task), written_by=last)


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
