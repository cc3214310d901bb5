"""Tables that enter the lake without a snapshot: by the chain's records they were created in the stream, or are empty.

`lakeproof.drain.catalog.created_tables` and `empty_tables` choose the tables. A cycle writes each as a table whose snapshot
has no row: at a position before its first row, or at the one where it was seen to have none.

The record knows the table at one reading, the stream brings rows from before it. Both must speak of the same table:

    its name       it was never renamed or moved, by the catalog; otherwise no row may have come under another name up to the
                   reading, so the landing has to reach the reading first
    its columns    the rows' columns are those of the reading: as they were made, by the catalog, or the first ones of it if
                   none was ever dropped
    its schemas    all rows up to where it enters can be read in one schema, by `why_not_in_place`; rows that came before
                   the table had a key are inserts, and mean the same under it. What comes after that is a schema change
                   like any other

If one of these fails the table waits for its snapshot, like a table that came into the publication.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from lakeproof.catalog.differences import Consequence, TableCreated, TableDifferences
from lakeproof.lake.planning.pending import waits
from lakeproof.lake.planning.schema_change import compare_schemas, why_not_in_place
from lakeproof.lake.planning.schema_changes import UnprovenError, defaults_for_old_rows
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.catalog_history import catalog_manifests
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest, SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy
from lakeproof.snapshot.state import SnapshotTable


@dataclass(frozen=True, slots=True)
class CreatedTable:
    """A table that may enter with a cycle that ends at or after `enters_at`; all its rows come after `lower_lsn`.

    `whole`: it never had other rows before.
    """

    lower_lsn: Lsn
    enters_at: Lsn
    version: SchemaVersion
    whole: bool = True

    @property
    def oid(self) -> Oid:
        return self.version.oid

    @property
    def pending(self) -> FinishedCopy:
        """Return the same as a snapshot without a row, which is in no folder."""
        return FinishedCopy("", self.lower_lsn, SnapshotTable(self.version, 0, ()))


@dataclass(frozen=True, slots=True)
class _RecordedCreation:
    """A table's creation, as a record of the catalog has it; the reading has every commit up to `read_until`."""

    table: TableName
    oid: Oid
    created: TableCreated
    lower_lsn: Lsn
    upper_lsn: Lsn
    read_until: Lsn


def created_tables_to_enter(chain: Chain, cut: Cut | None, start: Lsn) -> dict[TableName, CreatedTable]:
    """Return the tables created in the stream, or empty since, that are not in the lake at `start` and may still enter it.

    An empty one may be in the lake as it was before. Reads the records after `start`, and for each table the manifests after
    its record's `lower_lsn`. A cycle that passes a record's `upper_lsn` takes the table in, so no earlier record is read.
    """
    chain.reread_start()
    result = {}
    for table, recorded in _recorded_creations(catalog_manifests(chain, start)).items():
        if recorded.lower_lsn < chain.kept_from or not waits(cut, table, (chain.incarnation, recorded.lower_lsn)):
            continue
        created = recorded if isinstance(recorded, CreatedTable) else _created_table(chain, recorded, start)
        if created is not None:
            result[table] = created
    return result


def _recorded_creations(manifests: Iterable[Manifest]) -> dict[TableName, _RecordedCreation | CreatedTable]:
    """Return the newest creation of each name, unless a later change of that table needs a snapshot."""
    newest: dict[TableName, _RecordedCreation | CreatedTable] = {}
    for manifest in manifests:
        record = manifest.catalog
        for change in () if record is None else record.changes:
            if change.created is not None and record is not None and record.lower_lsn is not None:
                positions = record.lower_lsn, record.upper_lsn, manifest.catalog_lsn or Lsn.ZERO
                newest[change.table] = _RecordedCreation(change.table, change.oid, change.created, *positions)
            elif change.empty is not None and record is not None:
                # It may have been renamed.
                version, position = change.empty, record.upper_lsn
                newest = {table: other for table, other in newest.items() if other.oid != change.oid}
                newest[version.table] = CreatedTable(position, position, version, whole=False)
            elif _needs_copy(change):
                newest = {table: created for table, created in newest.items() if created.oid != change.oid}
    return newest


def _needs_copy(change: TableDifferences) -> bool:
    return change.consequence in (Consequence.SNAPSHOT, Consequence.GONE)


def _created_table(chain: Chain, recorded: _RecordedCreation, start: Lsn) -> CreatedTable | None:
    """Return from when on the table may enter, and with which schema; None if it needs a snapshot."""
    entries = list(_entries(chain, recorded))
    enters_at = min([recorded.upper_lsn, *(e.from_lsn for e in entries if recorded.created.untouched)])
    if enters_at > chain.end:
        # The landing has not come so far: what it brings decides.
        return CreatedTable(recorded.lower_lsn, enters_at, recorded.created.version)
    before = [e for e in entries if e.from_lsn <= max(start, enters_at)]
    if not before:
        return CreatedTable(recorded.lower_lsn, enters_at, recorded.created.version)
    versions = list({e.version.id: e.version for e in before}.values())
    version = before[-1].version
    if enters_at == recorded.upper_lsn >= start and before[-1].from_lsn <= recorded.read_until:
        # The reading is newer than all of these rows.
        version = recorded.created.version
    named = {v.table for v in versions} == {recorded.table}
    fits = named and all(_is_numbered(v, recorded.created) and _reads_as(chain, recorded, v, version) for v in versions)
    return CreatedTable(recorded.lower_lsn, enters_at, version) if fits else None


def _entries(chain: Chain, recorded: _RecordedCreation) -> Iterator[SchemaEntry]:
    """Yield the schemas of the table itself, whatever it was called, in the stream's order."""
    for manifest in chain.between(recorded.lower_lsn, chain.end):
        own = (e for e in manifest.schemas if e.version.oid == recorded.oid and e.from_lsn > recorded.lower_lsn)
        yield from sorted(own, key=lambda e: (e.from_lsn, e.from_seq))


def _is_numbered(version: SchemaVersion, created: TableCreated) -> bool:
    """True if the columns that rows came with are those of the reading, each with its number."""
    sent = [(c.name, c.type_oid, c.attnum) for c in version.columns]
    as_created = {(c.name, c.type_oid, c.attnum) for c in created.version.columns if c.attnum in created.anchored}
    if as_created.issuperset(sent):
        return True
    numbers = [c.attnum for c in version.columns]
    return created.numbered and numbers == list(range(1, len(numbers) + 1))


def _reads_as(chain: Chain, recorded: _RecordedCreation, old: SchemaVersion, new: SchemaVersion) -> bool:
    """True if rows that came with `old` are known as rows of `new`."""
    if old.id == new.id:
        return True
    if old.is_bag and old.identity is not Identity.FULL:
        # Such a table has no updates and deletes: whatever identifies rows later on, they mean the same.
        old = replace(old, identity=new.identity, key=new.key)
    difference = compare_schemas(old, new)
    if why_not_in_place(difference) is not None or not difference.same_rows_meant:
        return False
    try:
        return defaults_for_old_rows(chain, recorded.lower_lsn, difference, recorded.upper_lsn) is not None
    except UnprovenError:
        return False
