"""What flushes add up to, per table and altogether: plain numbers for reports.

How they are shown belongs to the command line and to Dagster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.landing.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class Counts:
    """Changes of one table, and the bytes of their files."""

    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    truncates: int = 0
    bytes: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.inserts + other.inserts,
            self.updates + other.updates,
            self.deletes + other.deletes,
            self.truncates + other.truncates,
            self.bytes + other.bytes,
        )

    @property
    def changes(self) -> int:
        """All of them."""
        return self.inserts + self.updates + self.deletes + self.truncates


@dataclass(frozen=True, slots=True)
class Flush:
    """One manifest that became durable and was acknowledged: the range (`start_lsn`, `end_lsn`].

    A progress range has no transactions and an empty `tables`. Commit times are microseconds since 1970 UTC; `seconds` is
    how long writing the last of it and syncing took. `schemas` are the versions that came into force.
    """

    number: int
    start_lsn: Lsn
    end_lsn: Lsn
    transactions: int
    rows: int
    tables: Mapping[TableName, Counts]
    first_commit_us: int | None
    last_commit_us: int | None
    schemas: tuple[SchemaVersion, ...]
    seconds: float

    @classmethod
    def of(cls, manifest: Manifest, seconds: float) -> Flush:
        """What a manifest says."""
        return cls(
            number=manifest.number,
            start_lsn=manifest.start_lsn,
            end_lsn=manifest.end_lsn,
            transactions=manifest.transactions,
            rows=manifest.rows,
            tables=counts_of(manifest),
            first_commit_us=manifest.first_commit_us,
            last_commit_us=manifest.last_commit_us,
            schemas=tuple(s.version for s in manifest.schemas),
            seconds=seconds,
        )


def counts_of(manifest: Manifest) -> dict[TableName, Counts]:
    """A manifest's changes per table, in the order of the names."""
    tables: dict[TableName, Counts] = {}
    for f in manifest.files:
        counts = Counts(f.inserts, f.updates, f.deletes, f.truncates, f.bytes)
        tables[f.table] = tables.get(f.table, Counts()) + counts
    return dict(sorted(tables.items()))


@dataclass(slots=True)
class Totals:
    """A running sum over manifests."""

    transactions: int = 0
    rows: int = 0
    segments: int = 0
    tables: dict[TableName, Counts] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        """Take one in."""
        self.transactions += manifest.transactions
        self.rows += manifest.rows
        self.segments += bool(manifest.files)
        for table, counts in counts_of(manifest).items():
            self.tables[table] = self.tables.get(table, Counts()) + counts


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What a drain added to the landing: the range (`start_lsn`, `end_lsn`].

    `confirmed_flush_lsn` is the newest position told to the slot, None where another drain did the work. `reason_for_end` is
    `reached`, `stopped`, `elapsed`, or `followed` (another drain holds the slot, and the landing has what was asked for).
    """

    source: str
    start_lsn: Lsn
    end_lsn: Lsn
    confirmed_flush_lsn: Lsn | None
    transactions: int
    rows: int
    segments: int
    tables: Mapping[TableName, Counts]
    reason_for_end: str
