"""From where on a table of the lake can't be trusted, by what the chain records of the source's catalog.

What a difference calls for is `lakeproof.catalog.differences.DECISIONS`; what a cycle does about it, `plan.py`.

A record says that a table differs since some place in (`since`, `noticed`]. So

    a snapshot at C ≥ noticed    has what differs: the doubt is settled
    a snapshot at C ≤ since      has not: what comes after `since` is in doubt
    in between                   the snapshot's own fingerprint tells: it is the record's `after`, or nothing is known

Only what is in doubt is held. A table that was dropped or renamed is what its rows say until then, and none comes under its
name afterwards: it is held at `noticed`. A column's other type shows in each row: rows of the old one are from before.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from lakeproof.catalog.differences import DECISIONS, Difference, TableChange, Verdict
from lakeproof.config.table_names import write_table
from lakeproof.errors import manual
from lakeproof.lake.planning.range_counts import newest_row
from lakeproof.lake.planning.schema_change import evolve, obstacle, taken_in
from lakeproof.lake.records.documents import RESNAPSHOT, CutTable, Held
from lakeproof.landing.catalog_history import catalog_links
from lakeproof.landing.chain import Chain
from lakeproof.landing.reader import file_url
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import SchemaVersion

# The fingerprint of a table in the snapshot at a consistent point; None where it is not known.
Fingerprints: TypeAlias = Callable[[TableName, Lsn], "str | None"]

_REASONS = {
    Difference.COLUMN_TYPE: "a column has another type",
    Difference.REWRITTEN: "its rows were rewritten by an ALTER TABLE",
    Difference.PARTITION_ATTACHED: "a partition was attached with the rows it had",
    Difference.PARTITION_DETACHED: "a partition was detached or dropped with its rows",
    Difference.PARTITION_FILE: "a partition was truncated, or rewritten by VACUUM FULL or CLUSTER, which looks the same",
    Difference.PARTITION_IDENTITY: "a partition's replica identity is not of the table's columns",
    Difference.LABEL_CHANGED: "an enum's label was renamed",
    Difference.COMPOSITE: "a composite type was altered",
    Difference.FILTER: "the publication's row filter for it is another one",
    Difference.COLUMN_LIST: "the publication's column list for it is another one",
    Difference.COLUMN_SENT: "a column of it is sent that was there before and was not",
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
# The table ends; until then its rows are what they were.
_ENDS = frozenset({Difference.DROPPED, Difference.RENAMED})
# Each row that is sent says whether it is from before or after.
_SHOWS = frozenset({Difference.COLUMN_TYPE})
# What spoils the changes that follow, so that a snapshot which has it too does not help.
_NOT_IN_A_COPY = frozenset({Difference.UNREAD, Difference.PARTITION_IDENTITY})
_WAY_OUT = manual("What changes of the source's tables do to the lake", "The way out")
_GONE = (
    "what the lake has of it is kept; where it is to be followed again, publish it under this name and"
    f" {RESNAPSHOT} ({_WAY_OUT})"
)


@dataclass(frozen=True, slots=True)
class Doubt:
    """What the lake has of `table` from some place after `since` on can't be trusted; `change` says why."""

    table: TableName
    since: Lsn
    noticed: Lsn
    change: TableChange

    @property
    def holds_from(self) -> Lsn:
        """From where on the table is held, at the latest."""
        return self.noticed if self._calls_for() <= _ENDS else self.since

    @property
    def shows(self) -> bool:
        """Whether each row that is sent says whether it is from before the change."""
        return self._calls_for() <= _SHOWS

    def _calls_for(self) -> set[Difference]:
        """The differences for which the table is in doubt."""
        return {d for d in self.change.differences if DECISIONS[d] in (Verdict.SNAPSHOT, Verdict.GONE)}

    def settled_by(self, point: Lsn, fingerprint: str | None) -> bool:
        """Whether a snapshot at `point`, in which the catalog had this fingerprint of the table, has what differs."""
        if point >= self.noticed or _NOT_IN_A_COPY & set(self.change.differences):
            return point >= self.noticed
        return point > self.since and fingerprint is not None and fingerprint == self.change.after

    def held(self, at: Lsn) -> Held:
        """How the table is held that stands at `at`."""
        told = [_REASONS[d] for d in self.change.differences if d in _REASONS]
        renamed = "" if self.change.renamed_to is None else f" to {self.change.renamed_to}"
        doubtful = at > self.holds_from and not self.shows
        past = f"; it stands at {at}, and what it has from {self.since} on can't be trusted" if doubtful else ""
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


def was_dropped(held: Held) -> bool:
    """Whether the table is held since its source dropped it."""
    told, _, _ = held.reason.partition(" (noticed at ")
    return _REASONS[Difference.DROPPED] in told.split("; ")


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


def trusted_until(
    chain: Chain, found: Iterable[Doubt], at: CutTable, fingerprint: str | None
) -> tuple[Lsn, Doubt] | None:
    """Up to where the lake's table, which stands `at`, may be written, and for which of `found`; None: as far as one likes.

    `fingerprint` is that of its snapshot. What came under its name as another table is told by its rows.
    """
    about = [d for d in _about(found, at.version) if not d.settled_by(at.snapshot_lsn, fingerprint)]
    own = [d for d in about if d.change.oid == at.version.oid]
    ends = [(_until(chain, doubt, at), doubt) for doubt in own or about]
    return min(ends, key=lambda end: end[0], default=None)


def _until(chain: Chain, doubt: Doubt, at: CutTable) -> Lsn:
    """The same for one of them; reads the links between the two positions of a doubt that shows in the rows."""
    until = doubt.holds_from
    if not doubt.shows or chain.end <= until:
        return until
    shapes = {at.version.id: at.version}
    for manifest in chain.between(until, min(chain.end, doubt.noticed)):
        shapes |= {entry.version.id: taken_in(entry.version) for entry in manifest.schemas}
        for file in manifest.files:
            version = shapes.get(file.schema_id)
            fits = version is not None and obstacle(evolve(at.version, version)) is None
            if file.table == doubt.table and file.oid == doubt.change.oid and fits:
                until = max(until, newest_row(file_url(chain, file), doubt.noticed))
    return until


def first_unsettled(
    found: Iterable[Doubt], version: SchemaVersion, point: Lsn, fingerprint: str | None
) -> Doubt | None:
    """Of `found` about the table the one that holds first and that its snapshot at `point` does not settle."""
    about = (d for d in _about(found, version) if not d.settled_by(point, fingerprint))
    return min(about, key=lambda doubt: doubt.holds_from, default=None)


def _about(found: Iterable[Doubt], version: SchemaVersion) -> list[Doubt]:
    """Return those about the table of this shape: that another one, which had its name before, is gone is none of it."""
    return [d for d in found if d.table == version.table and not (d.is_gone and d.change.oid != version.oid)]
