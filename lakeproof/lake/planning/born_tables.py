"""Tables that enter the lake without a copy: those born in the stream, as the chain's records of the catalog say.

What makes a table born belongs to `lakeproof.drain.born_tables`; when it enters to `plan.py`; writing it to
`table_cycle.py`, for which it is a table whose snapshot, at the place before its first row, has no row.

The record knows the table at one reading, the stream brings rows from before it. Both must speak of the same table:

    its name       it was never renamed or moved, by the catalog; else no row may have come under another name, up to the
                   reading, so the landing has to be there first
    its columns    the first rows' columns are those of the reading: as they were made, by the catalog, or all of them, where
                   none was ever dropped
    its shape      one, up to where it enters; what comes after that is a change of shape like any other

Where one of these fails the table waits for its copy, as one does that came into the publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakeproof.catalog.differences import Born, TableChange, Verdict
from lakeproof.lake.planning.pending import waits
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.catalog_history import catalog_links
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import Pending
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class Birth:
    """A table that may enter with a cycle that ends at or after `enters_at`; all its rows come after `since`."""

    since: Lsn
    enters_at: Lsn
    version: SchemaVersion

    @property
    def pending(self) -> Pending:
        """The same as a snapshot without a row, which lies nowhere."""
        return Pending("", self.since, SnapshotTable(self.version, 0, ()))


@dataclass(frozen=True, slots=True)
class _Told:
    """What a record says of a table that was born."""

    table: TableName
    oid: Oid
    born: Born
    since: Lsn
    noticed: Lsn


def births(chain: Chain, cut: Cut | None, start: Lsn) -> dict[TableName, Birth]:
    """The born tables that are not in the lake at `start` and may enter it yet.

    Reads the records noticed from there on, and for each table the links since its record's `since`. A cycle that passes
    what was noticed takes the table in, so no earlier record is asked.
    """
    chain.rebase()
    records = [m.catalog for m in catalog_links(chain, start) if m.catalog is not None]
    found = {}
    for told in _told(records):
        if told.since < chain.kept_from or not waits(cut, told.table, (chain.incarnation, told.since)):
            continue
        birth = _birth(chain, told, start)
        if birth is not None:
            found[told.table] = birth
    return found


def _told(records: Iterable[CatalogRecord]) -> Iterator[_Told]:
    """The newest of each name that nothing else is said of which a copy is needed for."""
    newest: dict[TableName, _Told] = {}
    for record in records:
        for change in record.changes:
            if change.born is not None and record.since_lsn is not None:
                told = _Told(change.table, change.oid, change.born, record.since_lsn, record.noticed_lsn)
                newest[change.table] = told
            elif _needs_copy(change):
                newest = {table: told for table, told in newest.items() if told.oid != change.oid}
    yield from newest.values()


def _needs_copy(change: TableChange) -> bool:
    return change.verdict in (Verdict.SNAPSHOT, Verdict.GONE)


def _birth(chain: Chain, told: _Told, start: Lsn) -> Birth | None:
    """When the table may enter, and as what; None where it has to be copied."""
    entries = list(_entries(chain, told))
    enters_at = min([told.noticed, *(e.from_lsn for e in entries if told.born.untouched)])
    if enters_at > chain.end:
        # The landing is not there yet: what it brings decides.
        return Birth(told.since, enters_at, told.born.version)
    shapes = {e.version.id: e.version for e in entries if e.from_lsn <= max(start, enters_at)}
    if not shapes:
        return Birth(told.since, enters_at, told.born.version)
    shape = next(iter(shapes.values()))
    same = len(shapes) == 1 and shape.table == told.table and _is_same(shape, told.born)
    return Birth(told.since, enters_at, shape) if same else None


def _entries(chain: Chain, told: _Told) -> Iterator[SchemaEntry]:
    """The shapes of the table itself, whatever it was called, in the stream's order."""
    for manifest in chain.between(told.since, chain.end):
        of_it = (e for e in manifest.schemas if e.version.oid == told.oid and e.from_lsn > told.since)
        yield from sorted(of_it, key=lambda e: (e.from_lsn, e.from_seq))


def _is_same(shape: SchemaVersion, born: Born) -> bool:
    """Whether the columns that rows came with are those that the reading knows, each with its number."""
    given = [(c.name, c.type_oid, c.attnum) for c in shape.columns]
    as_made = {(c.name, c.type_oid, c.attnum) for c in born.version.columns if c.attnum in born.anchored}
    if as_made.issuperset(given):
        return True
    numbers = [c.attnum for c in shape.columns]
    return born.numbered and numbers == [c.attnum for c in born.version.columns] == list(range(1, len(numbers) + 1))
