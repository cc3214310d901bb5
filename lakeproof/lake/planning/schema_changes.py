"""Decides how a table's schema change is made: in place, or the table is held there, or the catalog has to be read first.

The rest of a cycle's plan is in `plan`, which calls this module. docs/schema-changes.md has the decisions for people.

A change comes into force with a transaction. The cycle before it ends right before that transaction; then a cycle of kind
`schema` with an empty range gives the tables their schema, the last one that they have in that transaction; then the
transaction is applied, its rows of earlier schemas as rows of the last. The chain's records of the catalog say what older
rows read in an added column: a fast default, or NULL if the table's file is the same; otherwise nothing is known.

A record of the catalog has the schema of each table that differs, though no row of it has come. Every commit in it ends at
or before its `upper_lsn`. So at that position the table has the schema, and a cycle ends there to give it to the lake,
unless a row has brought it before. A row that came while the catalog was read may have brought a newer one: then the record
is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakeproof.catalog.differences import AddedColumn, Consequence, Difference, TableDifferences
from lakeproof.errors import InvariantError, LakeError
from lakeproof.lake.planning.schema_change import (
    SchemaDifference,
    by_oid,
    compare_schemas,
    default_fits,
    describe_change,
    renamed_away,
    taken_in,
    why_not_in_place,
)
from lakeproof.lake.records.cuts.documents import read_table_schema
from lakeproof.lake.records.documents import Cut, CutTable, SchemaChange
from lakeproof.lake.records.held import Held, HeldCause, TableHeldError, WayOut
from lakeproof.landing.catalog_history import catalog_manifests, newest_catalog
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.manifest import Manifest, SchemaEntry
from lakeproof.landing.segments.reader import Slice, count_changes, slices
from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, SchemaVersion
from lakeproof.snapshot.folder import FinishedCopy

_NEW_FILES = frozenset({Difference.FILE, Difference.REWRITTEN, Difference.PARTITION_FILE})


@dataclass(frozen=True, slots=True)
class CatalogUnread:
    """A schema change that has to wait until the catalog was read."""


# About a table whose schema changes: it gets the schema, or is held, or waits.
SchemaDecision: TypeAlias = SchemaChange | Held | CatalogUnread


class UnprovenError(Exception):
    """Nobody knows what older rows read in an added column; the message says why."""


def decide_changes(chain: Chain, start: Lsn, tables: Mapping[TableName, CutTable]) -> dict[TableName, SchemaDecision]:
    """Decide on each table of which the transaction right after `start` brings another schema, or rows under another name.

    `tables` are in the lake, at `start`, and not held.
    """
    decisions, after = dict[TableName, SchemaDecision](), Lsn(int(start) + 1)
    away = dict[TableName, SchemaDecision]()
    standing = by_oid((start, c.version) for c in tables.values())
    for manifest in chain.between(start, after):
        away |= {
            v.table: _away(chain, tables[v.table], other)
            for _, v, other in under_other_names(chain, manifest, standing)
        }
        entries: dict[TableName, list[SchemaEntry]] = {}
        for entry in sorted(manifest.schemas, key=lambda e: e.from_seq):
            if entry.from_lsn != after:
                continue
            for _, version in standing.get(entry.version.oid, ()):
                if renamed_away(version, entry.version):
                    away[version.table] = _away(chain, tables[version.table], entry.version)
            if entry.version.table in tables:
                entries.setdefault(entry.version.table, []).append(entry)
        for table, table_entries in entries.items():
            versions = [entry.version for entry in table_entries]
            mixed = _under_two_keys(chain, start, taken_in(versions[-1]))
            decision = _decide(chain, tables[table], versions, after, mixed=mixed)
            decisions |= {} if decision is None else {table: decision}
    return decisions | away


def under_other_names(
    chain: Chain, manifest: Manifest, tables: Mapping[Oid, Sequence[tuple[Lsn, SchemaVersion]]]
) -> Iterator[tuple[Lsn, SchemaVersion, SchemaVersion]]:
    """Yield those of `tables` of which a segment has rows, after their position, under another name, with its schema.

    A stream goes on with the name that it first announced if the root of partitions alone is renamed. So a table that was
    copied by its new name may get rows by the old one, whose schema is no new one. What is announced after the position is
    left out: it is a change of schema like any other.
    """
    for file in manifest.files:
        for since, version in tables.get(file.oid, ()):
            start = max(since, manifest.start_lsn)
            if file.table == version.table or start >= manifest.end_lsn:
                continue
            if any(e.version.id == file.schema_id and e.from_lsn > start for e in manifest.schemas):
                continue
            pieces = [p for p in slices(chain, start, manifest.end_lsn, file.table) if p.file == file]
            if count_changes(pieces, start, manifest.end_lsn).rows:
                yield start, version, _version_of(chain, pieces[0])


def defaults_for_old_rows(
    chain: Chain, first: Lsn, difference: SchemaDifference, since: Lsn
) -> Mapping[int, str] | None:
    """Return what older rows read in each added column that is not NULL, by attribute number.

    None means that the catalog has to be read first. The columns did not exist before `first` and did at `since`, at the
    latest. Raises UnprovenError if the records of the catalog do not say it.
    """
    unknown = {c.attnum: c for c in difference.added}
    defaults: dict[int, str] = {}
    for manifest in catalog_manifests(chain, first) if unknown else ():
        change = None if manifest.catalog is None else manifest.catalog.change_of(difference.new.oid)
        for added in () if change is None else change.added:
            column = unknown.pop(added.attnum, None)
            if column is None or change is None:
                continue
            text = _default(added, change)
            if text is None:
                continue
            defaults[added.attnum] = _fitting(column, text)
    catalog_is_read = since <= (chain.newest.catalog_lsn or Lsn.ZERO)
    if unknown and catalog_is_read:
        defaults |= _still_kept(chain, difference, unknown)
        unknown = {a: c for a, c in unknown.items() if a not in defaults}
    if unknown and catalog_is_read:
        raise UnprovenError(f"the catalog's records do not have {', '.join(c.name for c in unknown.values())}")
    return None if unknown else defaults


def older_versions(
    chain: Chain, version: SchemaVersion, files: Sequence[Slice], start: Lsn, end: Lsn
) -> dict[SchemaVersion, list[Slice]]:
    """Return the files with rows in (start, end] of other schemas than `version`, by schema.

    They are of the transaction that brought `version`.
    """
    older: dict[SchemaVersion, list[Slice]] = {}
    for piece in files:
        if piece.file.schema_id != version.id and count_changes([piece], start, end).rows:
            older.setdefault(_version_of(chain, piece), []).append(piece)
    return older


def waiting(chain: Chain, cut: Cut) -> frozenset[TableName]:
    """Return the tables whose schema change the cycle after `cut` can't make before the catalog was read."""
    if chain.end <= cut.position:
        return frozenset()
    following = {t: cut_table for t, cut_table in cut.tables.items() if t not in cut.held}
    decisions = decide_changes(chain, cut.position, following)
    return frozenset(table for table, decision in decisions.items() if isinstance(decision, CatalogUnread))


def first_record(chain: Chain, cut_table: CutTable) -> Lsn:
    """Return the position from which on the chain's records of the catalog are about what the lake has of a table."""
    return cut_table.snapshot_lsn if cut_table.snapshot_incarnation == chain.incarnation else chain.head.end_lsn


def proven_defaults(chain: Chain, first: Lsn, difference: SchemaDifference, since: Lsn) -> Mapping[int, str]:
    """Return `defaults_for_old_rows` once more: they were known when the schema came into force."""
    try:
        defaults = defaults_for_old_rows(chain, first, difference, since)
    except UnprovenError:
        defaults = None
    if defaults is None:
        raise InvariantError(
            str(difference.new.table), "rows of another schema lie in the cycle's range", "report this"
        )
    return defaults


def _version_of(chain: Chain, piece: Slice) -> SchemaVersion:
    """Return a file's schema, from the newest manifest that names it: every connection of a drain does before its rows.

    A connection may be older than the manifests that are kept: then the schema is one that the table had in a cut.
    """
    for number in range(piece.number, max(chain.head.number, chain.first_number - 1), -1):
        for entry in chain.manifest(number).schemas:
            if entry.version.id == piece.file.schema_id:
                return entry.version
    try:
        return read_table_schema(chain.lake, piece.file.schema_id)
    except LakeError as error:
        raise unknown_schema(piece) from error


def unknown_schema(piece: Slice) -> TableHeldError:
    """Return the error of a landed file whose schema nobody has any more."""
    detail = {"schema_id": piece.file.schema_id}
    return TableHeldError(str(piece.file.table), HeldCause.SCHEMA_UNKNOWN, WayOut.SNAPSHOT, detail)


def _decide(
    chain: Chain, cut_table: CutTable, versions: Sequence[SchemaVersion], since: Lsn, *, mixed: bool
) -> SchemaDecision | None:
    """Decide on one table with successive `versions`; the last one is in force from `since` on.

    `mixed`: rows under both keys are in one transaction. None: the lake has that schema.
    """
    *earlier, last = map(taken_in, versions)
    old: list[SchemaVersion] = [v for v in [cut_table.version, *earlier] if v.id != last.id]
    if not old:
        return None
    differences = [compare_schemas(v, last) for v in old]
    obstacles = [why for d in differences if (why := why_not_in_place(d, mixed=mixed)) is not None]
    defaults: list[Mapping[int, str] | None] = []
    try:
        first = first_record(chain, cut_table)
        defaults = [defaults_for_old_rows(chain, first, d, since) for d in differences] if not obstacles else []
    except UnprovenError as error:
        obstacles = [str(error)]
    if obstacles:
        return _held(chain, cut_table.at_lsn, (old[0], last), obstacles[0])
    if None in defaults:
        return CatalogUnread()
    return SchemaChange(last, defaults[0] or {}) if cut_table.version.id != last.id else None


def _away(chain: Chain, cut_table: CutTable, landed: SchemaVersion) -> Held:
    """Return how a table is held of which rows come under another name."""
    why = why_not_in_place(compare_schemas(cut_table.version, landed))
    return _held(chain, cut_table.at_lsn, (cut_table.version, landed), why or "")


def _held(chain: Chain, at_lsn: Lsn, versions: tuple[SchemaVersion, SchemaVersion], why: str) -> Held:
    old, new = versions
    detail = {"change": describe_change(old, new), "why_not_in_place": why}
    return Held(at_lsn, HeldCause.SCHEMA_CHANGE, way_out_of(chain, old, new), detail)


def way_out_of(chain: Chain, old: SchemaVersion, new: SchemaVersion) -> WayOut:
    """Return the way out of a change that can't be made: no snapshot has a table whose name no published table has."""
    newest = None if old.table == new.table else newest_catalog(chain)
    if newest is None or any(table.table == old.table for table in newest.tables.values()):
        return WayOut.SNAPSHOT
    return WayOut.PUBLISH_THEN_SNAPSHOT


def _under_two_keys(chain: Chain, start: Lsn, new: SchemaVersion) -> bool:
    """True if the transaction right after `start` has rows under another key or identity than that of `new`.

    Other transactions of its segment don't count.
    """
    after = Lsn(int(start) + 1)
    for piece in slices(chain, start, after, new.table):
        try:
            difference = compare_schemas(taken_in(_version_of(chain, piece)), new)
        except TableHeldError:
            return True
        if not difference.same_rows_meant and count_changes([piece], start, after).rows > 0:
            return True
    return False


def _still_kept(chain: Chain, difference: SchemaDifference, columns: Mapping[int, Column]) -> dict[int, str]:
    """Return these columns as the newest reading of the catalog has them, if the records of their addition were removed.

    A fast default is set when the column is added, stays as it is, and goes with the first rewrite: if there is one, all
    older rows read it. If there is none, nothing is known.
    """
    newest = newest_catalog(chain)
    table = None if newest is None else newest.tables.get(difference.new.oid)
    kept = {} if table is None else {c.attnum: c.missing for c in table.columns}
    values = {a: element_of_one(text) for a in columns if (text := kept.get(a)) is not None}
    return {a: _fitting(columns[a], value) for a, value in values.items() if value is not None}


def _fitting(column: Column, text: str) -> str:
    if not default_fits(column, text):
        raise UnprovenError(f"the default of {column.name} is kept as text only")
    return text


def _default(added: AddedColumn, change: TableDifferences) -> str | None:
    if added.missing is not None:
        return element_of_one(added.missing)
    if _NEW_FILES & set(change.differences):
        raise UnprovenError(f"the rows that {added.name} was added to were rewritten, with unknown values")
    return None


def element_of_one(array: str) -> str | None:
    """Return the element of PostgreSQL's text of an array of one; None for NULL."""
    inner = array[1:-1]
    if not inner.startswith('"'):
        return None if inner == "NULL" else inner
    text, escaped = [], False
    for character in inner[1:-1]:
        if character == "\\" and not escaped:
            escaped = True
            continue
        text.append(character)
        escaped = False
    return "".join(text)


def decide_recorded_changes(
    chain: Chain, start: Lsn, tables: Mapping[TableName, CutTable], entering: Mapping[TableName, FinishedCopy]
) -> tuple[dict[TableName, SchemaDecision], list[Lsn]]:
    """Decide on each table that has another schema by a record noticed at `start`.

    `tables` are in the lake, at `start`, and not held; `entering` may come into it with this cycle. The positions are where
    the range must end for later records: the cycle after that one decides.
    """
    decisions, bounds = dict[TableName, SchemaDecision](), list[Lsn]()
    newest: dict[TableName, tuple[Manifest, SchemaVersion]] = {}
    for manifest, version in _schemas(chain, start):
        copied = entering.get(version.table)
        if copied is not None and _noticed(manifest) >= copied.consistent_point:
            if copied.table.version.oid == version.oid and not _same(copied.table.version, version):
                bounds.append(_noticed(manifest))
            continue
        cut_table = tables.get(version.table)
        if cut_table is None or cut_table.version.oid != version.oid:
            continue
        if _noticed(manifest) == start:
            newest[version.table] = manifest, version
        elif not _same(cut_table.version, version):
            bounds.append(_noticed(manifest))
    for table, (manifest, version) in newest.items():
        cut_table = tables[table]
        if _same(cut_table.version, version) or cut_table.snapshot_lsn >= start:
            continue
        if not _brought_meanwhile(chain, manifest, cut_table):
            decision = _decide(chain, cut_table, [version], start, mixed=False)
            if isinstance(decision, SchemaChange | Held):
                decisions[table] = decision
    return decisions, bounds


def newer_recorded(chain: Chain, version: SchemaVersion, span: tuple[Lsn, Lsn]) -> SchemaVersion | None:
    """Return another schema that a table has by a record noticed inside of `span`; None if there is none."""
    after, before = span
    newest = None
    for manifest, recorded in _schemas(chain, after):
        if after < _noticed(manifest) < before and (recorded.table, recorded.oid) == (version.table, version.oid):
            newest = recorded
    return None if newest is None or _same(version, newest) else newest


def _schemas(chain: Chain, start: Lsn) -> Iterator[tuple[Manifest, SchemaVersion]]:
    """Yield the schemas in the records noticed at or after `start`, of tables of which nothing else differs."""
    for manifest in catalog_manifests(chain, start):
        for change in () if manifest.catalog is None else manifest.catalog.changes:
            if change.version is not None and change.consequence is Consequence.APPLY:
                yield manifest, change.version


def _noticed(manifest: Manifest) -> Lsn:
    return Lsn.ZERO if manifest.catalog is None else manifest.catalog.upper_lsn


def _brought_meanwhile(chain: Chain, manifest: Manifest, cut_table: CutTable) -> bool:
    """True if a row brought the lake's schema after the reading had begun: it may be newer than the record's.

    It is not if a reading that had the row's transaction agreed with the record: then the record's came after it.
    """
    lower, upper = manifest.catalog_lsn or Lsn.ZERO, _noticed(manifest)
    brought = [
        entry.from_lsn
        for between in chain.between(max(lower, chain.kept_from), upper)
        for entry in between.schemas
        if lower < entry.from_lsn <= upper and taken_in(entry.version).id == cut_table.version.id
    ]
    return bool(brought) and not _agreed_since(chain, manifest, cut_table.version.oid, max(brought))


def _agreed_since(chain: Chain, manifest: Manifest, oid: Oid, row: Lsn) -> bool:
    """True if the newest reading has all up to `row`, and no record after this one is about the table."""
    if row > (chain.newest.catalog_lsn or Lsn.ZERO):
        return False
    later = [m.catalog for m in catalog_manifests(chain, _noticed(manifest)) if m.number > manifest.number]
    return all(record is None or record.change_of(oid) is None for record in later)


def _same(a: SchemaVersion, b: SchemaVersion) -> bool:
    """True if the catalog says the same of both; the configurations they were made by may differ."""
    return _facts(a) == _facts(b)


def _facts(version: SchemaVersion) -> list[object]:
    columns = [(c.attnum, c.name, c.type_oid, c.typmod, c.identity) for c in version.columns]
    return [version.identity, version.key, *columns]
