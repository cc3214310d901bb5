"""One table in one cycle, written by Spark: what `table` does not write in this process.

Making a commit belongs to `delta.apply`, computing the rows to `lakeproof.lake.fold`.

    changes      a range of several schema versions, or beyond a bound
    first copy   one that can't be linked
    anew         a table that can't be read is made from its copy, behind a `reset`
    again        a copy is compared with what the lake has, and the difference is a correction
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import TableError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.columns import has_old_rows, merge_key
from lakeproof.lake.cycle.commits_by_spark import (
    HistoryRows,
    as_inserted,
    check_snapshot,
    entry_correction,
    evaluated,
    old_rows_are_there,
    prepare_commits,
    release,
    resolve,
    write_correction,
)
from lakeproof.lake.cycle.task import SnapshotEntry, TableResult, TableTask, exact_from_end
from lakeproof.lake.delta.search import verify_chunk
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import (
    change_rows,
    empty_rows,
    few_files,
    gap_row,
    reset_row,
    snapshot_rows,
    state_rows,
    with_net_change,
)
from lakeproof.lake.fold.net_change import ResolvedChanges, resolve_range
from lakeproof.lake.records.documents import Copy, CutTable, HistoryLow
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import AllRows, NetChange
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.history_ops import SNAPSHOT
from lakeproof.lake.rows.landing_rows import read_range
from lakeproof.lake.rows.refusal import refusals_as_errors
from lakeproof.schema import SchemaVersion

_ROWS = scratch("rows")


def written_by_spark(session: SparkSession, task: TableTask, reason: str) -> TableResult:
    """Write one table in its own session; raises TableError, before any commit, if its data can't be applied.

    `reason` is why Spark writes it.
    """
    match task.work:
        case SnapshotEntry(source=Copy(folder), table=copied):
            for chunk in copied.chunks:
                verify_chunk(task.lake.store, f"{folder}/{chunk.path}", chunk)
    with refusals_as_errors(str(task.table)):
        return _written(session, task).by("spark", reason)


def _written(session: SparkSession, task: TableTask) -> TableResult:
    match task.work, task.before:
        case SnapshotEntry() as entry, None:
            return _write_first(session, task, entry)
        case SnapshotEntry() as entry, CutTable() as before:
            again = _write_anew if entry.unreadable else _write_again
            return again(session, task, entry, before)
    return _write_changes(session, task)


def _write_changes(session: SparkSession, task: TableTask) -> TableResult:
    changes = task.changes_to_apply()
    # Opening the table before the range costs reading its log.
    base = (
        read_layer(session, task.lake, task.table, task.before)
        if changes.needs_base and task.before is not None
        else None
    )
    resolved = resolve_range(session, read_range(session, changes), base)
    try:
        rows = HistoryRows(change_rows(changes.schema, resolved.events), changes.counts.rows)
        commits = prepare_commits(session, task, rows, resolved.net, changes.counts.rows)
        return commits.made(task, changes.counts)
    finally:
        resolved.release()


def _write_first(session: SparkSession, task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows, the snapshot with the changes since, and history from the snapshot on."""
    changes = task.checked(task.since_snapshot(entry))
    snapshot = _snapshot(session, task, changes.schema, entry)
    resolved = resolve(session, changes, snapshot)
    events = state_rows(changes.schema, snapshot, SNAPSHOT, entry.consistent_point)
    if resolved is not None:
        events = events.unionAll(change_rows(changes.schema, resolved.events))
    count = entry.table.rows + changes.counts.rows
    try:
        check_snapshot(task, snapshot, resolved)
        rows = few_files(with_net_change(changes.schema, snapshot, _net(resolved)), count)
        commits = prepare_commits(session, task, HistoryRows(events, count), NetChange(images=rows))
        return commits.made(task, changes.counts).entered()
    finally:
        release(resolved)


def _write_anew(session: SparkSession, task: TableTask, entry: SnapshotEntry, before: CutTable) -> TableResult:
    """Write a table of the lake from scratch: its rows at the cycle's end, behind a `reset`.

    Everything in history before that is void to a reader who adds history up. Changes since the snapshot may stand there
    already. So the rows are the cycle's own, and those changes are not written again.
    """
    changes, intent = task.checked(task.since_snapshot(entry)), task.intent
    schema, snapshot = changes.schema, _snapshot(session, task, changes.schema, entry)
    gap = None if before.incarnation == intent.incarnation else _gap(session, task, before, entry)
    reset = intent.own_ordinal if gap is None else intent.own_ordinal + 1
    is_lost = "history" in entry.unreadable
    with ExitStack() as kept:
        since = resolve(session, changes, snapshot)
        kept.callback(release, since)
        check_snapshot(task, snapshot, since)
        rows = numbered(session, with_net_change(schema, snapshot, _net(since)), reset + 1)
        kept.callback(rows.kept.unpersist)
        events = reset_row(session, schema, reset, intent.end_lsn)
        events = events.unionAll(state_rows(schema, rows.frame, SNAPSHOT, intent.end_lsn))
        events = events if gap is None else gap.unionAll(events)
        whole = NetChange(AllRows(), few_files(as_inserted(schema, rows.frame), rows.count))
        commits = prepare_commits(session, task, HistoryRows(events, rows.count, anew=is_lost), whole)
        result = exact_from_end(task, commits.made(task, ChangeCounts())).entered()
    if is_lost:
        low = HistoryLow(reset, intent.end_lsn, archived=False)
        result = replace(result, cut_table=replace(result.cut_table, history_low=low))
    return replace(result, own_rows=reset + 1 + rows.count - intent.own_ordinal)


def _write_again(session: SparkSession, task: TableTask, entry: SnapshotEntry, before: CutTable) -> TableResult:
    """Write a table of the lake: its changes (unless it was held and missed some) and a correction, in one commit."""
    same_life = before.incarnation == task.intent.incarnation
    follows = same_life and before.at_lsn == task.intent.start_lsn
    changes = task.checked(task.since_snapshot(entry))
    snapshot = _snapshot(session, task, changes.schema, entry)
    persisted = read_layer(session, task.lake, task.table, before)
    since, own = resolve(session, changes, snapshot), None
    try:
        check_snapshot(task, snapshot, since)
        own = _own_changes(session, task, persisted) if follows else None
        desired = with_net_change(changes.schema, snapshot, _net(since))
        correction = entry_correction(changes.schema, desired, persisted, _net(own))
        gap = None if same_life else _gap(session, task, before, entry)
        result = write_correction(session, task, correction, own, gap)
    finally:
        release(since, own)
    if not follows or own is not None or not task.files:
        return result
    # Its own changes do not fit what is persisted, or have several schemas: the correction has them, at the cycle's end.
    return exact_from_end(task, result)


def _gap(session: SparkSession, task: TableTask, before: CutTable, entry: SnapshotEntry) -> DataFrame:
    """Return history's row about a table's step into the next incarnation."""
    intent = task.intent
    since, to = (before.incarnation, before.at_lsn), (intent.incarnation, entry.consistent_point)
    return gap_row(session, task.schema, intent.own_ordinal, since, to)


def _own_changes(session: SparkSession, task: TableTask, persisted: DataFrame) -> ResolvedChanges | None:
    """Return the changes of the cycle's range on top of what is persisted; None if they don't fit it.

    A re-snapshot repairs rows that have drifted: history then has the correction instead of the changes.
    """
    changes = task.own_range()
    try:
        own = None if changes.older else evaluated(session, changes, persisted)
    except TableError:
        return None
    schema = changes.schema
    is_counted = has_old_rows(schema) and not schema.is_bag
    if own is not None and is_counted and not old_rows_are_there(schema, own, persisted):
        own.release()
        return None
    return own


def _net(resolved: ResolvedChanges | None) -> NetChange[DataFrame]:
    return NetChange() if resolved is None else resolved.net


def _snapshot(session: SparkSession, task: TableTask, schema: SchemaVersion, entry: SnapshotEntry) -> DataFrame:
    """Return a snapshot's rows; raises TableError if a configured key is not unique in them."""
    if not isinstance(entry.source, Copy):
        return empty_rows(session, schema)
    folder = task.lake.url(entry.source.folder)
    rows = snapshot_rows(session, schema, entry.table, folder)
    if has_old_rows(schema) and not schema.is_bag:
        by_key = rows.groupBy(*(col(k) for k in merge_key(schema))).agg(F.count(F.lit(1)).alias(_ROWS))
        if not by_key.where(F.col(_ROWS) > 1).isEmpty():
            raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)
    return rows
