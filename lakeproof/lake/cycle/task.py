"""One table in a cycle as values: the task, the cycle's context, the outcomes; and what every way of writing a table takes.

The ways to write a table are in `table`, `entries.linked`, `table_by_spark` and `schemas.commits`, the cycle's steps in
`steps`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import column_names, in_lake, needs_mapping
from lakeproof.lake.delta.committer import Applied, CommitInfo, Engine, commit_of_cycle
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.fold.table_range import RangeSpan, TableRange
from lakeproof.lake.records.documents import (
    NOBODY,
    Changes,
    Copy,
    Created,
    CutTable,
    HistorySum,
    Intent,
    SchemaChange,
    WrittenBy,
)
from lakeproof.lake.records.held import HeldCause, TableHeldError, WayOut
from lakeproof.lake.records.lease import Lease
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice, slices
from lakeproof.lsn import Lsn
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import KeyedTable
from lakeproof.snapshot.state import SnapshotTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakeproof.lake.delta.apply import Prepared
    from lakeproof.lake.delta.link_commit import RowCommit
    from lakeproof.lake.fold.net_change import ResolvedChanges

R = TypeVar("R", bound="Written | Entered | Reshaped")


@dataclass(frozen=True, slots=True)
class CycleSettings:
    """The settings of a cycle with changes: tables at a time, who writes them, and who hears of each table.

    `on_table` is called for each table of the intent that is over, with its changes, from any thread. `portable` are the
    tables whose readers have to know no feature; from `spark_rows` changes of a table on Spark is the quicker one.
    """

    threads: int
    engine: Engine
    portable: frozenset[TableName]
    spark_rows: int
    on_table: Callable[[TableName, int], None] = lambda _table, _changes: None


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The values that all tables of a cycle share."""

    chain: Chain
    intent: Intent
    lease: Lease
    settings: CycleSettings

    def commit_info(self, layer: str, table: TableName) -> CommitInfo:
        """Return the identity of a table's commit in this cycle; `layer` is `history` or `current`."""
        return commit_of_cycle(self.lease.lake.source, self.intent, layer, table)

    def table_spec(self, table: TableName, statistics: tuple[str, ...]) -> TableSpec:
        """Return the properties of one of a table's two Delta tables, if it is created, as the table is configured."""
        return TableSpec(statistics=statistics, portable=table in self.settings.portable)


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A table's snapshot that this cycle applies, as the intent names it.

    A table that was created in the stream, or was seen to be empty, has no rows at `consistent_point`. What is `unreadable`
    of the table that the lake has is not read: current is made anew, and without its history that begins anew, too.
    """

    source: Copy | Created
    consistent_point: Lsn
    table: SnapshotTable
    unreadable: frozenset[Layer]

    def without(self, layer: Layer) -> SnapshotEntry:
        """Return the same entry, for which this of the table is not read either."""
        return replace(self, unreadable=self.unreadable | {layer})


@dataclass(frozen=True, slots=True)
class KeyedEntry:
    """The copy of some keys' rows that this cycle applies, at the cycle's end; `key` is its folder in the store."""

    key: str
    consistent_point: Lsn
    table: KeyedTable


@dataclass(frozen=True, slots=True)
class TableTask:
    """A table to be written: its state in the cut before (None: not in the lake), the work, its files of the range.

    `row_bytes`: the most that a row takes.
    """

    table: TableName
    before: CutTable | None
    work: Changes | SnapshotEntry | KeyedEntry | SchemaChange
    files: Sequence[Slice]
    row_bytes: int = 0

    @property
    def entry(self) -> SnapshotEntry | None:
        """The snapshot, if one enters."""
        return self.work if isinstance(self.work, SnapshotEntry) else None

    @property
    def version(self) -> SchemaVersion:
        """The schema version of the rows that the cycle writes."""
        if isinstance(self.work, SnapshotEntry):
            return self.work.table.version
        if self.before is None:
            raise InvariantError(str(self.table), "neither in the lake nor entering it", "report this")
        return self.before.version


@dataclass(frozen=True, slots=True)
class Carried:
    """A table that got no commit: nothing was to be written."""

    cut_table: CutTable


@dataclass(frozen=True, slots=True)
class Written:
    """A table after its two commits: `counts` are of the changes that history got from the stream.

    `inserted` and `deleted` are rows of current; `own_rows` is how many ordinals it took from `own_ordinal` on.
    """

    cut_table: CutTable
    counts: ChangeCounts
    inserted: int
    deleted: int
    own_rows: int = 0


@dataclass(frozen=True, slots=True)
class Entered:
    """A table all of whose `rows` are new: a first copy, or one that was made anew."""

    cut_table: CutTable
    counts: ChangeCounts
    rows: int
    own_rows: int = 0


@dataclass(frozen=True, slots=True)
class Reshaped:
    """A table with another schema; `features` are those that readers need from now on, each with its reason."""

    cut_table: CutTable
    features: Mapping[str, str]
    own_rows: int


TableResult: TypeAlias = Carried | Written | Entered | Reshaped


def by(result: R, engine: str, reason: str) -> R:
    """Return the result of a table with who has written it, and why."""
    return replace(result, cut_table=replace(result.cut_table, written_by=WrittenBy(engine, reason)))


def range_of(context: CycleContext, task: TableTask, files: Sequence[Slice], start: Lsn) -> TableRange:
    """Return the table's changes from `start` to the cycle's end."""
    first_ordinals = {s.number: s.first_ordinal for s in context.intent.segments}
    span = RangeSpan(start, context.intent.end_lsn, first_ordinals)
    return TableRange(context.chain, task.version, task.before, files, span)


def own_range(context: CycleContext, task: TableTask) -> TableRange:
    """Return the table's changes in the cycle's range."""
    return range_of(context, task, task.files, context.intent.start_lsn)


def files_since(chain: Chain, table: TableName, entry: SnapshotEntry, end: Lsn) -> list[Slice]:
    """Return the table's files after its snapshot, up to `end`; for a table created in the stream only files of its OID.

    An earlier table may have had the same name.
    """
    files = slices(chain, entry.consistent_point, end, table)
    return [f for f in files if isinstance(entry.source, Copy) or f.file.oid == entry.table.version.oid]


def since_snapshot(context: CycleContext, task: TableTask, entry: SnapshotEntry) -> TableRange:
    """Return the changes after a snapshot."""
    files = files_since(context.chain, task.table, entry, context.intent.end_lsn)
    return range_of(context, task, files, entry.consistent_point)


def resolve(session: SparkSession, changes: TableRange, base: DataFrame) -> ResolvedChanges | None:
    """Return the changes added up by Spark on top of `base`; None if there are none."""
    return None if changes.counts.rows == 0 else changes.resolve(session, base)


def rows_before(session: SparkSession, context: CycleContext, task: TableTask, before: CutTable) -> DataFrame:
    """Return the rows of current at the version that the cut before names."""
    from lakeproof.lake.delta.versions import read_layer

    return read_layer(session, context.lease.lake, task.table, before)


def commit_current(context: CycleContext, prepared: Prepared | RowCommit) -> Applied:
    """Make current's commit."""
    context.lease.check()
    applied = prepared.commit()
    failpoint("cycle.after_current")
    return applied


def release(*resolved: ResolvedChanges | None) -> None:
    """Give back what added-up ranges keep."""
    for one in filter(None, resolved):
        one.release()


def table_at_end(context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: int) -> CutTable:
    """Return the table's entry in the cut; `history` and `current` are its versions by then."""
    before = task.before
    incarnation = context.intent.incarnation
    if task.entry is not None:
        point, snapshotted = task.entry.consistent_point, incarnation
    elif before is not None:
        point, snapshotted = before.snapshot_lsn, before.snapshot_incarnation
    else:
        raise InvariantError(str(task.table), "neither in the lake nor entering it", "report this")
    low, last = (None, NOBODY) if before is None else (before.history_low, before.written_by)
    version, rows = history
    fields = (context.intent.end_lsn, point, version, current, task.version, incarnation, snapshotted, low)
    return CutTable(*fields, task.row_bytes, rows, _exact_from(context, task), written_by=last)


def _exact_from(context: CycleContext, task: TableTask) -> Lsn | None:
    """Return the position after which history has every change, if the cycle writes all that its range has."""
    before, entry, intent = task.before, task.entry, context.intent
    if before is None:
        # What landed before a later copy was never read. Before the very first ones, and before a table was created, nothing
        # did.
        if entry is None or entry.source == Created(entry.table.version):
            return None
        is_first = isinstance(entry.source, Copy) and intent.number == 1 and entry.consistent_point <= intent.start_lsn
        return None if is_first else entry.consistent_point
    missed = entry is not None and (entry.source.was_held or before.at_lsn != intent.start_lsn)
    if missed or before.incarnation != intent.incarnation:
        return intent.end_lsn
    return before.exact_from


def written(
    context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: Applied, counts: ChangeCounts
) -> Written:
    """Return the result of a table whose two commits are made."""
    cut_table = table_at_end(context, task, history, current.version)
    return Written(cut_table, counts, current.inserted, current.deleted)


def entered(
    context: CycleContext, task: TableTask, history: tuple[int, HistorySum], current: Applied, counts: ChangeCounts
) -> Entered:
    """Return the same of a table that has no other rows than those of these commits."""
    return Entered(table_at_end(context, task, history, current.version), counts, current.inserted)


def carried(context: CycleContext, task: TableTask, before: CutTable) -> Carried:
    """Return the result of a table without changes: at the cycle's end it is what it was `before`."""
    return Carried(table_at_end(context, task, (before.history_version, before.history_sum), before.current_version))


def check_names(context: CycleContext, task: TableTask) -> None:
    """Raise TableHeldError if a portable table is to have names that need column mapping."""
    if task.table not in context.settings.portable:
        return
    version = task.work.version if isinstance(task.work, SchemaChange) else task.version
    refused = [name for name in column_names(in_lake(version)) if needs_mapping([name])]
    if refused:
        names = {"names": ", ".join(f"`{name}`" for name in refused)}
        cause, way_out = HeldCause.NAMES_NOT_PORTABLE, WayOut.OTHER_NAMES_THEN_SNAPSHOT
        raise TableHeldError(str(version.table), cause, way_out, names)
