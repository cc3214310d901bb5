"""One table in one cycle: history first, then current, each in exactly one commit.

Choosing tables and range belongs to `lakeproof.lake.planning`; running several tables and ending the cycle to `steps`.

Anything about a table's data that may be refused is evaluated before its history is committed: a refused table is left as it
was. A table without changes in the range is carried along without a commit. If a net change is empty, or meets no row,
current keeps its version while history gets its commit: the cut names both.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, partial, reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError, TableError
from lakeproof.hidden_columns import scratch
from lakeproof.lake.columns import has_old_rows, in_lake, merge_key
from lakeproof.lake.cycle.current_commit import check_snapshot, commit_current, prepare_current
from lakeproof.lake.cycle.history_commit import HistoryRows, append_history
from lakeproof.lake.cycle.linked_entry import EntryRows, LinkedEntry
from lakeproof.lake.cycle.linked_range import prepare_linked_range
from lakeproof.lake.cycle.snapshot_entry import as_inserted, entry_correction, files_since
from lakeproof.lake.cycle.task import CycleContext, SnapshotEntry, TableResult, TableTask
from lakeproof.lake.delta.commit import Applied, Hints
from lakeproof.lake.delta.vectors import Unsupported
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.fold.history import (
    CORRECT_DELETE,
    CORRECT_INSERT,
    SNAPSHOT,
    change_rows,
    few_files,
    gap_row,
    reset_row,
    state_rows,
)
from lakeproof.lake.fold.net_change import ResolvedChanges
from lakeproof.lake.fold.table_range import RangeSpan, TableRange
from lakeproof.lake.fold.table_state import empty_rows, snapshot_rows, with_net_change
from lakeproof.lake.records.documents import CutTable, HistoryLow
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.change import NetChange
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.landing_rows import key_bounds
from lakeproof.lake.rows.refusal import refusals
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion

_ROWS = scratch("rows")

# A change up to this size (rows, and their decoded bytes) is sent whole to every task of its MERGE.
FEW_ROWS = 100_000
FEW_BYTES = 16 << 20


def write_table(session: SparkSession, context: CycleContext, task: TableTask) -> TableResult:
    """Write one table in its own session; raises TableError, before any commit, if its data can't be applied."""
    with refusals(str(task.table)):
        if task.entry is None:
            return _write_changes(session, context, task)
        if task.before is None:
            return _write_first(session, context, task, task.entry)
        if task.from_scratch or task.history_lost:
            return _write_anew(session, context, task, task.entry, task.before)
        return _write_again(session, context, task, task.entry, task.before)


def _write_changes(session: SparkSession, context: CycleContext, task: TableTask) -> TableResult:
    before = task.before
    if before is None:
        raise InvariantError(str(task.table), "has changes but is not in the lake", "report this")
    changes = _range(context, task, task.files, context.intent.start_lsn)
    if changes.counts.rows == 0:
        history = before.history_version, before.history_sum
        return TableResult(_cut_table(context, task, history, before.current_version), changes.counts, touched=False)
    try:
        return _link_changes(session, context, task, changes)
    except Unsupported as error:
        not_linked: str | None = str(error)
    base = _base(session, context, task, changes)
    resolved = changes.fold_in_memory(session, base)
    if resolved is None:
        resolved = changes.resolve(session, base)
    else:
        # There is little to gain.
        not_linked = None
    try:
        prepared = prepare_current(session, context, task, resolved.net, _hints(changes, resolved.net))
        rows = HistoryRows(change_rows(changes.schema, resolved.events), changes.counts.rows)
        history = append_history(session, context, task, rows)
        current = commit_current(context, prepared)
    finally:
        resolved.release()
    return replace(_written(context, task, history, current, changes.counts), not_linked=not_linked)


def _link_changes(session: SparkSession, context: CycleContext, task: TableTask, changes: TableRange) -> TableResult:
    """Write a range from its key columns and its files; raises `Unsupported`, before any commit, if Spark is to write it."""
    if changes.older:
        raise Unsupported("the range has rows of several schema versions")
    linked = prepare_linked_range(session, context, task, changes.landed, changes.counts)
    history = linked.history.commit(context)
    return _written(context, task, history, commit_current(context, linked.current), changes.counts)


def _write_first(session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableResult:
    """Write a table's first rows, the snapshot with the changes since, and history from the snapshot on."""
    changes = _since_snapshot(context, task, entry)
    # Opening the files as a frame takes a cold JVM as long as linking them, and most entries need none.
    snapshot = cache(partial(_snapshot, session, context, changes.schema, entry))
    if has_old_rows(changes.schema):
        snapshot()
    resolved = None if changes.counts.rows == 0 else _resolve(session, changes, snapshot())
    events = None if resolved is None else change_rows(changes.schema, resolved.events)
    net = NetChange() if resolved is None else resolved.net
    rows = EntryRows(changes.schema, snapshot, events, net, changes.counts.rows)
    try:
        if resolved is not None:
            check_snapshot(context, task, snapshot(), resolved)
        linked = LinkedEntry.of(session, context, task, entry, rows)
        current = linked.current or prepare_current(session, context, task, _all_rows(rows, entry))
        if linked.history is None:
            history = append_history(session, context, task, _all_events(rows, entry))
        else:
            history = linked.history.commit(context)
        applied = commit_current(context, current)
    finally:
        _release(resolved)
    written = _written(context, task, history, applied, changes.counts)
    return replace(written, deleted=0, rows=written.inserted, not_linked=linked.reason)


def _all_events(rows: EntryRows, entry: SnapshotEntry) -> HistoryRows:
    """Return what Spark writes to history when a table enters: the snapshot's rows and the changes since."""
    events = state_rows(rows.schema, rows.snapshot(), SNAPSHOT, entry.consistent_point)
    events = events if rows.events is None else events.unionAll(rows.events)
    return HistoryRows(events, entry.table.rows + rows.changes)


def _all_rows(rows: EntryRows, entry: SnapshotEntry) -> NetChange:
    """Return what Spark writes to current when a table enters."""
    frame = with_net_change(rows.schema, rows.snapshot(), rows.net)
    return NetChange(images=few_files(frame, entry.table.rows + rows.changes))


def _write_anew(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, before: CutTable
) -> TableResult:
    """Write a table of the lake from_scratch: its rows at the cycle's end, behind a `reset`.

    Everything in history before that is void to a reader who adds history up. Changes since the snapshot may stand there
    already. So the rows are the cycle's own, and those changes are not written again.
    """
    changes = _since_snapshot(context, task, entry)
    schema, snapshot = changes.schema, _snapshot(session, context, changes.schema, entry)
    first, end = context.intent.own_ordinal, context.intent.end_lsn
    gap = None if before.incarnation == context.intent.incarnation else _gap(session, context, task, first)
    reset = first if gap is None else first + 1
    with ExitStack() as kept:
        since = _resolve(session, changes, snapshot)
        kept.callback(_release, since)
        check_snapshot(context, task, snapshot, since)
        desired = with_net_change(schema, snapshot, NetChange() if since is None else since.net)
        rows = numbered(session, desired, reset + 1)
        kept.callback(rows.kept.unpersist)
        events = reset_row(session, schema, reset, end).unionAll(state_rows(schema, rows.frame, SNAPSHOT, end))
        events = events if gap is None else gap.unionAll(events)
        history = append_history(session, context, task, HistoryRows(events, rows.count, truncate=task.history_lost))
        whole = NetChange(images=few_files(as_inserted(schema, rows.frame), rows.count), truncate=True)
        current = commit_current(context, prepare_current(session, context, task, whole))
    written = _written(context, task, history, current, ChangeCounts())
    low = HistoryLow(reset, end, archived=False) if task.history_lost else written.cut_table.history_low
    at_end = replace(written.cut_table, history_low=low, exact_from=end)
    own_rows = reset + 1 + rows.count - first
    return TableResult(at_end, written.counts, written.inserted, 0, rows=written.inserted, own_rows=own_rows)


def _write_again(
    session: SparkSession, context: CycleContext, task: TableTask, entry: SnapshotEntry, before: CutTable
) -> TableResult:
    """Write a table of the lake: its changes (unless it was held and missed some) and a correction, in one commit."""
    same_life = before.incarnation == context.intent.incarnation
    follows = same_life and before.at_lsn == context.intent.start_lsn
    changes = _since_snapshot(context, task, entry)
    snapshot = _snapshot(session, context, changes.schema, entry)
    persisted = _current(session, context, task, before)
    since = _resolve(session, changes, snapshot)
    check_snapshot(context, task, snapshot, since)
    own = _own_changes(session, context, task, persisted) if follows else None
    desired = with_net_change(changes.schema, snapshot, NetChange() if since is None else since.net)
    correction = entry_correction(changes.schema, desired, persisted, NetChange() if own is None else own.net)
    first = own_ordinal = context.intent.own_ordinal
    gap = None if same_life else _gap(session, context, task, first)
    first += 0 if gap is None else 1
    retractions = numbered(session, correction.retractions, first)
    insertions = numbered(session, correction.insertions, first + retractions.count)
    try:
        end = context.intent.end_lsn
        events = state_rows(changes.schema, retractions.frame, CORRECT_DELETE, end)
        events = events.unionAll(state_rows(changes.schema, insertions.frame, CORRECT_INSERT, end))
        if gap is not None:
            events = gap.unionAll(events)
        if own is not None:
            events = events.unionAll(change_rows(changes.schema, own.events))
        counts = ChangeCounts() if own is None else own.counts
        history = append_history(session, context, task, HistoryRows(events, counts.rows))
        written = changes.counts.rows + counts.rows + retractions.count + insertions.count
        hints = Hints(
            broadcast=written <= FEW_ROWS and written * task.row_bytes <= FEW_BYTES,
            max_keys=retractions.count + counts.rows,
        )
        net = correction.net(insertions.frame)
        if retractions.count > 0 and _has_null_key(changes.schema, retractions.kept):
            # Rows are deleted that were written before the table had its key.
            net = replace(net, null_safe=True)
        current = commit_current(context, prepare_current(session, context, task, net, hints))
    finally:
        _release(since, own)
        correction.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    written_now = _written(context, task, history, current, counts)
    own_rows = first + retractions.count + insertions.count - own_ordinal
    written_now = replace(written_now, own_rows=own_rows)
    if not follows or own is not None or not task.files:
        return written_now
    # Its own changes do not fit what is persisted, or have several schemas: the correction has them, at the cycle's end.
    return replace(written_now, cut_table=replace(written_now.cut_table, exact_from=end))


def _has_null_key(schema: SchemaVersion, rows: DataFrame) -> bool:
    """True if a row's key is NULL, wholly or in part: it was written before the table had this key."""
    return not rows.where(reduce(or_, (col(k).isNull() for k in merge_key(schema)))).isEmpty()


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
    changes = _range(context, task, task.files, context.intent.start_lsn)
    if changes.older:
        return None
    try:
        with refusals(str(task.table)):
            own = _resolve(session, changes, persisted)
            if own is not None and own.persisted:
                own.events.count()
            return own
    except TableError:
        return None


def _range(context: CycleContext, task: TableTask, files: Sequence[Slice], start: Lsn) -> TableRange:
    first_ordinals = {s.number: s.first_ordinal for s in context.intent.segments}
    span = RangeSpan(start, context.intent.end_lsn, first_ordinals)
    return TableRange(context.chain, task.version, task.before, files, span)


def _hints(changes: TableRange, net: NetChange) -> Hints:
    """Return what makes the range's commit cheaper."""
    rows, size = changes.counts.rows, sum(p.file.decoded.bytes for p in changes.all_slices)
    # NULL lies within no bounds, and a hidden key's text is not the number that was bounded.
    is_bounded = net.deletes is not None and net.key == changes.schema.key and not net.null_safe
    return Hints(
        bounds=key_bounds(changes.schema, changes.landed.slices) if is_bounded and not changes.older else None,
        broadcast=rows <= FEW_ROWS and size <= FEW_BYTES,
        max_keys=rows,
    )


def _since_snapshot(context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes after a snapshot."""
    files = files_since(context.chain, task.table, entry, context.intent.end_lsn)
    return _range(context, task, files, entry.consistent_point)


def _snapshot(session: SparkSession, context: CycleContext, schema: SchemaVersion, entry: SnapshotEntry) -> DataFrame:
    """Return a snapshot's rows; raises TableError if a configured key is not unique in them."""
    if entry.key is None:
        return empty_rows(session, schema)
    folder = context.lease.lake.url(entry.key)
    rows = snapshot_rows(session, schema, entry.table, folder)
    if has_old_rows(schema) and not schema.is_bag:
        by_key = rows.groupBy(*(col(k) for k in merge_key(schema))).agg(F.count(F.lit(1)).alias(_ROWS))
        if not by_key.where(F.col(_ROWS) > 1).isEmpty():
            raise TableHeldError(str(schema.table), HeldCause.KEY_NOT_UNIQUE, WayOut.OTHER_KEY_THEN_SNAPSHOT)
    return rows


def _resolve(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    return None if changes.counts.rows == 0 else changes.resolve(session, base)


def _base(session: SparkSession, context: CycleContext, task: TableTask, changes: TableRange) -> DataFrame | None:
    """Return the table before the range if its rows may be needed; opening it costs reading its log."""
    return _current(session, context, task, task.before) if changes.needs_base and task.before is not None else None


def _current(session: SparkSession, context: CycleContext, task: TableTask, before: CutTable) -> DataFrame:
    return read_layer(session, context.lease.lake, task.table, before)


def _release(*resolved: ResolvedChanges | None) -> None:
    for one in filter(None, resolved):
        one.release()


def _cut_table(context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: int) -> CutTable:
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
    return CutTable(*fields, task.row_bytes, rows)


def _written(
    context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: Applied, counts: ChangeCounts
) -> TableResult:
    cut_table = _cut_table(context, task, history, current.version)
    return TableResult(cut_table, counts, current.inserted, current.deleted, fallback_reason=current.fallback_reason)
