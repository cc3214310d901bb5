"""One cycle in six steps: crash-safe across many Delta tables, which have no common transaction.

What a cycle takes belongs to `plan`, writing one table to `table_cycle`, running cycles to `lakeproof.commands.compact`.

    1 intent   put if absent: range, segments, tables, snapshots, held tables. An intent without a cut is finished first
    2 tables   history, then current, one Delta commit each that carries the cycle's number; several tables at a time
    3 views    refresh themselves from cuts
    4 durable  what the commits wrote is synced, with its folders
    5 cut      put if absent: the position, and every table's versions
    6 consumed the segments up to the cut's `next_segment` are no longer needed

Invariants: consistent-cut (a reader sees what a cut names, so a half-finished cycle is invisible), idempotent-apply (a
killed cycle is run again from its intent: the same inputs, on tables out of whose logs everything that no cut names was
taken first), one-writer (the lease is checked before each commit).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from lakeproof.errors import TableError
from lakeproof.failpoints import failpoint
from lakeproof.lake.cycle.attempts import Attempt, earlier_attempts, tried
from lakeproof.lake.cycle.broken_log import on_sound_logs
from lakeproof.lake.cycle.foreign_commits import stray_commits_hold, without_strays
from lakeproof.lake.cycle.schema_change_commits import reshape_table
from lakeproof.lake.cycle.schema_history import (
    HELD,
    ShapeChange,
    publish_schemas,
    record_changes,
    recorded_before,
    shape_changes,
)
from lakeproof.lake.cycle.snapshot_entry import files_since
from lakeproof.lake.cycle.table import write_table
from lakeproof.lake.cycle.task import CycleContext, Entering, Work, Written
from lakeproof.lake.delta.commit import Make
from lakeproof.lake.delta.fsync import sync_commits
from lakeproof.lake.delta.log import NO_VERSION
from lakeproof.lake.planning.plan import Plan
from lakeproof.lake.planning.range_counts import last_commit
from lakeproof.lake.records.documents import Cut, CutTable, Held, Intent
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.store import write_cut, write_intent
from lakeproof.lake.rows.memory import fit, largest_row, refuse_too_large
from lakeproof.lake.spark.failures import concerns_all
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice, slices, verify, verify_file
from lakeproof.names import CycleNumber, TableName
from lakeproof.snapshot.folder import read_snapshot
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A finished cycle: its cut, what was written to each table in it, and the shapes that changed.

    `untold` is why those are not in `schema_history`.
    """

    cut: Cut
    written: Mapping[TableName, Written]
    shapes: tuple[ShapeChange, ...] = ()
    untold: str | None = None


def make_intent(plan: Plan, number: CycleNumber, chain: Chain, lease: Lease) -> Intent:
    """The intent of a plan under a lease."""
    return Intent(
        number=number,
        kind=plan.kind,
        incarnation=chain.incarnation,
        start_lsn=plan.start,
        end_lsn=plan.end,
        segments=plan.segments,
        tables=plan.tables,
        held=plan.held,
        epoch=lease.epoch,
        writer=lease.writer,
        created_at=_now(),
    )


def begin_cycle(plan: Plan, number: CycleNumber, chain: Chain, lease: Lease) -> tuple[Intent, str]:
    """Step 1: put the intent; it and its SHA-256."""
    lease.check()
    intent = make_intent(plan, number, chain, lease)
    sha256 = write_intent(lease.store, lease.paths, intent)
    failpoint("cycle.after_intent")
    return intent, sha256


def finish_cycle(
    spark: SparkSession,
    chain: Chain,
    lease: Lease,
    *,
    intent: Intent,
    sha256: str,
    previous: Cut | None,
    threads: int,
    make: Make = "auto",
    on_table: Callable[[TableName, int], None] = lambda _table, _changes: None,
) -> CycleResult:
    """Steps 2 to 6 of an intent, whoever wrote it. `previous` is the cut before.

    A table whose data are refused, or which could not be written in several attempts, is held, and the others go on; what
    concerns all ends the cycle without a cut. `on_table` hears of each table of the intent that is over, with its
    changes, from any thread.
    """
    context = CycleContext(chain, intent, lease, make)
    written, refused = _write_tables(spark, context, _works(context, previous), threads, on_table)
    changes = [c for c in shape_changes(intent, previous) if c.done == HELD or c.table in written]
    untold = record_changes(spark.newSession(), lease, intent, changes)
    failpoint("cycle.after_tables")
    _sync(context, previous, written, schemas=untold is None)
    failpoint("cycle.after_sync")
    lease.check()
    cut = _cut(context, sha256, previous, written, refused)
    publish_schemas(lease.store, lease.paths, intent, previous, cut)
    write_cut(lease.store, lease.paths, cut)
    failpoint("cycle.after_cut")
    return CycleResult(cut, written, tuple(changes), untold)


def _works(context: CycleContext, previous: Cut | None) -> list[Work]:
    intent, lease = context.intent, context.lease
    tables = {} if previous is None else previous.tables
    files: dict[TableName, list[Slice]] = {t: [] for t in intent.tables}
    idle = [] if intent.kind != "apply" else sorted(tables.keys() - intent.tables.keys() - intent.held.keys())
    for piece in slices(context.chain, intent.start_lsn, intent.end_lsn):
        if piece.file.table in files:
            files[piece.file.table].append(piece)
    keys = {i.snapshot for i in intent.tables.values() if i.snapshot is not None}
    snapshots = {key: read_snapshot(lease.store, lease.paths, key) for key in keys}
    works = []
    for table, wanted in intent.tables.items():
        entering = None
        if wanted.snapshot is not None:
            snapshot = snapshots[wanted.snapshot]
            entering = Entering(wanted.snapshot, snapshot.consistent_point, snapshot.tables[table])
        elif wanted.born is not None:
            entering = Entering(None, wanted.from_lsn, SnapshotTable(wanted.born, 0, ()))
        before = None if previous is None else previous.held.get(table)
        lost = before is not None and before.history_lost
        works.append(Work(table, tables.get(table), entering, files[table], wanted.reshape, history_lost=lost))
    # The intent does not name the tables without changes; whether somebody has committed to one is looked at all the same.
    return [*works, *(Work(table, tables[table], None, []) for table in idle)]


def _write_tables(
    spark: SparkSession,
    context: CycleContext,
    works: Sequence[Work],
    threads: int,
    on_table: Callable[[TableName, int], None],
) -> tuple[dict[TableName, Written], dict[TableName, TableError]]:
    """Step 2; the first error that is not about one table is raised when all running tables have ended.

    Tables whose attempt ended with its process are written after all others, one at a time: whichever ends it again, it is
    that one.
    """
    earlier = earlier_attempts(context.lease, context.intent)
    outcome = _Outcome()

    def write(work: Work, attempts: Sequence[Attempt]) -> Written:
        changes = 0
        try:
            written = _write_table(spark, context, work, attempts)
            changes = written.counts.changes
            return written
        finally:
            if work.table in context.intent.tables:
                on_table(work.table, changes)

    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="lp-table") as pool:
        futures = {w.table: pool.submit(write, w, ()) for w in works if w.table not in earlier}
        try:
            for table, future in futures.items():
                outcome.take(table, future.result)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for work in works:
        if work.table in earlier:
            outcome.take(work.table, partial(write, work, earlier[work.table]))
    return outcome.written, outcome.refused


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of the tables."""

    written: dict[TableName, Written] = field(default_factory=dict)
    refused: dict[TableName, TableError] = field(default_factory=dict)

    def take(self, table: TableName, write: Callable[[], Written]) -> None:
        try:
            self.written[table] = write()
        except TableError as error:
            self.refused[table] = error


def _write_table(spark: SparkSession, context: CycleContext, work: Work, earlier: Sequence[Attempt]) -> Written:
    """Write one table, as often as it may be tried; raises TableError when it is to be held.

    An attempt at a snapshot's entry that fails is followed by one that reads nothing of what is there.
    """
    if _is_carried(context, work):
        # Nothing is to be written: that costs no document as long as nothing is wrong.
        try:
            return _write_table_once(spark, context, work)
        except Exception as error:
            if isinstance(error, TableError) or concerns_all(error):
                raise

    def once(*, anew: bool) -> Written:
        return _write_table_once(spark, context, replace(work, anew=anew))

    return tried(spark, context.lease, context.intent, work.table, earlier, once)


def _write_table_once(spark: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table on nothing but what the cut before names; a stray commit is taken back when a snapshot comes."""
    # A session of its own, since a MERGE's transaction and the size of its rows are settings of it; of thousands of tables
    # most have nothing to be written.
    session = spark if _is_carried(context, work) else spark.newSession()
    carried = work.before
    work = on_sound_logs(session, context, work)
    with stray_commits_hold(context.lease.paths, work.table):
        before = without_strays(
            session,
            context.lease,
            context.intent,
            work.table,
            work.before,
            take_back=work.entering is not None or work.table in context.intent.held,
        )
        written = _write_verified(session, context, replace(work, before=before))
    return written if before == carried else replace(written, touched=True)


def _is_carried(context: CycleContext, work: Work) -> bool:
    """Whether there is nothing to do but to look for stray commits."""
    return not (work.files or work.entering or work.reshape or work.table in context.intent.held)


def _write_verified(session: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table from files that are what was made durable: a flipped bit may well be a readable, other value."""
    wanted = work.reshape
    if wanted is not None:
        work = replace(work, row_bytes=largest_row(work.before, None, ()))
        _make_room(session, work)
        return reshape_table(session, context, work, wanted)
    pieces, entering = work.files, work.entering
    if entering is not None:
        store, paths = context.lease.store, context.lease.paths
        for chunk in entering.table.chunks:
            key = f"{entering.key}/{chunk.path}"
            verify(store, key, f"snapshot file {paths.url(key)}", chunk.bytes, chunk.sha256)
        pieces = files_since(context.chain, work.table, entering, context.intent.end_lsn)
    for piece in pieces:
        verify_file(context.chain, piece.file)
    work = replace(work, row_bytes=largest_row(work.before, None if entering is None else entering.table, pieces))
    if not _is_carried(context, work):
        _make_room(session, work)
    return write_table(session, context, work)


def _make_room(session: SparkSession, work: Work) -> None:
    """Make the session fit for the table's rows; raises TableError if they are too large for the driver."""
    refuse_too_large(session, work.table, work.row_bytes)
    fit(session, work.row_bytes)


def _sync(context: CycleContext, previous: Cut | None, written: Mapping[TableName, Written], *, schemas: bool) -> None:
    """Step 4."""
    paths = context.lease.paths
    before = {} if previous is None else previous.tables
    places = {}
    for table, made in written.items():
        if made.touched:
            at = before.get(table)
            places[paths.url(paths.history(table))] = NO_VERSION if at is None else at.history_version
            places[paths.url(paths.current(table))] = NO_VERSION if at is None else at.current_version
    if schemas:
        places[paths.url(paths.schema_history)] = recorded_before(paths, context.intent)
    sync_commits(places, Path(paths.url(paths.source)).parent)


def _cut(
    context: CycleContext,
    sha256: str,
    previous: Cut | None,
    written: Mapping[TableName, Written],
    refused: Mapping[TableName, TableError],
) -> Cut:
    intent = context.intent
    tables = {} if previous is None else _carried(previous, intent, refused)
    tables |= {t: w.at for t, w in written.items()}
    held = dict(intent.held)
    for table, error in refused.items():
        at = tables.get(table)
        found = Held(intent.end_lsn if at is None else at.at_lsn, error.reason, error.remedy)
        before = None if previous is None else previous.held.get(table)
        held[table] = found.named(context.chain.paths.source, table).after(before)
        wanted = intent.tables.get(table)
        called_for = None if wanted is None or wanted.reshape is None else wanted.reshape.called_for
        enters = wanted is not None and (wanted.snapshot is not None or wanted.born is not None)
        point = wanted.from_lsn if wanted is not None and enters else called_for
        if at is not None and point is not None:
            # The snapshot has had its turn: it is not tried again, a newer one is.
            tables[table] = replace(at, snapshot_lsn=point, snapshot_incarnation=intent.incarnation)
    return Cut(
        number=intent.number,
        kind=intent.kind,
        incarnation=intent.incarnation,
        position=intent.end_lsn,
        commit_time=_commit_time(context, previous),
        tables=tables,
        next_segment=context.chain.number_after(intent.end_lsn),
        intent_sha256=sha256,
        created_at=_now(),
        held=held,
    )


def _carried(previous: Cut, intent: Intent, refused: Collection[TableName]) -> dict[TableName, CutTable]:
    """The tables of the cut before: those that the cycle neither writes nor holds have no changes, and stand at its end."""
    still = intent.tables.keys() | intent.held.keys() | set(refused)
    end, incarnation = intent.end_lsn, intent.incarnation
    return {
        t: at if t in still else replace(at, at_lsn=end, incarnation=incarnation) for t, at in previous.tables.items()
    }


def _commit_time(context: CycleContext, previous: Cut | None) -> str | None:
    """The greatest commit time so far: commit times are not in commit order.

    Of a segment that goes on after the range it is looked for in the files; when they can't be read, it is the segment's.
    """
    intent = context.intent
    times = [] if previous is None or previous.commit_time is None else [datetime.fromisoformat(previous.commit_time)]
    for manifest in context.chain.between(intent.start_lsn, intent.end_lsn):
        if manifest.last_commit_us is not None:
            last: datetime | None = datetime.fromtimestamp(manifest.last_commit_us / 1e6, timezone.utc)
            if manifest.end_lsn > intent.end_lsn:
                files = slices(context.chain, intent.start_lsn, intent.end_lsn)
                partly = [s for s in files if s.number == manifest.number]
                with suppress(OSError, pa.ArrowException):
                    last = last_commit(partly, intent.start_lsn, intent.end_lsn)
            times += [] if last is None else [last]
    return max(times).isoformat(timespec="microseconds") if times else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
