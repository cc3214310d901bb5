"""From which position on the lake's table is suspect, by what the chain records of the source's catalog.

`lakeproof.catalog.differences.Difference` says what a difference calls for; what a cycle does about it is in `plan`.

A record says that a table differs since some position in (`lower_lsn`, `upper_lsn`]. So

    a snapshot at C ≥ upper_lsn    has what differs: it covers the change
    a snapshot at C ≤ lower_lsn    has not: what comes after `lower_lsn` is suspect
    in between                     the snapshot's own fingerprint decides: it is the record's `after`, or nothing is known

Only a suspect table is held. A table that was dropped or renamed is what its rows say until then, and no row comes under its
name afterwards: it is held at `upper_lsn`. A column's other type shows in each row: rows of the old type are from before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lakeproof.catalog.differences import Consequence, Difference, TableDifferences
from lakeproof.lake.planning.schema_change import compare_schemas, taken_in, why_not_in_place
from lakeproof.lake.records.documents import CutTable
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.landing.catalog_history import catalog_manifests
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import newest_row
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion

# The fingerprint of a table in the snapshot at a consistent point; None if it is not known.
Fingerprints: TypeAlias = Callable[[TableName, Lsn], "str | None"]

# The table ends; until then its rows are what they were.
_ENDS = frozenset({Difference.DROPPED, Difference.RENAMED})
# Each row of the stream says whether it is from before or after.
_SHOWS = frozenset({Difference.COLUMN_TYPE})
_COMES_IN = frozenset({Difference.ENTERED, Difference.PUBLISHED_AGAIN})
# These spoil the changes that follow, so a snapshot which has the difference too does not help.
_NOT_IN_A_COPY = frozenset({Difference.UNREAD, Difference.PARTITION_IDENTITY, Difference.PARTITION_PASSED})


@dataclass(frozen=True, slots=True)
class SuspectedChange:
    """A change after which the lake's `table` may be wrong, from some position after `lower_lsn` on; `change` says why."""

    table: TableName
    lower_lsn: Lsn
    upper_lsn: Lsn
    change: TableDifferences

    @property
    def holds_from(self) -> Lsn:
        """Return the position from which on the table is held, at the latest."""
        return self.upper_lsn if self._called_for() <= _ENDS else self.lower_lsn

    @property
    def shows_in_rows(self) -> bool:
        """True if each row of the stream says whether it is from before the change."""
        return self._called_for() <= _SHOWS

    def _called_for(self) -> set[Difference]:
        """Return the differences that make the table suspect."""
        return {d for d in self.change.differences if d.consequence in (Consequence.SNAPSHOT, Consequence.GONE)}

    def is_covered_by(self, point: Lsn, fingerprint: str | None) -> bool:
        """True if a snapshot at `point`, in which the catalog had this fingerprint of the table, has what differs."""
        if point >= self.upper_lsn or _NOT_IN_A_COPY & set(self.change.differences):
            return point >= self.upper_lsn
        return point > self.lower_lsn and fingerprint is not None and fingerprint == self.change.after

    def held(self, at_lsn: Lsn) -> Held:
        """Return how the table is held that stands at `at_lsn`."""
        detail = {"lower_lsn": str(self.lower_lsn), "upper_lsn": str(self.upper_lsn)}
        if self.change.renamed_to is not None:
            detail["renamed_to"] = self.change.renamed_to.key
        if at_lsn > self.holds_from and not self.shows_in_rows:
            detail["suspect_from"] = str(self.lower_lsn)
        return Held(at_lsn, HeldCause.CATALOG, self._way_out(), detail, tuple(self.change.differences))

    @property
    def comes_in(self) -> bool:
        """True if the table came into the publication, or back into it."""
        return not _COMES_IN.isdisjoint(self.change.differences)

    @property
    def is_gone(self) -> bool:
        """True if the table is not published under its name any more."""
        return any(d.consequence is Consequence.GONE for d in self.change.differences)

    def _way_out(self) -> WayOut:
        if Difference.BECAME_PARTITION in self.change.differences and self.change.renamed_to is not None:
            return WayOut.SNAPSHOT_OF_ROOT
        if self.is_gone:
            return WayOut.PUBLISH_THEN_SNAPSHOT
        misfits = Difference.PARTITION_IDENTITY in self.change.differences
        return WayOut.SAME_IDENTITY_THEN_SNAPSHOT if misfits else WayOut.SNAPSHOT


def has_ended(held: Held) -> bool:
    """True if the table is held since its source dropped it, gave it another name, or has its rows under a root's."""
    return not (_ENDS | {Difference.BECAME_PARTITION}).isdisjoint(held.differences)


def has_left(held: Held) -> bool:
    """True if the table is held since it is not published any more."""
    return held.cause is HeldCause.CATALOG and Difference.LEFT in held.differences


def has_entered(held: Held) -> bool:
    """True if the table is held since it came into the publication, or back into it."""
    return held.cause is HeldCause.CATALOG and not _COMES_IN.isdisjoint(held.differences)


def suspected_changes(chain: Chain, position: Lsn) -> list[SuspectedChange]:
    """Return what was noticed at or after `position` and makes a table suspect, in the chain's order.

    Reads the chain's manifests with records of the catalog from there on.
    """
    changes = []
    for manifest in catalog_manifests(chain, position):
        record = manifest.catalog
        if record is not None and record.lower_lsn is not None:
            changes += [
                # What was not read is missing from the beginning on, whenever the catalog was read.
                SuspectedChange(
                    change.table,
                    chain.head.end_lsn if Difference.UNREAD in change.differences else record.lower_lsn,
                    record.upper_lsn,
                    change,
                )
                for change in record.changes
                if change.consequence in (Consequence.SNAPSHOT, Consequence.GONE)
            ]
    return changes


def usable_until(
    chain: Chain, changes: Iterable[SuspectedChange], cut_table: CutTable, fingerprint: str | None
) -> tuple[Lsn, SuspectedChange] | None:
    """Return the position up to which the lake's table may be written, and for which of `changes`; None: without limit.

    `fingerprint` is that of the table's snapshot. The rows say by themselves what came under its name as another table.
    """
    about = [c for c in _about(changes, cut_table.version) if not c.is_covered_by(cut_table.snapshot_lsn, fingerprint)]
    own = [c for c in about if c.change.oid == cut_table.version.oid]
    ends = [(_until(chain, change, cut_table), change) for change in own or about]
    return min(ends, key=lambda end: end[0], default=None)


def _until(chain: Chain, suspected: SuspectedChange, cut_table: CutTable) -> Lsn:
    """Return the same for one change; if it shows in the rows, read the manifests between its two positions."""
    until = suspected.holds_from
    if not suspected.shows_in_rows or chain.end <= until:
        return until
    versions = {cut_table.version.id: cut_table.version}
    for manifest in chain.between(until, min(chain.end, suspected.upper_lsn)):
        versions |= {entry.version.id: taken_in(entry.version) for entry in manifest.schemas}
        for file in manifest.files:
            version = versions.get(file.schema_id)
            fits = version is not None and why_not_in_place(compare_schemas(cut_table.version, version)) is None
            if file.table == suspected.table and file.oid == suspected.change.oid and fits:
                until = max(until, newest_row(chain, file, suspected.upper_lsn))
    return until


def first_not_covered(
    changes: Iterable[SuspectedChange], version: SchemaVersion, point: Lsn, fingerprint: str | None
) -> SuspectedChange | None:
    """Return, of `changes` of the table, the one that holds first and that its snapshot at `point` does not cover."""
    about = (c for c in _about(changes, version) if not c.is_covered_by(point, fingerprint))
    return min(about, key=lambda change: change.holds_from, default=None)


def _about(changes: Iterable[SuspectedChange], version: SchemaVersion) -> list[SuspectedChange]:
    """Return the changes of the table with this schema; that an earlier table of its name is gone is no change of it."""
    return [c for c in changes if c.table == version.table and not (c.is_gone and c.change.oid != version.oid)]
