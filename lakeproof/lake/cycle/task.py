"""One table in a cycle as values: the task, the snapshot that is applied, the cycle's context, and the result.

Writing the table belongs to `table` and `schema_change_commits`, the cycle's steps to `steps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeproof.change_counts import ChangeCounts
from lakeproof.errors import InvariantError
from lakeproof.lake.delta.commit import CommitInfo, WriteStrategy, commit_of_cycle
from lakeproof.lake.records.documents import CutTable, Intent, SchemaChange
from lakeproof.lake.records.lease import Lease
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class CycleContext:
    """The values that all tables of a cycle share."""

    chain: Chain
    intent: Intent
    lease: Lease
    strategy: WriteStrategy = WriteStrategy.AUTO

    def commit_info(self, layer: str, table: TableName) -> CommitInfo:
        """Return the identity of a table's commit in this cycle; `layer` is `history` or `current`."""
        return commit_of_cycle(self.lease.lake.source, self.intent, layer, table)


@dataclass(frozen=True, slots=True)
class SnapshotEntry:
    """A table's snapshot that this cycle applies; `key` is the snapshot's folder in the store.

    `key` is None for a table that was created in the stream: it has no rows up to `consistent_point`, and no folder.
    """

    key: str | None
    consistent_point: Lsn
    table: SnapshotTable


@dataclass(frozen=True, slots=True)
class TableTask:
    """A table to be written: its state in the cut before (None: not in the lake), its snapshot, its files of the range.

    `schema_change`: the schema that the table gets; then it gets nothing else. `from_scratch`: no existing row is read.
    `history_lost`: history begins anew, too. `row_bytes`: the most that a row takes.
    """

    table: TableName
    before: CutTable | None
    entry: SnapshotEntry | None
    files: Sequence[Slice]
    schema_change: SchemaChange | None = None
    from_scratch: bool = False
    history_lost: bool = False
    row_bytes: int = 0

    @property
    def version(self) -> SchemaVersion:
        """The schema version that the cycle writes."""
        if self.entry is not None:
            return self.entry.table.version
        if self.before is None:
            raise InvariantError(str(self.table), "neither in the lake nor entering it", "report this")
        return self.before.version


@dataclass(frozen=True, slots=True)
class TableResult:
    """A table after its cycle; `counts` are of the changes that history got from the stream.

    `fallback_reason` has the meaning that it has in `Applied`.
    """

    cut_table: CutTable
    counts: ChangeCounts
    inserted: int = 0
    deleted: int = 0
    rows: int | None = None
    touched: bool = True
    fallback_reason: str | None = None
