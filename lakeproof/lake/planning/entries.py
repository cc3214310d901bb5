"""Tables that enter the lake: the finished snapshots that have not yet, those that need none, and how many in one cycle.

Copying a table is in `lakeproof.snapshot`, the choice of the copies that may enter in `plan`, entering a table in
`lakeproof.lake.cycle`.

Without a snapshot a table enters that was created in the stream, or is empty, by the chain's records;
`lakeproof.drain.catalog.created_tables` and `empty_tables` decide which these are. A cycle writes each as a table whose
snapshot has no row: at a position before its first row, or at the one where it was seen to have none.

The record knows the table at one reading, the stream brings rows from before it. Both must speak of the same table:

    its name       it was never renamed or moved, by the catalog; otherwise no row may have come under another name up to the
                   reading, so the landing has to reach the reading first
    its columns    the rows' columns are those of the reading: as they were made, by the catalog, or the first ones of it if
                   none was ever dropped
    its schemas    all rows up to where it enters can be read in one schema, by `why_not_in_place`; rows that came before
                   the table had a key are inserts, and mean the same under it. What comes after that is a schema change
                   like any other

If one of these fails the table waits for its snapshot, like a table that came into the publication.

The tables that enter in one cycle are bounded, so that a killed process loses the work of few of them. They enter in the
order of their places. A cycle that leaves some out ends at the place of the last one that it takes, so the range goes on
behind the copies, and no copy has to catch up with more than it would have to at once. A copy that was left out enters later
from the same place. A table that was created in the stream is never left out of a range that has its place: behind it nobody
would look for it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from lakeproof.catalog.differences import Consequence, TableCreated, TableDifferences
from lakeproof.field_types import CycleField
from lakeproof.lake.planning.schema_change import compare_schemas, why_not_in_place
from lakeproof.lake.planning.schema_changes import UnprovenError, defaults_for_old_rows
from lakeproof.lake.records.documents import Cut
from lakeproof.landing.catalog_history import catalog_manifests, gone_since
from lakeproof.landing.chain import Chain
from lakeproof.landing.incarnation_record import incarnations
from lakeproof.landing.segments.manifest import Manifest, SchemaEntry
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, Oid, TableName
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.snapshot.copy.keyed_copy import copies_to_remove
from lakeproof.snapshot.folder import (
    FinishedCopy,
    find_snapshot,
    finished_tables,
    may_be_applied,
    read_end,
    settled_folders,
    snapshot_folders,
)
from lakeproof.snapshot.state import SnapshotTable
from lakeproof.storage.document import Document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class _Settled(Document):
    """The mark of a snapshot that is settled; nobody reads it."""

    FORMAT = "lakeproof.snapshotsettled/1"

    cut: CycleField
    settled_at: str


def pending_snapshots(lake: SourceLake, incarnation: Incarnation, cut: Cut | None) -> dict[TableName, FinishedCopy]:
    """Return each table's newest complete copy that may enter and has not yet."""
    if not may_be_applied(lake, incarnation):
        return {}
    newest = finished_tables(lake, incarnation, waiting=True)
    return {t: p for t, p in newest.items() if waits(cut, t, (incarnation, p.consistent_point))}


def mark_settled(chain: Chain, cut: Cut) -> None:
    """Mark the ended snapshots of which each table is in the lake, by this or a later copy, or gone; reads the unmarked."""
    lake, settled = chain.lake, settled_folders(chain.lake, cut.incarnation)
    for folder in snapshot_folders(lake, cut.incarnation):
        end = None if folder in settled else read_end(lake, folder)
        if end is None:
            continue
        copied, point = find_snapshot(lake, folder), (cut.incarnation, end.consistent_point)
        not_copied = {*end.failed, *end.left}
        not_copied -= gone_since(chain, not_copied - cut.tables.keys(), end.consistent_point)
        tables = not_copied if copied is None else not_copied | copied.tables.keys()
        if not_copied <= cut.tables.keys() and not any(waits(cut, t, point) for t in tables):
            mark = f"{lake.paths.settled_snapshots(cut.incarnation)}/{folder.rpartition('/')[2]}.json"
            with suppress(AlreadyExistsError):
                lake.store.put_if_absent(mark, _Settled(cut.number, now_text()).to_bytes())


def entered_chunks(lake: SourceLake, cut: Cut | None) -> list[str]:
    """Return the chunk files that nobody reads again: of tables whose copy, or a later one, is in the lake.

    Copies of single keys that a killed repair left are among them: call it under the lease, with no cycle to be finished.
    Costs a listing of each snapshot, and reads the documents of those alone that have chunks.
    """
    if cut is None:
        return []
    keys = copies_to_remove(lake)
    for incarnation in incarnations(lake):
        for folder in snapshot_folders(lake, incarnation) if incarnation <= cut.incarnation else ():
            chunks = {key for key in lake.store.list(folder) if key.endswith(".parquet")}
            snapshot = find_snapshot(lake, folder) if chunks else None
            if snapshot is None:
                continue
            for table, copied in snapshot.tables.items():
                if incarnation < cut.incarnation or not waits(cut, table, (incarnation, snapshot.consistent_point)):
                    keys += [key for c in copied.chunks if (key := f"{folder}/{c.path}") in chunks]
    return keys


def waits(cut: Cut | None, table: TableName, point: tuple[Incarnation, Lsn]) -> bool:
    """True if a table's snapshot at `point`, or its creation there, has neither entered the lake nor been tried."""
    if cut is None:
        return True
    cut_table = cut.tables.get(table)
    if cut_table is not None:
        return point > (cut_table.snapshot_incarnation, cut_table.snapshot_lsn)
    # A snapshot that could not enter is not tried again; a newer one is.
    held = cut.held.get(table)
    return held is None or point > (cut.incarnation, held.at_lsn)


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
        return FinishedCopy("", self.lower_lsn, SnapshotTable.of(self.version))


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


_NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class EntryLimit:
    """The most tables that enter in one cycle, and the most bytes of their copies; one table enters in any case."""

    tables: int = _NO_LIMIT
    copy_bytes: int = _NO_LIMIT


@dataclass(frozen=True, slots=True)
class Entrant:
    """A table that may enter with a cycle: by a `copy`, which has no row if the table was `created` in the stream."""

    copy: FinishedCopy
    created: CreatedTable | None = None

    @property
    def place(self) -> Lsn:
        """Where it enters. Before that, another table may have had the name of one that was created."""
        return self.copy.consistent_point if self.created is None else self.created.enters_at


def entering_until(
    entrants: Mapping[TableName, Entrant], limit: EntryLimit, span: tuple[Lsn, Lsn]
) -> tuple[Lsn, dict[TableName, Entrant]]:
    """Return where the cycle of `span` ends, and those of `entrants` that enter in it."""
    start, stop = span
    waiting = sorted((t for t, e in entrants.items() if e.place <= stop), key=lambda t: (entrants[t].place, t))
    taken: list[TableName] = []
    copy_bytes = 0
    for table in waiting:
        copy_bytes += entrants[table].copy.table.bytes
        if taken and (len(taken) >= limit.tables or copy_bytes > limit.copy_bytes):
            stop = max(start, entrants[taken[-1]].place)
            break
        taken.append(table)
    own = [t for t in waiting if (e := entrants[t]).created is not None and e.place <= stop and t not in taken]
    return stop, {t: entrants[t] for t in [*taken, *own]}
