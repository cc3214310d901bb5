"""From where on a table of the lake can't be trusted, by what the chain records of the source's catalog.

What a difference calls for is `wal2delta.differences.DECISIONS`; what a cycle does about it, `plan.py`.

A record says that a table differs since some place in (`since`, `noticed`]. So

    a snapshot at C ≥ noticed    has what differs: the doubt is settled
    a snapshot at C ≤ since      has not: what comes after `since` is in doubt
    in between                   the snapshot's own fingerprint tells: it is the record's `after`, or nothing is known
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from wal2delta.config.table_names import write_table
from wal2delta.differences import DECISIONS, Difference, TableChange, Verdict
from wal2delta.lake.documents import RESNAPSHOT, Held
from wal2delta.landing.catalog_links import catalog_links
from wal2delta.landing.chain import Chain
from wal2delta.lsn import Lsn
from wal2delta.names import TableName

# The fingerprint of a table in the snapshot at a consistent point; None where it is not known.
Fingerprints: TypeAlias = Callable[[TableName, Lsn], "str | None"]

_REASONS = {
    Difference.COLUMN_TYPE: "a column has another type",
    Difference.REWRITTEN: "its rows were rewritten by an ALTER TABLE",
    Difference.PARTITION_ATTACHED: "a partition was attached with the rows it had",
    Difference.PARTITION_DETACHED: "a partition was detached or dropped with its rows",
    Difference.PARTITION_FILE: "a partition was truncated, or rewritten by VACUUM FULL or CLUSTER, which looks the same",
    Difference.PARTITION_IDENTITY: "a partition has another replica identity than the table",
    Difference.LABEL_CHANGED: "an enum's label was renamed",
    Difference.COMPOSITE: "a composite type was altered",
    Difference.FILTER: "the publication's row filter for it is another one",
    Difference.COLUMN_LIST: "the publication's column list for it is another one",
    Difference.OPERATIONS: "the publication sends other operations",
    Difference.PUBLISHED_AGAIN: "it was taken out of the publication and put back",
    Difference.PUBLICATION_ALTERED: "the publication was altered and is as before again",
    Difference.ENTERED: "it came into the publication",
    Difference.UNREAD: "its publication was not read until then",
    Difference.LEFT: "it is not published any more",
    Difference.DROPPED: "it was dropped",
    Difference.BECAME_PARTITION: "it was attached as a partition",
    Difference.RENAMED: "it was renamed",
}
_GONE = (
    "what the lake has of it is kept; where it is to be followed again, publish it under this name and"
    f" {RESNAPSHOT} (docs/schema-changes.md)"
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the lake has of `table` from some place after `since` on can't be trusted; `change` says why."""

    table: TableName
    since: Lsn
    noticed: Lsn
    change: TableChange

    def settled_by(self, point: Lsn, fingerprint: str | None) -> bool:
        """Whether a snapshot at `point`, in which the catalog had this fingerprint of the table, has what differs."""
        if point >= self.noticed or Difference.UNREAD in self.change.differences:
            return point >= self.noticed
        return point > self.since and fingerprint is not None and fingerprint == self.change.after

    def held(self, at: Lsn) -> Held:
        """How the table is held that stands at `at`."""
        told = [_REASONS[d] for d in self.change.differences if d in _REASONS]
        renamed = "" if self.change.renamed_to is None else f" to {self.change.renamed_to}"
        past = "" if at <= self.since else f"; it stands at {at}, and what it has from {self.since} on can't be trusted"
        reason = f"{'; '.join(told)}{renamed} (noticed at {self.noticed}, since {self.since} at the earliest){past}"
        return Held(at, reason, self._remedy())

    @property
    def is_gone(self) -> bool:
        """Whether the table is not published under its name any more."""
        return any(DECISIONS[d] is Verdict.GONE for d in self.change.differences)

    def _remedy(self) -> str:
        if Difference.BECAME_PARTITION in self.change.differences and self.change.renamed_to is not None:
            root = RESNAPSHOT.replace("TABLE", shlex.quote(write_table(self.change.renamed_to)))
            return f"what the lake has of it is kept, and its rows come under {self.change.renamed_to}: {root}"
        return _GONE if self.is_gone else RESNAPSHOT


def doubts(chain: Chain, position: Lsn) -> list[Doubt]:
    """What was noticed at or after `position` and puts a table in doubt, in the chain's order; reads those links."""
    found = []
    for manifest in catalog_links(chain, position):
        record = manifest.catalog
        if record is not None and record.since_lsn is not None:
            found += [
                # What was not read is missing from the beginning on, whenever the catalog was looked at.
                Doubt(
                    change.table,
                    chain.head.end_lsn if Difference.UNREAD in change.differences else record.since_lsn,
                    record.noticed_lsn,
                    change,
                )
                for change in record.changes
                if change.verdict in (Verdict.SNAPSHOT, Verdict.GONE)
            ]
    return found


def first_unsettled(found: Iterable[Doubt], table: TableName, point: Lsn, fingerprint: str | None) -> Doubt | None:
    """The first of `found` about `table` that its snapshot at `point` does not settle."""
    return next((d for d in found if d.table == table and not d.settled_by(point, fingerprint)), None)
