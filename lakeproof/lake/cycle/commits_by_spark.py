"""The commits of a table that Spark writes: to history, to current, and the two of a correction.

Computing what is written belongs to `table_by_spark`, `entries.snapshot` and `entries.keyed`, making a commit once to
`delta.apply`, the definition of a sum to `rows.history_sum`.

History's rows are summed while they are written. The check that the lake has the rows that the changes presuppose
(`rows.correction.check_rows`) is made before history gets its commit. If the publication leaves out an operation, the
source's rows change unseen: then nothing is presupposed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from lakeproof.change_counts import ChangeCounts
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import current_statistics, history_statistics, in_lake
from lakeproof.lake.cycle.entries.snapshot import EntryCorrection
from lakeproof.lake.cycle.task import CycleContext, TableTask, Written, commit_current, written
from lakeproof.lake.delta.apply import NO_HINTS, CommitRequest, Hints, Prepared, apply_change, prepare
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.fold.history import CORRECT_DELETE, CORRECT_INSERT, change_rows, few_files, state_rows
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.fold.replay import behind
from lakeproof.lake.records.documents import HistorySum
from lakeproof.lake.rows.change import AllRows, NetChange, Removed, unchecked
from lakeproof.lake.rows.correction import check_rows, numbered
from lakeproof.lake.rows.history_sum import Summing, sum_of
from lakeproof.lake.rows.keys_in_memory import DriftedError, check_counts
from lakeproof.landing.catalog_history import sends_everything


@dataclass(frozen=True, slots=True)
class HistoryRows:
    """About `count` rows to append to history; `anew`: all earlier rows of history go first."""

    frame: DataFrame
    count: int
    anew: bool = False


def append_history(
    session: SparkSession, context: CycleContext, task: TableTask, rows: HistoryRows
) -> tuple[int, HistorySum]:
    """Return history's version after the commit, and the sum of all its rows."""
    lake, schema = context.lease.lake, in_lake(task.version)
    context.lease.check()
    summing = Summing(schema, rows.frame)
    request = CommitRequest(
        lake.url(lake.paths.history(task.table)),
        NetChange(AllRows() if rows.anew else None, few_files(summing.rows, rows.count)),
        context.commit_info("history", task.table),
        create=context.table_spec(task.table, history_statistics(schema)),
        expected_version=NO_VERSION if task.before is None else task.before.history_version,
    )
    applied = apply_change(session, request)
    failpoint("cycle.after_history")
    before = None if rows.anew else task.before
    added = summing.sum()
    if added is None:
        stored = session.read.format("delta").option("versionAsOf", applied.version).load(request.path)
        added = sum_of(schema, stored.where(behind(before)))
    return applied.version, (HistorySum() if before is None else before.history_sum).plus(added)


def prepare_current(
    session: SparkSession, context: CycleContext, task: TableTask, change: NetChange[DataFrame], hints: Hints = NO_HINTS
) -> Prepared:
    """Find the rows to delete; nothing is committed yet.

    Raises DriftedError if the table does not have the rows that the changes presuppose.
    """
    lake = context.lease.lake
    request = CommitRequest(
        lake.url(lake.paths.current(task.table)),
        change,
        context.commit_info("current", task.table),
        hints,
        create=context.table_spec(task.table, current_statistics(in_lake(task.version))),
        expected_version=NO_VERSION if task.before is None else task.before.current_version,
    )
    try:
        return prepare(session, request)
    except DriftedError:
        if sends_everything(context.chain, task.version.oid):
            raise
        unasked = replace(change, removed=unchecked(change.removed))
        return prepare(session, replace(request, change=unasked))


def check_snapshot(context: CycleContext, task: TableTask, snapshot: DataFrame, since: ResolvedChanges | None) -> None:
    """Raise DriftedError if a snapshot's rows are not those that the changes after it presuppose: one job."""
    try:
        match None if since is None else since.net.removed:
            case AllRows(presupposed):
                check_counts(str(task.table), presupposed)
            case Removed() as removed:
                check_rows(str(task.table), snapshot, removed)
    except DriftedError:
        if sends_everything(context.chain, task.version.oid):
            raise


def write_correction(  # noqa: PLR0917  whose table, and what is written
    session: SparkSession,
    context: CycleContext,
    task: TableTask,
    correction: EntryCorrection,
    own: ResolvedChanges | None,
    gap: DataFrame | None = None,
) -> Written:
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
        hints = Hints(max_keys=retractions.count + counts.rows)
        net = correction.net(insertions.frame)
        current = commit_current(context, prepare_current(session, context, task, net, hints))
    finally:
        correction.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    corrected = retractions.count + insertions.count
    result = replace(written(context, task, history, current, counts), own_rows=first + corrected - own_ordinal)
    if not corrected:
        return result
    # Nobody knows if the lake was damaged, or if changes were never sent.
    return replace(result, cut_table=replace(result.cut_table, exact_from=end))
