"""One table in one cycle, written by Spark: what `table` does not write in this process.

Making a commit belongs to `delta.apply`, computing the rows to `lakeproof.lake.fold`.

    changes      a range of several schema versions, or beyond a bound
    first copy   one that can't be linked
    anew         a table that can't be read is made from its copy, behind a `reset`
    again        a copy is compared with what the lake has, and the difference is a correction
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import TableError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.columns import has_old_rows, in_lake, merge_key
from lakeproof.lake.cycle.commits_by_spark import (
    HistoryRows,
    append_history,
    as_inserted,
    check_snapshot,
    entry_correction,
    prepare_current,
    write_correction,
)
from lakeproof.lake.cycle.entries.keyed import write_keyed
from lakeproof.lake.cycle.task import (
    Carried,
    CycleContext,
    Entered,
    KeyedEntry,
    SnapshotEntry,
    TableResult,
    TableTask,
    Written,
    by,
    commit_current,
    entered,
    own_range,
    release,
    resolve,
    rows_before,
    since_snapshot,
    table_at_end,
    written,
)
from lakeproof.lake.delta.apply import Hints
from lakeproof.lake.delta.base_rows import verify_chunk
from lakeproof.lake.fold.history import (
    SNAPSHOT,
    change_rows,
    empty_rows,
    few_files,
    gap_row,
    reset_row,
    snapshot_rows,
    state_rows,
    with_net_change,
)
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.fold.table_range import TableRange
from lakeproof.lake.records.documents import Copy, CutTable, HistoryLow
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.rows.change import AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.landing_rows import key_bounds
from lakeproof.lake.rows.refusal import refusals
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotFile

_ROWS = scratch("rows")


def written_by_spark(session: SparkSession, context: CycleContext, task: TableTask, reason: str) -> TableResult:
    """Write one table in its own session; raises TableError, before any commit, if its data can't be applied.

    `reason` is why Spark writes it.
    """
    match task.work:
        case SnapshotEntry(source=Copy(folder), table=copied):
            _verify(context, folder, copied.chunks)
        case KeyedEntry(folder, _, keyed):
            _verify(context, folder, [*keyed.rows.chunks, *keyed.keys.chunks])
    with refusals(str(task.table)):
        result = _written(session, context, task)
    return result if isinstance(result, Carried) else by(result, "spark", reason)


def _verify(context: CycleContext, folder: str, chunks: Sequence[SnapshotFile]) -> None:
    for chunk in chunks:
        verify_chunk(context.lease.lake.store, f"{folder}/{chunk.path}", chunk)


def _written(session: SparkSession, context: CycleContext, task: TableTask) -> Carried | Written | Entered:
    match task.work, task.before:
        case KeyedEntry() as keyed, _:
            return write_keyed(session, context, task, keyed)
        case SnapshotEntry() as entry, None:
            return _write_first_by_spark(session, context, task, entry)
        case SnapshotEntry() as entry, CutTable() as before:
            again = _write_anew if entry.unreadable else _write_again
            return again(session, context, task, entry, before)
    return _write_changes_by_spark(session, context, task)


def _write_changes_by_spark(session: SparkSession, context: CycleContext, task: TableTask) -> Written:
    changes = own_range(context, task)
    base = _base(session, context, task, changes)
    resolved = changes.resolve(session, base)
    try:
        prepared = prepare_current(session, context, task, resolved.net, _hints(changes, resolved.net))
        rows = HistoryRows(change_rows(changes.schema, resolved.events), changes.counts.rows)
        history = append_history(session, context, task, rows)
        current = commit_current(context, prepared)
    finally:
        resolved.release()
    return written(context, task, history, current, changes.counts)


def _write_first_by_spark(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry
) -> Entered:
    """Write a table's first rows, the snapshot with the changes since, and history from the snapshot on."""
    changes = since_snapshot(context, task, entry)
    snapshot = _snapshot(session, context, changes.schema, entry)
    resolved = resolve(session, changes, snapshot)
    events = None if resolved is None else change_rows(changes.schema, resolved.events)
    count = entry.table.rows + changes.counts.rows
    try:
        check_snapshot(context, task, snapshot, resolved)
        rows = few_files(with_net_change(changes.schema, snapshot, _net(resolved)), count)
        current = prepare_current(session, context, task, NetChange(images=rows))
        first = state_rows(changes.schema, snapshot, SNAPSHOT, entry.consistent_point)
        all_events = first if events is None else first.unionAll(events)
        history = append_history(session, context, task, HistoryRows(all_events, count))
        applied = commit_current(context, current)
    finally:
        release(resolved)
    return entered(context, task, history, applied, changes.counts)


def _write_anew(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, before: CutTable
) -> Entered:
    """Write a table of the lake from scratch: its rows at the cycle's end, behind a `reset`.

    Everything in history before that is void to a reader who adds history up. Changes since the snapshot may stand there
    already. So the rows are the cycle's own, and those changes are not written again.
    """
    changes = since_snapshot(context, task, entry)
    schema, snapshot = changes.schema, _snapshot(session, context, changes.schema, entry)
    first, end = context.intent.own_ordinal, context.intent.end_lsn
    gap = None if before.incarnation == context.intent.incarnation else _gap(session, context, task, first)
    reset = first if gap is None else first + 1
    is_lost = "history" in entry.unreadable
    with ExitStack() as kept:
        since = resolve(session, changes, snapshot)
        kept.callback(release, since)
        check_snapshot(context, task, snapshot, since)
        desired = with_net_change(schema, snapshot, _net(since))
        rows = numbered(session, desired, reset + 1)
        kept.callback(rows.kept.unpersist)
        events = reset_row(session, schema, reset, end).unionAll(state_rows(schema, rows.frame, SNAPSHOT, end))
        events = events if gap is None else gap.unionAll(events)
        history = append_history(session, context, task, HistoryRows(events, rows.count, anew=is_lost))
        whole = NetChange(AllRows(), few_files(as_inserted(schema, rows.frame), rows.count))
        current = commit_current(context, prepare_current(session, context, task, whole))
    at_end = table_at_end(context, task, history, current.version)
    low = HistoryLow(reset, end, archived=False) if is_lost else at_end.history_low
    own_rows = reset + 1 + rows.count - first
    return Entered(replace(at_end, history_low=low, exact_from=end), ChangeCounts(), current.inserted, own_rows)


def _write_again(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, before: CutTable
) -> Written:
    """Write a table of the lake: its changes (unless it was held and missed some) and a correction, in one commit."""
    same_life = before.incarnation == context.intent.incarnation
    follows = same_life and before.at_lsn == context.intent.start_lsn
    changes = since_snapshot(context, task, entry)
    snapshot = _snapshot(session, context, changes.schema, entry)
    persisted = rows_before(session, context, task, before)
    since = resolve(session, changes, snapshot)
    check_snapshot(context, task, snapshot, since)
    own = _own_changes(session, context, task, persisted) if follows else None
    desired = with_net_change(changes.schema, snapshot, _net(since))
    correction = entry_correction(changes.schema, desired, persisted, _net(own))
    gap = None if same_life else _gap(session, context, task, context.intent.own_ordinal)
    try:
        result = write_correction(session, context, task, correction, own, gap)
    finally:
        release(since, own)
    if not follows or own is not None or not task.files:
        return result
    # Its own changes do not fit what is persisted, or have several schemas: the correction has them, at the cycle's end.
    return replace(result, cut_table=replace(result.cut_table, exact_from=context.intent.end_lsn))


def _gap(session: SparkSession, context: CycleContext, task: TableTask, ordinal: int) -> DataFrame | None:
    """Return history's row about a table's step into the next incarnation, None if there is no such step."""
    before, entry = task.before, task.entry
    if before is None or entry is None:
        return None
    to = (context.intent.incarnation, entry.consistent_point)
    return gap_row(session, in_lake(task.version), ordinal, (before.incarnation, before.at_lsn), to)


def _own_changes(
    session: SparkSession, context: CycleContext, task: TableTask, persisted: DataFrame
) -> ResolvedChanges | None:
    """Return the changes of the cycle's range on top of what is persisted; None if they don't fit it.

    A re-snapshot repairs rows that have drifted: history then has the correction instead of the changes.
    """
    changes = own_range(context, task)
    if changes.older:
        return None
    try:
        with refusals(str(task.table)):
            own = resolve(session, changes, persisted)
            if own is not None and own.persisted:
                own.events.count()
            return own
    except TableError:
        return None


def _net(resolved: ResolvedChanges | None) -> NetChange[DataFrame]:
    return NetChange() if resolved is None else resolved.net


def _hints(changes: TableRange, net: NetChange[DataFrame]) -> Hints:
    """Return what makes the range's commit cheaper."""
    # NULL lies within no bounds, and a hidden key's text is not the number that was bounded.
    match net.removed:
        case Removed(key, _, null_safe=False):
            is_bounded = key == changes.schema.key
        case _:
            is_bounded = False
    bounds = key_bounds(changes.schema, changes.landed.slices) if is_bounded and not changes.older else None
    return Hints(bounds, changes.counts.rows)


def _snapshot(session: SparkSession, context: CycleContext, schema: SchemaVersion, entry: SnapshotEntry) -> DataFrame:
    """Return a snapshot's rows; raises TableError if a configured key is not unique in them."""
    if not isinstance(entry.source, Copy):
        return empty_rows(session, schema)
    folder = context.lease.lake.url(entry.source.folder)
    rows = snapshot_rows(session, schema, entry.table, folder)
    if has_old_rows(schema) and not schema.is_bag:
        by_key = rows.groupBy(*(col(k) for k in merge_key(schema))).agg(F.count(F.lit(1)).alias(_ROWS))
        if not by_key.where(F.col(_ROWS) > 1).isEmpty():
            raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)
    return rows


def _base(session: SparkSession, context: CycleContext, task: TableTask, changes: TableRange) -> DataFrame | None:
    """Return the table before the range if its rows may be needed; opening it costs reading its log."""
    return rows_before(session, context, task, task.before) if changes.needs_base and task.before is not None else None
