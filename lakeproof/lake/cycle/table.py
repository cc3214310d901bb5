"""One table in one cycle: history first, then current, each in exactly one commit.

Which tables and which range belongs to `plan`; running several tables and ending the cycle to `cycle`.

Whatever may be refused about a table's data is evaluated before its history is committed: a table that is refused is left
as it was. A table without changes in the range is carried along without a commit. Where a net change is empty, or meets no
row, current keeps its version while history gets its commit: the cut names both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.errors import InvariantError, TableError
from lakeproof.lake.columns import has_old_rows, in_lake, merge_key
from lakeproof.lake.cycle.current_commit import check_snapshot, commit_current, prepare_current
from lakeproof.lake.cycle.history_commit import append_history
from lakeproof.lake.cycle.snapshot_entry import difference, files_since
from lakeproof.lake.cycle.task import CycleContext, Entering, Work, Written
from lakeproof.lake.delta.apply import Applied
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
from lakeproof.lake.fold.in_memory import fold_small
from lakeproof.lake.fold.net_change import NOT_UNIQUE, Folded, NetChange, fold
from lakeproof.lake.fold.table_state import empty_rows, snapshot_rows, with_net_change
from lakeproof.lake.planning.ordinals import ordinal_after, snapshot_ordinal
from lakeproof.lake.planning.range_counts import Counts, count_changes
from lakeproof.lake.planning.schema_change import evolve
from lakeproof.lake.planning.schema_changes import older_shapes, proven_values
from lakeproof.lake.records.documents import CutTable, HistoryLow
from lakeproof.lake.records.history_sum import HistorySum
from lakeproof.lake.rows.columns import col
from lakeproof.lake.rows.conversion import converted
from lakeproof.lake.rows.correction import numbered
from lakeproof.lake.rows.landing_rows import Changes, key_bounds, read_changes
from lakeproof.lake.rows.refusal import refusals
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.schema import SchemaVersion

# A batch up to here is sent whole to every task of its MERGE: rows, and their decoded bytes.
FEW_ROWS = 100_000
FEW_BYTES = 16 << 20


def write_table(session: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table in a session of its own; raises TableError where its data can't be applied, before any commit."""
    with refusals(str(work.table)):
        if work.entering is None:
            return _write_changes(session, context, work)
        if work.before is None or work.anew or work.history_lost:
            return _write_first(session, context, work, work.entering)
        return _write_again(session, context, work, work.entering, work.before)


def _write_changes(session: SparkSession, context: CycleContext, work: Work) -> Written:
    before = work.before
    if before is None:
        raise InvariantError(str(work.table), "has changes but is not in the lake", "report this")
    at = _Range(context, work, work.files, context.intent.start_lsn)
    if at.counts.rows == 0:
        history = before.history_version, before.history_sum
        return Written(_cut_table(context, work, history, before.current_version), at.counts, touched=False)
    base = _base(session, context, work, at.counts)
    folded = at.fold_small(session, base)
    if folded is None:
        folded = fold(session, at.read(session), base)
    try:
        bounds = None if folded.net.deletes is None or at.older else key_bounds(at.shape, at.pieces)
        few = at.counts.rows <= FEW_ROWS and sum(p.file.decoded.bytes for p in at.all_pieces) <= FEW_BYTES
        ready = prepare_current(session, context, work, folded.net, bounds, few=few, keys_max=at.counts.rows)
        history = append_history(session, context, work, change_rows(at.shape, folded.events), at.counts.rows)
        current = commit_current(context, ready)
    finally:
        folded.release()
    return _written(context, work, history, current, at.counts)


def _write_first(session: SparkSession, context: CycleContext, work: Work, entering: Entering) -> Written:
    """A table's first rows, the snapshot with what has changed since, and history from the snapshot on.

    Or all of them anew: for who adds history up, what stood before a `reset` is void.
    """
    at = _since_snapshot(context, work, entering)
    snapshot = _snapshot(session, context, at.shape, entering)
    folded = _fold(session, at, snapshot)
    point, in_place = entering.consistent_point, work.before is not None
    try:
        check_snapshot(context, work, snapshot, folded)
        events = state_rows(at.shape, snapshot, SNAPSHOT, point)
        if folded is not None:
            events = events.unionAll(change_rows(at.shape, folded.events))
        if in_place:
            events = reset_row(session, at.shape, snapshot_ordinal(context.intent.number), point).unionAll(events)
            if work.before is not None and work.before.incarnation != context.intent.incarnation:
                gap = _gap(session, context, work, _ordinal_after_rows(context, entering))
                events = events if gap is None else events.unionAll(gap)
        count = entering.table.rows + at.counts.rows
        history = append_history(session, context, work, events, count, wipe=in_place and work.history_lost)
        net = NetChange(at.shape, None, None) if folded is None else folded.net
        rows = with_net_change(snapshot, net)
        images = few_files(rows, entering.table.rows + at.counts.inserts)
        whole = NetChange(at.shape, None, images, wipe=in_place)
        current = commit_current(context, prepare_current(session, context, work, whole))
    finally:
        _release(folded)
    written = _written(context, work, history, current, at.counts)
    low = HistoryLow(context.intent.number, point, archived=False) if in_place and work.history_lost else None
    at_end = written.at if low is None else replace(written.at, history_low=low)
    at_end = replace(at_end, exact_from=point) if in_place else at_end
    return Written(at_end, written.counts, written.inserted, 0, rows=written.inserted)


def _write_again(
    session: SparkSession, context: CycleContext, work: Work, entering: Entering, before: CutTable
) -> Written:
    """A table that is in the lake: its changes (unless it was held and has missed some) and a correction, in one commit."""
    same_life = before.incarnation == context.intent.incarnation
    follows = same_life and before.at_lsn == context.intent.start_lsn
    at = _since_snapshot(context, work, entering)
    snapshot = _snapshot(session, context, at.shape, entering)
    persisted = _current(session, context, work, before)
    since = _fold(session, at, snapshot)
    check_snapshot(context, work, snapshot, since)
    own = _own_changes(session, context, work, persisted) if follows else None
    nothing = NetChange(at.shape, None, None)
    found = difference(
        snapshot, nothing if since is None else since.net, persisted, nothing if own is None else own.net
    )
    first = _ordinal_after_rows(context, entering)
    gap = None if same_life else _gap(session, context, work, first)
    first += 0 if gap is None else 1
    retractions = numbered(session, found.correction.retractions, first)
    insertions = numbered(session, found.correction.insertions, first + retractions.count)
    try:
        end = context.intent.end_lsn
        events = state_rows(at.shape, retractions.frame, CORRECT_DELETE, end)
        events = events.unionAll(state_rows(at.shape, insertions.frame, CORRECT_INSERT, end))
        if gap is not None:
            events = gap.unionAll(events)
        if own is not None:
            events = events.unionAll(change_rows(at.shape, own.events))
        counts = Counts() if own is None else own.counts
        history = append_history(session, context, work, events, counts.rows)
        written = at.counts.rows + counts.rows + retractions.count + insertions.count
        few = written <= FEW_ROWS and written * work.row_bytes <= FEW_BYTES
        keys_max = retractions.count + counts.rows
        net = replace(
            found.net(insertions.frame), nulls=retractions.count > 0 and _has_null_key(at.shape, retractions.kept)
        )
        current = commit_current(context, prepare_current(session, context, work, net, few=few, keys_max=keys_max))
    finally:
        _release(since, own)
        found.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    written_now = _written(context, work, history, current, counts)
    if not follows or own is not None or not work.files:
        return written_now
    # Its own changes do not fit what is persisted, or are of several shapes: the correction has them, at the cycle's end.
    return replace(written_now, at=replace(written_now.at, exact_from=end))


def _ordinal_after_rows(context: CycleContext, entering: Entering) -> int:
    """The first `_lp_ord` of the cycle that neither a change nor a row of the snapshot has."""
    intent = context.intent
    return max(
        ordinal_after(context.chain, intent.segments, intent.number),
        snapshot_ordinal(intent.number) + entering.table.rows + 1,
    )


def _has_null_key(shape: SchemaVersion, rows: DataFrame) -> bool:
    """Whether a row's key is NULL, wholly or in part: it was written before the table had this key."""
    return not rows.where(reduce(or_, (col(k).isNull() for k in merge_key(shape)))).isEmpty()


def _gap(session: SparkSession, context: CycleContext, work: Work, ordinal: int) -> DataFrame | None:
    """What history keeps of a table's way into another incarnation."""
    before, entering = work.before, work.entering
    if before is None or entering is None:
        return None
    to = (context.intent.incarnation, entering.consistent_point)
    return gap_row(session, in_lake(work.version), ordinal, (before.incarnation, before.at_lsn), to)


def _own_changes(session: SparkSession, context: CycleContext, work: Work, persisted: DataFrame) -> Folded | None:
    """The changes of the cycle's range on top of what is persisted; None where they don't fit it.

    Rows that have drifted are what a re-snapshot is for: history then has the correction instead of the changes.
    """
    at = _Range(context, work, work.files, context.intent.start_lsn)
    if at.older:
        return None
    try:
        with refusals(str(work.table)):
            own = _fold(session, at, persisted)
            if own is not None and own.persisted:
                own.events.count()
            return own
    except TableError:
        return None


class _Range:
    """A table's files of a range, and what is in them."""

    def __init__(self, context: CycleContext, work: Work, files: Sequence[Slice], start: Lsn) -> None:
        self.context = context
        self.start = start
        self.shape = in_lake(work.version)
        self.work = work
        end = context.intent.end_lsn
        self.pieces = [f for f in files if f.file.schema_id == work.version.id]
        self.older = older_shapes(context.chain, work.version, files, start, end)
        self.counts = count_changes(self.all_pieces, start, end)
        self.bases = {s.number: s.base for s in context.intent.segments}

    @property
    def all_pieces(self) -> list[Slice]:
        """The files of all shapes."""
        return [*self.pieces, *(piece for pieces in self.older.values() for piece in pieces)]

    def read(self, session: SparkSession) -> Changes:
        """The rows as a frame."""
        end = self.context.intent.end_lsn
        frames = []
        if self.pieces:
            frames.append(read_changes(session, self.shape, self.pieces, bases=self.bases, start=self.start, end=end))
        for old, pieces in self.older.items():
            rows = read_changes(session, in_lake(old), pieces, bases=self.bases, start=self.start, end=end)
            found = evolve(old, self.work.version)
            missing = proven_values(self.context.chain, self.work.before, found, end)
            frames.append(converted(session, rows, found, missing))
        return Changes(self.shape, reduce(DataFrame.unionByName, frames), self.counts)

    def fold_small(self, session: SparkSession, base: DataFrame | None) -> Folded | None:
        """The rows added up in memory; None where that is not possible."""
        if self.older:
            return None
        end = self.context.intent.end_lsn
        return fold_small(
            session, self.shape, self.pieces, bases=self.bases, start=self.start, end=end, counts=self.counts, base=base
        )


def _since_snapshot(context: CycleContext, work: Work, entering: Entering) -> _Range:
    """The changes after a snapshot."""
    files = files_since(context.chain, work.table, entering, context.intent.end_lsn)
    return _Range(context, work, files, entering.consistent_point)


def _snapshot(session: SparkSession, context: CycleContext, shape: SchemaVersion, entering: Entering) -> DataFrame:
    """A snapshot's rows; refused where a key that a person has configured is not one."""
    if entering.key is None:
        return empty_rows(session, shape)
    folder = context.lease.paths.url(entering.key)
    # The very first ordinal is that of a `reset`.
    rows = snapshot_rows(session, shape, entering.table, folder, snapshot_ordinal(context.intent.number) + 1)
    if has_old_rows(shape) and not shape.is_bag:
        by_key = rows.groupBy(*(col(k) for k in merge_key(shape))).agg(F.count(F.lit(1)).alias("_lp_rows"))
        if not by_key.where(F.col("_lp_rows") > 1).isEmpty():
            raise TableError(
                str(shape.table), NOT_UNIQUE, "configure a key that is unique, or none, and bootstrap again"
            )
    return rows


def _fold(session: SparkSession, at: _Range, base: DataFrame) -> Folded | None:
    return None if at.counts.rows == 0 else fold(session, at.read(session), base)


def _base(session: SparkSession, context: CycleContext, work: Work, counts: Counts) -> DataFrame | None:
    """The table before the range, where its rows may be needed; opening it costs a look at its log."""
    by_digest = not counts.inserts_only if work.version.is_bag else has_old_rows(work.version)
    needed = counts.unchanged > 0 or by_digest
    return _current(session, context, work, work.before) if needed and work.before is not None else None


def _current(session: SparkSession, context: CycleContext, work: Work, before: CutTable) -> DataFrame:
    return read_layer(session, context.lease.paths, work.table, before)


def _release(*folded: Folded | None) -> None:
    for one in filter(None, folded):
        one.release()


def _cut_table(context: CycleContext, work: Work, history: tuple[int, HistorySum], current: int) -> CutTable:
    before = work.before
    incarnation = context.intent.incarnation
    if work.entering is not None:
        point, snapshotted = work.entering.consistent_point, incarnation
    elif before is not None:
        point, snapshotted = before.snapshot_lsn, before.snapshot_incarnation
    else:
        raise InvariantError(str(work.table), "neither in the lake nor entering it", "report this")
    low = None if before is None else before.history_low
    version, rows = history
    at = (context.intent.end_lsn, point, version, current, work.version, incarnation, snapshotted, low)
    return CutTable(*at, work.row_bytes, rows)


def _written(
    context: CycleContext, work: Work, history: tuple[int, HistorySum], current: Applied, counts: Counts
) -> Written:
    at = _cut_table(context, work, history, current.version)
    return Written(at, counts, current.inserted, current.deleted, unfit=current.unfit)
