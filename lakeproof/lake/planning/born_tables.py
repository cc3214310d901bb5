"""Tables that enter the lake without a snapshot: the chain's records of the catalog say that they were born in the stream.

`lakeproof.drain.born_tables` decides whether a table was born. A cycle writes it as a table whose snapshot, at the position
before its first row, has no row.

The record knows the table at one reading, the stream brings rows from before it. Both must speak of the same table:

    its name       it was never renamed or moved, by the catalog; otherwise no row may have come under another name up to the
                   reading, so the landing has to reach the reading first
    its columns    the first rows' columns are those of the reading: as they were made, by the catalog, or all of them if
                   none was ever dropped
    its schema     one, up to where it enters; what comes after that is a schema change like any other

If one of these fails the table waits for its snapshot, like a table that came into the publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lakeproof.catalog.differences import Born, TableChange, Verdict
from lakeproof.lake.planning.pending import waits
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.catalog_history import catalog_manifests
from lakeproof.landing.catalog_record import CatalogRecord
from lakeproof.landing.chain import Chain
from lakeproof.landing.manifest import SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class Birth:
    """A table that may enter with a cycle that ends at or after `enters_at`; all its rows come after `since`."""

    since: Lsn
    enters_at: Lsn
    version: SchemaVersion

    @property
    def pending(self) -> FinishedCopy:
        """Return the same as a snapshot without a row, which is in no folder."""
        return FinishedCopy("", self.since, SnapshotTable(self.version, 0, ()))


@dataclass(frozen=True, slots=True)
class _RecordedBirth:
    """A table's birth, as a record of the catalog has it."""

    table: TableName
    oid: Oid
    born: Born
    since: Lsn
    noticed: Lsn


def births(chain: Chain, cut: Cut | None, start: Lsn) -> dict[TableName, Birth]:
    """Return the born tables that are not in the lake at `start` and may still enter it.

    Reads the records noticed from there on, and for each table the manifests since its record's `since`. A cycle that passes
    a record's `noticed` takes the table in, so no earlier record is read.
    """
    chain.reread_start()
    records = [m.catalog for m in catalog_manifests(chain, start) if m.catalog is not None]
    result = {}
    for recorded in _recorded_births(records):
        if recorded.since < chain.kept_from or not waits(cut, recorded.table, (chain.incarnation, recorded.since)):
            continue
        birth = _birth(chain, recorded, start)
        if birth is not None:
            result[recorded.table] = birth
    return result


def _recorded_births(records: Iterable[CatalogRecord]) -> Iterator[_RecordedBirth]:
    """Yield the newest birth of each name, unless a later change of that table needs a snapshot."""
    newest: dict[TableName, _RecordedBirth] = {}
    for record in records:
        for change in record.changes:
            if change.born is not None and record.lower_lsn is not None:
                newest[change.table] = _RecordedBirth(
                    change.table, change.oid, change.born, record.lower_lsn, record.upper_lsn
                )
            elif _needs_copy(change):
                newest = {table: birth for table, birth in newest.items() if birth.oid != change.oid}
    yield from newest.values()


def _needs_copy(change: TableChange) -> bool:
    return change.verdict in (Verdict.SNAPSHOT, Verdict.GONE)


def _birth(chain: Chain, recorded: _RecordedBirth, start: Lsn) -> Birth | None:
    """Return from when on the table may enter, and with which schema; None if it needs a snapshot."""
    entries = list(_entries(chain, recorded))
    enters_at = min([recorded.noticed, *(e.from_lsn for e in entries if recorded.born.untouched)])
    if enters_at > chain.end:
        # The landing has not come so far: what it brings decides.
        return Birth(recorded.since, enters_at, recorded.born.version)
    versions = {e.version.id: e.version for e in entries if e.from_lsn <= max(start, enters_at)}
    if not versions:
        return Birth(recorded.since, enters_at, recorded.born.version)
    version = next(iter(versions.values()))
    same = len(versions) == 1 and version.table == recorded.table and _is_same(version, recorded.born)
    return Birth(recorded.since, enters_at, version) if same else None


def _entries(chain: Chain, recorded: _RecordedBirth) -> Iterator[SchemaEntry]:
    """Yield the schemas of the table itself, whatever it was called, in the stream's order."""
    for manifest in chain.between(recorded.since, chain.end):
        own = (e for e in manifest.schemas if e.version.oid == recorded.oid and e.from_lsn > recorded.since)
        yield from sorted(own, key=lambda e: (e.from_lsn, e.from_seq))


def _is_same(version: SchemaVersion, born: Born) -> bool:
    """True if the columns that rows came with are those of the reading, each with its number."""
    sent = [(c.name, c.type_oid, c.attnum) for c in version.columns]
    as_created = {(c.name, c.type_oid, c.attnum) for c in born.version.columns if c.attnum in born.anchored}
    if as_created.issuperset(sent):
        return True
    numbers = [c.attnum for c in version.columns]
    return born.numbered and numbers == [c.attnum for c in born.version.columns] == list(range(1, len(numbers) + 1))
