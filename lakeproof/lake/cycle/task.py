"""What a cycle knows when it writes one table: the cycle itself, what enters, the files of the range, and what came of it.

Writing the table belongs to `table_cycle` and `reshape`, the cycle's steps to `cycle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeproof.errors import InvariantError
from lakeproof.lake.delta.commit import CommitInfo, Make, commit_of_cycle
from lakeproof.lake.planning.range_counts import Counts
from lakeproof.lake.records.documents import CutTable, Intent, Reshape
from lakeproof.lake.records.lease import Lease
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import Slice
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class CycleContext:
    """What all tables of a cycle share."""

    chain: Chain
    intent: Intent
    lease: Lease
    make: Make = "auto"

    def commit_info(self, layer: str, table: TableName) -> CommitInfo:
        """The identity of a table's commit in this cycle; `layer` is `history` or `current`."""
        return commit_of_cycle(self.lease.paths.source, self.intent, layer, table)


@dataclass(frozen=True, slots=True)
class Entering:
    """A table's snapshot that enters with this cycle; `key` is the snapshot's folder in the store.

    None of a table that was born in the stream: it has no rows up to `consistent_point`, and its snapshot lies nowhere.
    """

    key: str | None
    consistent_point: Lsn
    table: SnapshotTable


@dataclass(frozen=True, slots=True)
class Work:
    """A table to be written: where it stands (None: not in the lake), what enters, its files of the cycle's range.

    `reshape`: the shape that it is given, and nothing else. `anew`: no row of what is there is read; `history_lost`: history
    begins anew, too; `row_bytes`: what a row takes at most.
    """

    table: TableName
    before: CutTable | None
    entering: Entering | None
    files: Sequence[Slice]
    reshape: Reshape | None = None
    anew: bool = False
    history_lost: bool = False
    row_bytes: int = 0

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
