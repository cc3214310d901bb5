"""The sums of flushes, per table and in total: plain numbers for reports.

The command line and Dagster decide how they are shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeproof.change_counts import COUNT_NAMES, ChangeCounts
from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion


@dataclass(frozen=True, slots=True)
class LandedCounts(ChangeCounts):
    """Changes of one table, and the bytes of their files."""

    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Flush:
    """One manifest that became durable and was acknowledged: the range (`start_lsn`, `end_lsn`].

    A progress range has no transactions and an empty `tables`. Commit times are microseconds since 1970 UTC; `seconds` is
    the time that writing the last of it and syncing took. `schemas` are the versions that came into force.
    """

    number: int
    start_lsn: Lsn
    end_lsn: Lsn
    transactions: int
    rows: int
    tables: Mapping[TableName, LandedCounts]
    first_commit_us: int | None
    last_commit_us: int | None
    schemas: tuple[SchemaVersion, ...]
    seconds: float

    @classmethod
    def of(cls, manifest: Manifest, seconds: float) -> Flush:
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


def counts_of(manifest: Manifest) -> dict[TableName, LandedCounts]:
    """Return a manifest's changes per table, in the order of the names."""
    tables: dict[TableName, LandedCounts] = {}
    for f in manifest.files:
        counts = LandedCounts(**{name: getattr(f.counts, name) for name in COUNT_NAMES}, bytes=f.bytes)
        tables[f.table] = tables.get(f.table, LandedCounts()) + counts
    return dict(sorted(tables.items()))


@dataclass(slots=True)
class Totals:
    """A running sum over manifests."""

    transactions: int = 0
    rows: int = 0
    segments: int = 0
    tables: dict[TableName, LandedCounts] = field(default_factory=dict)

    def add(self, manifest: Manifest) -> None:
        self.transactions += manifest.transactions
        self.rows += manifest.rows
        self.segments += bool(manifest.files)
        for table, counts in counts_of(manifest).items():
            self.tables[table] = self.tables.get(table, LandedCounts()) + counts


@dataclass(frozen=True, slots=True)
class DrainReport:
    """The range (`start_lsn`, `end_lsn`] that a drain added to the landing.

    `confirmed_flush_lsn` is the newest position that was acknowledged, None if another drain did the work.
    `reason_for_end` is `reached`, `stopped`, `elapsed`, or `followed` (another drain holds the slot, and the landing has
    reached the target).
    """

    source: str
    start_lsn: Lsn
    end_lsn: Lsn
    confirmed_flush_lsn: Lsn | None
    transactions: int
    rows: int
    segments: int
    tables: Mapping[TableName, LandedCounts]
    reason_for_end: str
