"""Cycles of kind `apply` and `schema`: the changes of a range and the snapshots that enter, or tables' new schemas.

The five steps are in `steps`; step 2 is here, table by table. Writing one table is in `table` and `schemas.commits`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from lakeproof.errors import InvariantError
from lakeproof.lake.cycle.attempts import Attempt, earlier_attempts, tried
from lakeproof.lake.cycle.here import why_spark, write_here
from lakeproof.lake.cycle.schemas.commits import commit_schema_change
from lakeproof.lake.cycle.schemas.history import (
    HELD,
    RecordedChange,
    record_changes,
    recorded_before,
    recorded_changes,
)
from lakeproof.lake.cycle.steps import OpenCycle, WrittenTables, commit_time_at_end, end_cycle, versions_before
from lakeproof.lake.cycle.task import (
    CycleSettings,
    KeyedEntry,
    SnapshotEntry,
    TableResult,
    TableTask,
    check_portable_names,
)
from lakeproof.lake.cycle.upkeep.logs import hold_for_foreign_commits, on_sound_logs, without_foreign_commits
from lakeproof.lake.records.documents import (
    Changes,
    Copy,
    Created,
    Cut,
    CutTable,
    CycleKind,
    Intent,
    Keys,
    SchemaChange,
    TableIntent,
)
from lakeproof.lake.records.held import Held, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.rows.change import Unsupported
from lakeproof.lake.rows.memory import fit_table, refuse_too_large
from lakeproof.lake.spark.failures import concerns_all
from lakeproof.lake.spark_on_demand import NoSparkError, SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice, slices, verified, verify_file
from lakeproof.lsn import Lsn
from lakeproof.names import Layer, TableName
from lakeproof.snapshot.copy.keyed_copy import read_copy
from lakeproof.snapshot.folder import read_snapshot
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class CycleResult:
    """A finished cycle: its cut, what it wrote to each table, and the schemas that changed.

    `not_recorded` is why those changes are not in `schema_history`, None if they are.
    """

    cut: Cut
    written: Mapping[TableName, TableResult]
    schema_changes: tuple[RecordedChange, ...] = ()
    not_recorded: str | None = None


_READ_ANEW = "another schema, for which its rows are read"


def apply_cycle(
    spark: SparkOnDemand, chain: Chain, lease: Lease, cycle: OpenCycle, settings: CycleSettings
) -> CycleResult:
    """Run steps 2 to 5 of a cycle of kind `apply` or `schema`, no matter who wrote its intent.

    A table whose data are refused, or which could not be written in several attempts, is held, and the others go on; an
    error that concerns all tables ends the cycle without a cut.
    """
    intent, previous = cycle.intent, cycle.previous
    written, refused = _write_tables(spark, lease, intent, settings, _tasks(chain, lease, intent, previous, settings))
    changes = [c for c in recorded_changes(intent, previous) if c.done == HELD or c.table in written]
    not_recorded = record_changes(lease, intent, changes)
    tables, held = _tables_at_end(intent, previous, written, refused)
    versions = versions_before(lease.lake, previous, [table for table, result in written.items() if not result.carried])
    if not_recorded is None:
        versions[lease.lake.url(lease.lake.paths.schema_history)] = recorded_before(lease.lake, intent)
    next_segment = chain.number_after(intent.end_lsn)
    commit_time = commit_time_at_end(chain, intent, previous)
    own_rows = max((result.own_rows for result in written.values()), default=0)
    cut = end_cycle(lease, cycle, WrittenTables(tables, held, versions, commit_time, next_segment, own_rows))
    return CycleResult(cut, written, tuple(changes), not_recorded)


def tables_for_spark(
    chain: Chain, lease: Lease, intent: Intent, previous: Cut | None, settings: CycleSettings
) -> dict[TableName, str]:
    """Return the tables that Spark has to write in a cycle, each with the reason, as far as manifests say it.

    Nothing is written for that, nor has the intent to be.
    """
    tasks = _tasks(chain, lease, intent, previous, settings)
    tasks = [t for t in tasks if t.table in intent.tables and not isinstance(t.work, SchemaChange)]
    reasons = {task.table: why_spark(task) for task in tasks}
    return {table: reason for table, reason in reasons.items() if reason is not None}


def _tasks(
    chain: Chain, lease: Lease, intent: Intent, previous: Cut | None, settings: CycleSettings
) -> list[TableTask]:
    tables = {} if previous is None else previous.tables
    held = {} if previous is None else previous.held
    files: dict[TableName, list[Slice]] = {t: [] for t in intent.tables}
    for piece in slices(chain, intent.start_lsn, intent.end_lsn):
        if piece.file.table in files:
            files[piece.file.table].append(piece)
    copies = _Copies(lease.lake)
    works = {t: copies.entering(t, table_intent, held.get(t)) for t, table_intent in intent.tables.items()}
    if intent.kind is CycleKind.APPLY:
        # The intent does not name the tables without changes; foreign commits to them are looked for all the same.
        works |= dict.fromkeys(sorted(tables.keys() - intent.tables.keys() - intent.held.keys()), Changes())
    return [
        TableTask(lease, intent, table, tables.get(table), chain, settings, work, files.get(table, ()))
        for table, work in works.items()
    ]


class _Copies:
    """The copies that an intent names, each document read once."""

    def __init__(self, lake: SourceLake) -> None:
        self._snapshot = cache(partial(read_snapshot, lake))
        self._keyed = cache(partial(read_copy, lake))

    def entering(
        self, table: TableName, intent: TableIntent, held: Held | None
    ) -> Changes | SnapshotEntry | KeyedEntry | SchemaChange:
        """Return a table's work with its rows; `held`: how the cut before holds it."""
        lost = held is not None and held.history_lost
        unreadable = frozenset[Layer](["history"] if lost else [])
        keeps = held is not None and not lost and held.way_out is not WayOut.RESTORE_LOG_OR_SNAPSHOT
        match intent.work:
            case Copy(folder) as copy:
                part = self._snapshot(folder)
                return SnapshotEntry(copy, part.consistent_point, part.tables[table], unreadable, keeps)
            case Created(version) as created:
                return SnapshotEntry(created, intent.from_lsn, SnapshotTable.of(version), unreadable, keeps)
            case Keys(folder):
                keyed = self._keyed(folder)
                return KeyedEntry(folder, keyed.consistent_point, keyed.tables[table])
            case Changes() | SchemaChange() as work:
                return work
        raise InvariantError(str(table), "maintenance is no work of this cycle", "report this")


def _write_tables(
    spark: SparkOnDemand, lease: Lease, intent: Intent, settings: CycleSettings, tasks: Sequence[TableTask]
) -> tuple[dict[TableName, TableResult], dict[TableName, TableHeldError]]:
    """Run step 2; the first error that concerns all tables is raised when all running tables have ended.

    Tables whose attempt ended with its process are written after all others, one at a time: if the process ends again, the
    table at fault is known.
    """
    earlier = earlier_attempts(lease, intent)
    outcome = _Outcome()

    def write(task: TableTask, attempts: Sequence[Attempt]) -> TableResult:
        changes = 0
        try:
            written = _write_table(spark, task, attempts)
            changes = written.counts.changes
            return written
        finally:
            if task.table in intent.tables:
                settings.on_table(task.table, changes)

    with ThreadPoolExecutor(max_workers=settings.threads, thread_name_prefix="lp-table") as pool:
        futures = {w.table: pool.submit(write, w, ()) for w in tasks if w.table not in earlier}
        try:
            for table, future in futures.items():
                outcome.take(table, future.result)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for task in tasks:
        if task.table in earlier:
            outcome.take(task.table, partial(write, task, earlier[task.table]))
    return outcome.written, outcome.refused


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The tables that were written, and those that are to be held."""

    written: dict[TableName, TableResult] = field(default_factory=dict)
    refused: dict[TableName, TableHeldError] = field(default_factory=dict)

    def take(self, table: TableName, write: Callable[[], TableResult]) -> None:
        try:
            self.written[table] = write()
        except TableHeldError as error:
            self.refused[table] = error


def _write_table(spark: SparkOnDemand, task: TableTask, earlier: Sequence[Attempt]) -> TableResult:
    """Write one table, as often as it may be tried; raises TableHeldError if it is to be held.

    After a failed attempt to enter a snapshot, the next attempt reads none of the table's rows.
    """
    if _is_carried(task):
        # Nothing is to be written: as long as nothing is wrong, no attempt is counted, which would cost a document.
        try:
            return _write_table_once(spark, task)
        except Exception as error:
            if isinstance(error, TableHeldError) or concerns_all(error):
                raise

    def once(*, from_scratch: bool) -> TableResult:
        entry = task.entry
        if entry is None or not from_scratch:
            return _write_table_once(spark, task)
        return _write_table_once(spark, replace(task, work=entry.without("current")))

    return tried(spark, task, earlier, once)


def _write_table_once(spark: SparkOnDemand, task: TableTask) -> TableResult:
    """Write one table on nothing but what the previous cut names; a foreign commit is taken back if a snapshot enters."""
    # The size of its rows is a setting of a session, so a table needs its own.
    session, carried = spark.own(), task.before
    task = on_sound_logs(session, task)
    with hold_for_foreign_commits(task.table):
        take_back = task.entry is not None or task.table in task.intent.held
        before = without_foreign_commits(task, task.before, take_back=take_back)
        task = replace(task, before=before)
        if not _is_carried(task):
            check_portable_names(task)
        written = _write_verified(session, task)
    # Its log may go on above the version in the cut: then the next cut names that one.
    return replace(written, carried=False) if written.carried and before != carried else written


def _is_carried(task: TableTask) -> bool:
    """True if there is nothing to do but to look for foreign commits."""
    return isinstance(task.work, Changes) and not task.files and task.table not in task.intent.held


def _write_verified(spark: SparkOnDemand, task: TableTask) -> TableResult:
    """Write one table from files that are verified before they are read: a flipped bit may well be a readable, other value.

    A copy's files are verified by whoever reads them, since most are linked, which verifies them too.

    Raises TableError, before any commit, if its data can't be applied. `spark` is a session of the table's own, which starts
    if Spark has to write it.
    """
    own = _with_room(spark, task)
    if isinstance(task.work, SchemaChange):
        return _reshape(own, task, task.work)
    task = replace(task, files=verified(task.files))
    compared = {piece.file.path for piece in task.files}
    # A copy's point may be earlier than the cycle's start.
    for piece in task.pieces:
        if piece.file.path not in compared:
            verify_file(task.chain, piece.file)
    try:
        return write_here(own, task)
    except Unsupported as error:
        reason = str(error)
    try:
        session = own.get()
    except NoSparkError as error:
        raise error.about({task.table: reason}) from None
    # Imported here because it imports Spark.
    from lakeproof.lake.cycle.table_by_spark import written_by_spark

    return written_by_spark(session, task, reason)


def _with_room(spark: SparkOnDemand, task: TableTask) -> SparkOnDemand:
    """Return the session fitted to the table's rows when it starts; then TableHeldError is raised if they are too large."""

    def start() -> SparkSession:
        session = spark.get()
        refuse_too_large(session, task.table, task.row_bytes)
        fit_table(session, task.row_bytes, task.version)
        return session

    return SparkOnDemand(start)


def _reshape(spark: SparkOnDemand, task: TableTask, change: SchemaChange) -> TableResult:
    """Give a table another schema."""
    try:
        changed = commit_schema_change(spark, task, change)
    except NoSparkError as error:
        raise error.about({task.table: _READ_ANEW}) from None
    engine, reason = ("arrow", "another schema, by metadata alone") if spark.started is None else ("spark", _READ_ANEW)
    return changed.by(engine, reason)


def _tables_at_end(
    intent: Intent,
    previous: Cut | None,
    written: Mapping[TableName, TableResult],
    refused: Mapping[TableName, TableHeldError],
) -> tuple[dict[TableName, CutTable], dict[TableName, Held]]:
    """Return what the cut says of each table, and the tables that it holds."""
    tables = {} if previous is None else _carried(previous, intent, refused)
    tables |= {table: result.cut_table for table, result in written.items()}
    held = dict(intent.held)
    for table, error in refused.items():
        cut_table = tables.get(table)
        before = None if previous is None else previous.held.get(table)
        held[table] = error.held(intent.end_lsn if cut_table is None else cut_table.at_lsn).after(before)
        point = _snapshot_point(intent.tables.get(table))
        if cut_table is not None and point is not None:
            # The snapshot was tried: it is not tried again, a newer one is.
            tables[table] = replace(cut_table, snapshot_lsn=point, snapshot_incarnation=intent.incarnation)
    return tables, held


def _snapshot_point(table: TableIntent | None) -> Lsn | None:
    """Return the consistent point of the snapshot that the cycle applies, or changes a schema for; None without one."""
    match None if table is None else table.work:
        case Copy() | Created():
            return None if table is None else table.from_lsn
        case SchemaChange(called_for=point):
            return point
    return None


def _carried(previous: Cut, intent: Intent, refused: Collection[TableName]) -> dict[TableName, CutTable]:
    """Return the previous cut's tables: those that the cycle neither writes nor holds stand at its end, without changes."""
    still = intent.tables.keys() | intent.held.keys() | set(refused)
    end, incarnation = intent.end_lsn, intent.incarnation
    return {
        t: cut_table if t in still else replace(cut_table, at_lsn=end, incarnation=incarnation)
        for t, cut_table in previous.tables.items()
    }
