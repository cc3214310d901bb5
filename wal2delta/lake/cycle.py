"""One cycle in six steps: crash-safe across many Delta tables, which have no common transaction.

What a cycle takes belongs to `plan`, writing one table to `table_cycle`, running cycles to `wal2delta.pipeline.compact`.

    1 intent   put if absent: range, segments, tables, snapshots, held tables. An intent without a cut is finished first
    2 tables   history, then current, one Delta commit each that carries the cycle's number; several tables at a time
    3 views    refresh themselves from cuts
    4 durable  what the commits wrote is synced, with its folders
    5 cut      put if absent: the position, and every table's versions
    6 consumed the segments up to the cut's `next_segment` are no longer needed

Invariants: consistent-cut (a reader sees what a cut names, so a half-finished cycle is invisible), idempotent-apply (a
killed cycle is run again from its intent: the same inputs, and commits that are there are not made again), one-writer (the
lease is checked before each commit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path

from pyspark.sql import SparkSession

from wal2delta.errors import TableError
from wal2delta.failpoints import failpoint
from wal2delta.lake.changes import last_commit
from wal2delta.lake.contract import Make
from wal2delta.lake.documents import Cut, CutTable, Held, Intent
from wal2delta.lake.durable import sync_tables
from wal2delta.lake.lease import Lease
from wal2delta.lake.plan import Plan
from wal2delta.lake.records import write_cut, write_intent
from wal2delta.lake.reshape import reshape_table
from wal2delta.lake.schema_events import HELD, ShapeChange, publish_schemas, record_changes, shape_changes
from wal2delta.lake.snapshots import read_snapshot
from wal2delta.lake.strays import stray_commits_hold, without_strays
from wal2delta.lake.table_cycle import CycleContext, Entering, Work, Written, write_table
from wal2delta.landing.chain import Chain
from wal2delta.landing.reader import Slice, slices, verify, verify_file
from wal2delta.names import CycleNumber, TableName


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A finished cycle: its cut, what was written to each table in it, and the shapes that changed."""

    cut: Cut
    written: Mapping[TableName, Written]
    shapes: tuple[ShapeChange, ...] = ()


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
    resumed: bool,
    threads: int,
    make: Make = "auto",
) -> CycleResult:
    """Steps 2 to 6 of an intent, whoever wrote it. `previous` is the cut before; `resumed`: commits may be there already.

    A table whose data are refused is held, and the others go on; any other error ends the cycle without a cut.
    """
    context = CycleContext(chain, intent, lease, resumed, make)
    written, refused = _write_tables(spark, context, _works(context, previous), threads)
    changes = [c for c in shape_changes(intent, previous) if c.done == HELD or c.table in written]
    record_changes(spark.newSession(), lease.paths, intent, changes, resumed=resumed)
    failpoint("cycle.after_tables")
    _sync(context, [t for t, w in written.items() if w.touched], schemas=bool(changes))
    failpoint("cycle.after_sync")
    lease.check()
    cut = _cut(context, sha256, previous, written, refused)
    publish_schemas(lease.store, lease.paths, intent, previous, cut)
    write_cut(lease.store, lease.paths, cut)
    failpoint("cycle.after_cut")
    return CycleResult(cut, written, tuple(changes))


def _works(context: CycleContext, previous: Cut | None) -> list[Work]:
    intent, lease = context.intent, context.lease
    tables = {} if previous is None else previous.tables
    files: dict[TableName, list[Slice]] = {t: [] for t in intent.tables}
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
        works.append(Work(table, tables.get(table), entering, files[table], wanted.reshape))
    return works


def _write_tables(
    spark: SparkSession, context: CycleContext, works: Sequence[Work], threads: int
) -> tuple[dict[TableName, Written], dict[TableName, TableError]]:
    """Step 2; the first error that is not about one table's data is raised when all running tables have ended."""
    written: dict[TableName, Written] = {}
    refused: dict[TableName, TableError] = {}
    with ThreadPoolExecutor(max_workers=threads, thread_name_prefix="w2d-table") as pool:
        # A session of its own: a MERGE's transaction is a setting of its session.
        futures = {w.table: pool.submit(_write_table, spark.newSession(), context, w) for w in works}
        try:
            for table, future in futures.items():
                try:
                    written[table] = future.result()
                except TableError as error:
                    refused[table] = error
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return written, refused


def _write_table(session: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table on nothing but what the cut before names; a stray commit is taken back where a snapshot comes."""
    with stray_commits_hold(context.lease.paths, work.table):
        before = without_strays(
            session,
            context.lease,
            work.table,
            work.before,
            lambda layer: context.commit_info(layer, work.table),
            take_back=work.entering is not None or work.table in context.intent.held,
        )
        written = _write_verified(session, context, replace(work, before=before))
    return written if before == work.before else replace(written, touched=True)


def _write_verified(session: SparkSession, context: CycleContext, work: Work) -> Written:
    """Write one table from files that are what was made durable: a flipped bit may well be a readable, other value."""
    if work.reshape is not None:
        return reshape_table(session, context, work, work.reshape)
    pieces, entering = work.files, work.entering
    if entering is not None:
        store, paths = context.lease.store, context.lease.paths
        for chunk in entering.table.chunks:
            key = f"{entering.key}/{chunk.path}"
            verify(store, key, f"snapshot file {paths.url(key)}", chunk.bytes, chunk.sha256)
        pieces = list(slices(context.chain, entering.consistent_point, context.intent.end_lsn, work.table))
    for piece in pieces:
        verify_file(context.chain, piece.file)
    return write_table(session, context, work)


def _sync(context: CycleContext, tables: Sequence[TableName], *, schemas: bool) -> None:
    """Step 4."""
    paths = context.lease.paths
    places = [Path(paths.url(key)) for t in tables for key in (paths.history(t), paths.current(t))]
    places += [Path(paths.url(paths.schema_history))] if schemas else []
    since = datetime.fromisoformat(context.intent.created_at).timestamp()
    sync_tables(places, Path(paths.url(paths.source)).parent, since)


def _cut(
    context: CycleContext,
    sha256: str,
    previous: Cut | None,
    written: Mapping[TableName, Written],
    refused: Mapping[TableName, TableError],
) -> Cut:
    intent = context.intent
    tables: dict[TableName, CutTable] = {} if previous is None else dict(previous.tables)
    tables |= {t: w.at for t, w in written.items()}
    held = dict(intent.held)
    for table, error in refused.items():
        at = tables.get(table)
        found = Held(intent.end_lsn if at is None else at.at_lsn, error.reason, error.remedy)
        held[table] = found.named(context.chain.paths.source, table)
        wanted = intent.tables[table]
        called_for = None if wanted.reshape is None else wanted.reshape.called_for
        point = called_for if wanted.snapshot is None else wanted.from_lsn
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


def _commit_time(context: CycleContext, previous: Cut | None) -> str | None:
    """The greatest commit time so far: commit times are not in commit order."""
    intent = context.intent
    times = [] if previous is None or previous.commit_time is None else [datetime.fromisoformat(previous.commit_time)]
    partly = []
    for manifest in context.chain.between(intent.start_lsn, intent.end_lsn):
        if manifest.end_lsn > intent.end_lsn:
            files = slices(context.chain, intent.start_lsn, intent.end_lsn)
            partly += [s for s in files if s.number == manifest.number]
        elif manifest.last_commit_us is not None:
            times.append(datetime.fromtimestamp(manifest.last_commit_us / 1e6, timezone.utc))
    found = last_commit(partly, intent.start_lsn, intent.end_lsn) if partly else None
    times += [] if found is None else [found]
    return max(times).isoformat(timespec="microseconds") if times else None


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
