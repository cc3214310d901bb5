"""The two commits of a correction: what is retracted and inserted goes to history, and with the range's changes to current.

Computing the correction does not belong here (`snapshot_entry`), nor choosing the rows that it compares (`table`,
`keyed_entry`).
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from lakeproof.change_counts import ChangeCounts
from lakeproof.lake.cycle.current_commit import prepare_current
from lakeproof.lake.cycle.history_commit import HistoryRows, append_history
from lakeproof.lake.cycle.snapshot_entry import EntryCorrection
from lakeproof.lake.cycle.table_parts import commit_current, table_result
from lakeproof.lake.cycle.task import CycleContext, TableResult, TableTask
from lakeproof.lake.delta.apply import Hints
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, change_rows, state_rows
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.rows.correction import numbered

# A change up to this size (rows, and their decoded bytes) is sent whole to every task of its MERGE.
FEW_ROWS = 100_000
FEW_BYTES = 16 << 20


def write_correction(  # noqa: PLR0917  whose table, and what is written
    session: SparkSession,
    context: CycleContext,
    task: TableTask,
    correction: EntryCorrection,
    own: ResolvedChanges | None,
    gap: DataFrame | None = None,
) -> TableResult:
    """Commit a correction together with the range's `own` changes, and release it.

    `gap` is history's first row, if the table steps into another incarnation.
    """
    schema, end = correction.schema, context.intent.end_lsn
    own_ordinal = context.intent.own_ordinal
    first = own_ordinal + (0 if gap is None else 1)
    retractions = numbered(session, correction.retractions, first)
    insertions = numbered(session, correction.insertions, first + retractions.count)
    try:
        events = state_rows(schema, retractions.frame, CORRECT_DELETE, end)
        events = events.unionAll(state_rows(schema, insertions.frame, CORRECT_INSERT, end))
        if gap is not None:
            events = gap.unionAll(events)
        if own is not None:
            events = events.unionAll(change_rows(schema, own.events))
        counts = ChangeCounts() if own is None else own.counts
        history = append_history(session, context, task, HistoryRows(events, counts.rows))
        rows = counts.rows + retractions.count + insertions.count
        hints = Hints(
            broadcast=rows <= FEW_ROWS and rows * task.row_bytes <= FEW_BYTES,
            max_keys=retractions.count + counts.rows,
        )
        # By no statistics: a file may have been altered behind them, or written before the table had its key.
        net = replace(correction.net(insertions.frame), null_safe=True)
        current = commit_current(context, prepare_current(session, context, task, net, hints))
    finally:
        correction.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    corrected = retractions.count + insertions.count
    result = replace(table_result(context, task, history, current, counts), own_rows=first + corrected - own_ordinal)
    if not corrected:
        return result
    # Nobody knows if the lake was damaged, or if changes were never sent.
    return replace(result, cut_table=replace(result.cut_table, exact_from=end))
