"""One table in a cycle as values: the task, the snapshot that is applied, the cycle's context, and the result.

Writing the table belongs to `table` and `schema_change_commits`, the cycle's steps to `steps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.lake.delta.committer import CommitInfo, Engine, commit_of_cycle
from lakeproof.lake.delta.protocol import TableSpec
from lakeproof.lake.records.documents import CutTable, Intent, WrittenBy
from lakeproof.lake.records.lease import Lease
from lakeproof.lake.records.work import Changes, SchemaChange
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.keyed_copy import KeyedTable
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The values that all tables of a cycle share; `portable` are the tables that are configured so.

    From `spark_rows` changes of a table on Spark is the quicker one.
    """

    chain: Chain
    intent: Intent
    lease: Lease
    engine: Engine = Engine.AUTO
    portable: frozenset[TableName] = frozenset()
    spark_rows: int = 1 << 62

    def commit_info(self, layer: str, table: TableName) -> CommitInfo:
        """Return the identity of a table's commit in this cycle; `layer` is `history` or `current`."""
        return commit_of_cycle(self.lease.lake.source, self.intent, layer, table)

    def table_spec(self, table: TableName, statistics: tuple[str, ...]) -> TableSpec:
        """Return the properties of one of a table's two Delta tables, if it is created, as the table is configured."""
        return TableSpec(statistics=statistics, portable=table in self.portable)


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A table's snapshot that this cycle applies; `key` is the snapshot's folder in the store.

    `key` is None for a table that was created in the stream, or was seen to be empty: it has no rows at `consistent_point`,
    and no folder. `was_held`: it ends a hold, so changes before it may never have landed. `from_scratch`: no existing row is
    read. `history_lost`: history begins anew, too.
    """

    key: str | None
    consistent_point: Lsn
    table: SnapshotTable
    was_held: bool = False
    from_scratch: bool = False
    history_lost: bool = False


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
class TableResult:
    """A table after its cycle; `counts` are of the changes that history got from the stream.

    `own_rows`: how many ordinals it took from `own_ordinal` on.
    `features` are those that readers need from now on, each with its reason.
    """

    cut_table: CutTable
    counts: ChangeCounts
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    touched: bool = True
    own_rows: int = 0
    features: Mapping[str, str] = field(default_factory=dict)

    def by(self, engine: str, reason: str) -> TableResult:
        """Return the result with who has written the table, and why, if it was written."""
        if not self.touched:
            return self
        return replace(self, cut_table=replace(self.cut_table, written_by=WrittenBy(engine, reason)))
