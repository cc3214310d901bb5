"""One table in a cycle as values: the task, its commits, and the result.

The ways to write a table are in `table`, `table_again`, `table_by_spark` and `schemas.commits`, the cycle's steps in
`steps`. Whoever writes a table, this process or Spark, makes files and finds places; `TableCommits` makes the versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.failpoints import failpoint
from lakeproof.lake.columns import column_names, has_old_rows, in_lake, layer_statistics, needs_mapping
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec
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
from lakeproof.lake.rows.file_rows import LandedRange, TableRange
from lakeproof.landing.catalog_history import sends_everything
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import Slice, count_changes, slices
from lakeproof.lsn import Lsn
from lakeproof.names import Layer, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import KeyedTable
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.source_lake import SourceLake

if TYPE_CHECKING:
    from lakeproof.lake.delta.link_commit import RowCommit


@dataclass(frozen=True, slots=True)
class CycleSettings:
    """The settings of a cycle with changes: tables at a time, who writes them, and who hears of each table.

    This process writes whatever it can and Spark the rest, or `spark_alone` all.
    `on_table` is called for each table of the intent that is over, with its changes, from any thread. `portable` are the
    tables whose readers have to know no feature; from `spark_rows` changes of a table on Spark is the quicker one.
    """

    threads: int
    spark_alone: bool
    portable: frozenset[TableName]
    spark_rows: int
    on_table: Callable[[TableName, int], None] = lambda _table, _changes: None


@dataclass(frozen=True, slots=True)
class CycleTable:
    """One table in a cycle of any kind, and the places and identities of its commits."""

    lease: Lease
    intent: Intent
    table: TableName

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return self.lease.lake

    def path(self, layer: Layer) -> str:
        """Return the place of one of the table's two Delta tables."""
        return self.lake.url(self.lake.paths.layer(self.table, layer))

    def commit_info(self, layer: str) -> CommitInfo:
        """Return the identity of its commit in this cycle."""
        intent = self.intent
        app = f"lakeproof/{self.lake.source}/{intent.incarnation}/{layer}/{self.table.key}"
        metadata = {"cycle": intent.number, "incarnation": intent.incarnation, "position": str(intent.end_lsn)}
        return CommitInfo(app, intent.number, json.dumps(metadata, sort_keys=True))


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A table's snapshot that this cycle applies, as the intent names it.

    A table that was created in the stream, or was seen to be empty, has no rows at `consistent_point`. What is `unreadable`
    of the table that the lake has is not read: current is made anew, and without its history that begins anew, too.
    `keeps_history`: the table was held for something else, so whoever copied it has not agreed to lose history's past.
    """

    source: Copy | Created
    consistent_point: Lsn
    table: SnapshotTable
    unreadable: frozenset[Layer]
    keeps_history: bool

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
class TableTask(CycleTable):
    """A table to be written: its state in the cut before (None: not in the lake), the work, its files of the range."""

    before: CutTable | None
    chain: Chain
    settings: CycleSettings
    work: Changes | SnapshotEntry | KeyedEntry | SchemaChange
    files: Sequence[Slice]

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

    @property
    def schema(self) -> SchemaVersion:
        """That schema version under the lake's column names."""
        return in_lake(self.version)

    @property
    def portable(self) -> bool:
        """True if the table's readers have to know no feature."""
        return self.table in self.settings.portable

    @property
    def sends_everything(self) -> bool:
        """True unless the publication leaves out an operation: then the source's rows change unseen."""
        return sends_everything(self.chain, self.version.oid)

    def version_before(self, layer: Layer) -> int:
        """Return the version of it that the cut before names; NO_VERSION if the table is not in the lake."""
        return NO_VERSION if self.before is None else self.before.version_of(layer)

    def spec(self, layer: Layer) -> TableSpec:
        """Return its properties, if it is created, as the table is configured."""
        return TableSpec(statistics=layer_statistics(self.schema, layer), portable=self.portable)

    def range_of(self, files: Sequence[Slice], start: Lsn) -> TableRange:
        """Return the table's changes from `start` to the cycle's end."""
        first_ordinals = {s.number: s.first_ordinal for s in self.intent.segments}
        landed = LandedRange(self.schema, files, first_ordinals, start, self.intent.end_lsn)
        return TableRange(self.chain, self.version, self.before, landed)

    def own_range(self) -> TableRange:
        """Return the table's changes in the cycle's range."""
        return self.range_of(self.files, self.intent.start_lsn)

    def checked(self, changes: TableRange) -> TableRange:
        """Return the changes; raise TableHeldError if an update or a delete says by no key which row it means.

        VACUUM and ANALYZE take back in place, for the past too, that a table has an index. What was changed by a primary key
        that is dropped then is sent as that of a table without one, if it has not been sent before.
        """
        for version, pieces in {self.version: changes.landed.slices, **changes.older}.items():
            if not version.is_bag or has_old_rows(version):
                continue
            counts = count_changes(pieces, changes.landed.start, changes.landed.end)
            if counts.updates or counts.deletes:
                problem = {
                    "problem": "an update or a delete came without the key of its row: the key was dropped later"
                }
                raise TableHeldError(str(self.table), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, problem)
        return changes

    def changes_to_apply(self) -> TableRange:
        """Return `own_range`; raise TableHeldError as `checked`, and if an update lacks the old row of identity FULL.

        A partition had another identity than its root for a while, by which its old rows were left out.
        """
        changes = self.checked(self.own_range())
        if has_old_rows(self.version) and not changes.older and changes.counts.updates > changes.counts.befores:
            problem = {"problem": "an update came without the old row that identity FULL brings"}
            raise TableHeldError(str(self.table), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, problem)
        return changes

    @property
    def pieces(self) -> Sequence[Slice]:
        """The files that are read: those of the range, or those after the snapshot that enters.

        Of a table created in the stream only files of its OID: an earlier table may have had the same name.
        """
        entry = self.entry
        if entry is None:
            return self.files
        files = slices(self.chain, entry.consistent_point, self.intent.end_lsn, self.table)
        return [f for f in files if isinstance(entry.source, Copy) or f.file.oid == entry.table.version.oid]

    def since_snapshot(self, entry: SnapshotEntry) -> TableRange:
        """Return the changes after the snapshot."""
        return self.range_of(self.pieces, entry.consistent_point)

    @property
    def row_bytes(self) -> int:
        """The most memory that a row may take, among all rows that are read and written for the table."""
        match self.work:
            case SnapshotEntry(table=entering) | KeyedEntry(table=KeyedTable(rows=entering)):
                coming = entering.row_bytes
            case _:
                coming = 0
        existing = 0 if self.before is None else self.before.row_bytes
        return max(existing, coming, *(piece.file.decoded.row for piece in self.pieces))


@dataclass(frozen=True, slots=True)
class TableCommits:
    """Both commits of a table, prepared: files, and places of rows that go; `total` is history's sum after them."""

    history: RowCommit
    total: HistorySum
    current: RowCommit

    def made(self, task: TableTask, counts: ChangeCounts) -> TableResult:
        """Make both commits, history first; `counts` are of the changes that history gets from the stream."""
        task.lease.check()
        version = self.history.commit().version
        failpoint("cycle.after_history")
        task.lease.check()
        applied = self.current.commit()
        failpoint("cycle.after_current")
        cut_table = _at_end(task, (version, self.total), applied.version)
        return TableResult(cut_table, counts, applied.inserted, applied.deleted)


@dataclass(frozen=True, slots=True)
class TableResult:
    """A table after its two commits, or without any: then it was `carried` along, and nothing was to be written.

    `counts` are of the changes that history got from the stream, `inserted` and `deleted` are rows of current; `rows` is how
    many it has, if all of them are new. `features` are those that readers need from now on, each with its reason.
    `own_rows` is how many ordinals it took from `own_ordinal` on.
    """

    cut_table: CutTable
    counts: ChangeCounts = field(default_factory=ChangeCounts)
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    features: Mapping[str, str] = field(default_factory=dict)
    own_rows: int = 0
    carried: bool = False

    def entered(self) -> TableResult:
        """Return the same of a table that has no other rows than those of these commits."""
        return replace(self, deleted=0, rows=self.inserted)

    def by(self, engine: str, reason: str) -> TableResult:
        """Return the same with who has written it, and why, unless it was carried along."""
        if self.carried:
            return self
        return replace(self, cut_table=replace(self.cut_table, written_by=WrittenBy(engine, reason)))


def _at_end(task: TableTask, history: tuple[int, HistorySum], current: int) -> CutTable:
    """Return the table's entry in the cut; `history` and `current` are its versions by then."""
    before, intent = task.before, task.intent
    if task.entry is not None:
        point, snapshotted = task.entry.consistent_point, intent.incarnation
    elif before is not None:
        point, snapshotted = before.snapshot_lsn, before.snapshot_incarnation
    else:
        raise InvariantError(str(task.table), "neither in the lake nor entering it", "report this")
    low, last = (None, NOBODY) if before is None else (before.history_low, before.written_by)
    version, rows = history
    return CutTable(
        at_lsn=intent.end_lsn,
        snapshot_lsn=point,
        history_version=version,
        current_version=current,
        version=task.version,
        incarnation=intent.incarnation,
        snapshot_incarnation=snapshotted,
        history_low=low,
        row_bytes=task.row_bytes,
        history_sum=rows,
        exact_from=_exact_from(task),
        written_by=last,
    )


def _exact_from(task: TableTask) -> Lsn | None:
    """Return the position after which history has every change, if the cycle writes all that its range has."""
    before, entry, intent = task.before, task.entry, task.intent
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


def exact_from_end(task: TableTask, result: TableResult) -> TableResult:
    """Return the result of a table whose history has not every change as it was committed before the cycle's end."""
    return replace(result, cut_table=replace(result.cut_table, exact_from=task.intent.end_lsn))


def carried(task: TableTask, before: CutTable) -> TableResult:
    """Return the result of a table without changes: at the cycle's end it is what it was `before`."""
    at_end = _at_end(task, (before.history_version, before.history_sum), before.current_version)
    return TableResult(at_end, carried=True)


def check_portable_names(task: TableTask) -> None:
    """Raise TableHeldError if a portable table is to have names that need column mapping."""
    if not task.portable:
        return
    version = task.work.version if isinstance(task.work, SchemaChange) else task.version
    refused = [name for name in column_names(in_lake(version)) if needs_mapping([name])]
    if refused:
        names = {"names": ", ".join(f"`{name}`" for name in refused)}
        cause, way_out = HeldCause.NAMES_NOT_PORTABLE, WayOut.OTHER_NAMES_THEN_SNAPSHOT
        raise TableHeldError(str(version.table), cause, way_out, names)
