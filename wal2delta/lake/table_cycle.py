"""One table in one cycle: history first, then current, each in exactly one commit.

Which tables and which range belongs to `plan`; running several tables and ending the cycle to `cycle`.

Whatever may be refused about a table's data is evaluated before its history is committed: a table that is refused is left
as it was. A table without changes in the range is carried along without a commit. Where a net change is empty, or meets no
row, current keeps its version while history gets its commit: the cut names both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from wal2delta.errors import InvariantError, TableError
from wal2delta.failpoints import failpoint
from wal2delta.lake.apply import Applied, CommitInfo, TableSpec, append, apply
from wal2delta.lake.changes import Changes, Counts, count_changes, key_bounds, read_changes
from wal2delta.lake.columns import (
    ORD,
    col,
    current_statistics,
    has_old_rows,
    history_statistics,
    in_lake,
    merge_key,
)
from wal2delta.lake.contract import Make, commit_of_cycle
from wal2delta.lake.converted import converted
from wal2delta.lake.correction import numbered
from wal2delta.lake.delta_log import NO_VERSION
from wal2delta.lake.documents import CutTable, Intent, SnapshotTable
from wal2delta.lake.evolution import Reshape, evolve
from wal2delta.lake.history import CORRECT_DELETE, CORRECT_INSERT, SNAPSHOT, change_rows, few_files, gap_row, state_rows
from wal2delta.lake.lease import Lease
from wal2delta.lake.net_change import NOT_UNIQUE, Folded, NetChange, fold
from wal2delta.lake.open import read_layer
from wal2delta.lake.plan import ordinal_after, snapshot_ordinal
from wal2delta.lake.refusal import refusals
from wal2delta.lake.shape_plan import older_shapes, proven_values
from wal2delta.lake.small_range import fold_small
from wal2delta.lake.snapshot_entry import difference, snapshot_rows, with_net_change
from wal2delta.landing.chain import Chain
from wal2delta.landing.reader import Slice, slices
from wal2delta.lsn import Lsn
from wal2delta.names import TableName
from wal2delta.schema import SchemaVersion

# A batch up to here is sent whole to every task of its MERGE: rows, and compressed bytes of the landing's files.
FEW_ROWS = 100_000
FEW_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class CycleContext:
    """What all tables of a cycle share. `resumed`: an earlier process may have made some of the commits."""

    chain: Chain
    intent: Intent
    lease: Lease
    resumed: bool
    make: Make = "auto"

    def commit_info(self, layer: str, table: TableName) -> CommitInfo:
        """The identity of a table's commit in this cycle; `layer` is `history` or `current`."""
        return commit_of_cycle(self.lease.paths.source, self.intent, layer, table, may_be_done=self.resumed)


@dataclass(frozen=True, slots=True)
class Entering:
    """A table's snapshot that enters with this cycle; `key` is the snapshot's folder in the store."""

    key: str
    consistent_point: Lsn
    table: SnapshotTable


@dataclass(frozen=True, slots=True)
class Work:
    """A table to be written: where it stands (None: not in the lake), what enters, its files of the cycle's range.

    `reshape`: the shape that it is given, and nothing else.
    """

    table: TableName
    before: CutTable | None
    entering: Entering | None
    files: Sequence[Slice]
    reshape: Reshape | None = None

    @property
    def version(self) -> SchemaVersion:
        """The shape that the cycle writes."""
        if self.entering is not None:
            return self.entering.table.version
        if self.before is None:
            raise InvariantError(str(self.table), "neither in the lake nor entering it", "report this")
        return self.before.version


@dataclass(frozen=True, slots=True)
class Written:
    """A table after its cycle; `counts` are of the changes that history got from the stream, `unfit` as in `Applied`."""

    at: CutTable
    counts: Counts
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    touched: bool = True
    unfit: str | None = None


def write_table(session: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table in a session of its own; raises TableError where its data can't be applied, before any commit."""
    with refusals(str(work.table)):
        if work.entering is None:
            return _write_changes(session, context, work)
        if work.before is None:
            return _write_first(session, context, work, work.entering)
        return _write_again(session, context, work, work.entering, work.before)


def _write_changes(session: SparkSession, context: CycleContext, work: Work) -> Written:
    before = work.before
    if before is None:
        raise InvariantError(str(work.table), "has changes but is not in the lake", "report this")
    at = _Range(context, work, work.files, context.intent.start_lsn)
    if at.counts.rows == 0:
        return Written(
            _cut_table(context, work, before.history_version, before.current_version), at.counts, touched=False
        )
    base = _base(session, context, work, at.counts)
    folded = at.fold_small(session, base)
    if folded is None:
        folded = fold(session, at.read(session), base)
    try:
        history = _append_history(session, context, work, change_rows(at.shape, folded.events), at.counts.rows)
        bounds = None if folded.net.deletes is None or at.older else key_bounds(at.shape, at.pieces)
        few = at.counts.rows <= FEW_ROWS and sum(p.file.bytes for p in at.all_pieces) <= FEW_BYTES
        current = _apply_current(session, context, work, folded.net, bounds, few=few, keys_max=at.counts.rows)
    finally:
        folded.release()
    return _written(context, work, history, current, at.counts)


def _write_first(session: SparkSession, context: CycleContext, work: Work, entering: Entering) -> Written:
    """A table's first rows: the snapshot with what has changed since, and history from the snapshot on."""
    at = _since_snapshot(context, work, entering)
    snapshot = _snapshot(session, context, at.shape, entering)
    folded = _fold(session, at, snapshot)
    try:
        events = state_rows(at.shape, snapshot, SNAPSHOT, entering.consistent_point)
        if folded is not None:
            events = events.unionAll(change_rows(at.shape, folded.events))
        history = _append_history(session, context, work, events, entering.table.rows + at.counts.rows)
        net = NetChange(at.shape, None, None) if folded is None else folded.net
        rows = with_net_change(snapshot, net)
        current = _apply_current(
            session, context, work, NetChange(at.shape, None, few_files(rows, entering.table.rows))
        )
    finally:
        _release(folded)
    written = _written(context, work, history, current, at.counts)
    return Written(written.at, written.counts, written.inserted, 0, rows=written.inserted)


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
    own = _own_changes(session, context, work, persisted) if follows else None
    nothing = NetChange(at.shape, None, None)
    found = difference(
        snapshot, nothing if since is None else since.net, persisted, nothing if own is None else own.net
    )
    intent = context.intent
    first = max(
        ordinal_after(context.chain, intent.segments, intent.number),
        snapshot_ordinal(intent.number) + entering.table.rows,
    )
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
        history = _append_history(session, context, work, events, counts.rows)
        written = at.counts.rows + counts.rows + retractions.count + insertions.count
        few = written <= FEW_ROWS and written * entering.table.bytes_per_row <= FEW_BYTES
        keys_max = retractions.count + counts.rows
        net = replace(found.net, nulls=retractions.count > 0 and _has_null_key(at.shape, retractions.kept))
        current = _apply_current(session, context, work, net, few=few, keys_max=keys_max)
    finally:
        _release(since, own)
        found.release()
        for kept in (retractions.kept, insertions.kept):
            kept.unpersist()
    return _written(context, work, history, current, counts)


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
    point = entering.consistent_point
    return _Range(context, work, list(slices(context.chain, point, context.intent.end_lsn, work.table)), point)


def _snapshot(session: SparkSession, context: CycleContext, shape: SchemaVersion, entering: Entering) -> DataFrame:
    """A snapshot's rows; refused where a key that a person has configured is not one."""
    folder = context.lease.paths.url(entering.key)
    rows = snapshot_rows(session, shape, entering.table, folder, snapshot_ordinal(context.intent.number))
    if has_old_rows(shape) and not shape.is_bag:
        by_key = rows.groupBy(*(col(k) for k in merge_key(shape))).agg(F.count(F.lit(1)).alias("_w2d_rows"))
        if not by_key.where(F.col("_w2d_rows") > 1).isEmpty():
            raise TableError(
                str(shape.table), NOT_UNIQUE, "configure a key that is unique, or none, and bootstrap again"
            )
    return rows


def _fold(session: SparkSession, at: _Range, base: DataFrame) -> Folded | None:
    return None if at.counts.rows == 0 else fold(session, at.read(session), base.drop(ORD))


def _base(session: SparkSession, context: CycleContext, work: Work, counts: Counts) -> DataFrame | None:
    """The table before the range, where its rows may be needed; opening it costs a look at its log."""
    by_digest = not counts.inserts_only if work.version.is_bag else has_old_rows(work.version)
    needed = counts.unchanged > 0 or by_digest
    return _current(session, context, work, work.before) if needed and work.before is not None else None


def _current(session: SparkSession, context: CycleContext, work: Work, before: CutTable) -> DataFrame:
    return read_layer(session, context.lease.paths, work.table, before)


def _append_history(session: SparkSession, context: CycleContext, work: Work, events: DataFrame, count: int) -> Applied:
    paths = context.lease.paths
    context.lease.check()
    written = append(
        session,
        paths.url(paths.history(work.table)),
        few_files(events, count),
        context.commit_info("history", work.table),
        create=TableSpec(statistics=history_statistics(in_lake(work.version))),
        expected_version=NO_VERSION if work.before is None else work.before.history_version,
        make=context.make,
    )
    failpoint("cycle.after_history")
    return written


def _apply_current(
    session: SparkSession,
    context: CycleContext,
    work: Work,
    net: NetChange,
    bounds: tuple[int, int] | None = None,
    *,
    few: bool = False,
    keys_max: int | None = None,
) -> Applied:
    paths = context.lease.paths
    context.lease.check()
    written = apply(
        session,
        paths.url(paths.current(work.table)),
        merge_key(net.shape),
        net.deletes,
        net.images,
        context.commit_info("current", work.table),
        wipe=net.wipe,
        create=TableSpec(statistics=current_statistics(net.shape)),
        # NULL lies within no bounds, and a hidden key's text is not the number that was bounded.
        bounds=bounds if merge_key(net.shape) == net.shape.key and not net.null_safe else None,
        null_safe=net.null_safe,
        few=few,
        keys_max=keys_max,
        expected_version=NO_VERSION if work.before is None else work.before.current_version,
        make=context.make,
    )
    failpoint("cycle.after_current")
    return written


def _release(*folded: Folded | None) -> None:
    for one in folded:
        if one is not None:
            one.release()


def _cut_table(context: CycleContext, work: Work, history: int, current: int) -> CutTable:
    before = work.before
    incarnation = context.intent.incarnation
    if work.entering is not None:
        point, snapshotted = work.entering.consistent_point, incarnation
    elif before is not None:
        point, snapshotted = before.snapshot_lsn, before.snapshot_incarnation
    else:
        raise InvariantError(str(work.table), "neither in the lake nor entering it", "report this")
    low = None if before is None else before.history_low
    return CutTable(context.intent.end_lsn, point, history, current, work.version, incarnation, snapshotted, low)


def _written(context: CycleContext, work: Work, history: Applied, current: Applied, counts: Counts) -> Written:
    at = _cut_table(context, work, history.version, current.version)
    return Written(at, counts, current.inserted, current.deleted, unfit=current.unfit)
