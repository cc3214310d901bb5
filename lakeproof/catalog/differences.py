"""Compares two fingerprints of a catalog: the tables that differ, their differences, and what each calls for.

Each `Difference` says if it is ignored, applied as a schema version, or makes a new snapshot necessary;
docs/schema-changes.md has the same for people. Acting on it does not belong here (`lakeproof.lake.planning.catalog_drift`).

If two causes can't be distinguished, the worse one counts: a snapshot too many costs time, one too few is a wrong table that
nobody notices.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from lakeproof.catalog.fingerprint import ColumnFacts, Fingerprint, LeafFacts, PublicationFacts, TableFacts
from lakeproof.field_types import AttributeNumber, Count, Digest, OidField, SchemaField, TableField
from lakeproof.names import Oid, TableName

# text and varchar: the same characters under either name.
_TEXTS = frozenset({25, 1043})
# Every value of the first type is one of the second: PostgreSQL rewrites the rows, and their values stay.
_WIDER = frozenset({(21, 23), (21, 20), (23, 20), (700, 701)})


class Consequence(Enum):
    """The consequence of a difference, from the least to the most.

    APPLY: a schema version, which the stream's next Relation message brings. GONE: the lake keeps its data, marked.
    """

    IGNORE = "ignore"
    APPLY = "apply"
    SNAPSHOT = "snapshot again"
    GONE = "keep and mark"


class Difference(Enum):
    """A kind of difference between two readings, in a manifest's words, and what it calls for."""

    consequence: Consequence

    def __new__(cls, words: str, consequence: Consequence) -> Difference:
        kind = object.__new__(cls)
        kind._value_, kind.consequence = words, consequence
        return kind

    COLUMN_ALTERED = "column altered", Consequence.IGNORE
    FILE = "file", Consequence.IGNORE
    PARTITION_CREATED = "partition created", Consequence.IGNORE
    PARTITION_IDENTITY_FITS = "partition identity fits", Consequence.IGNORE
    ROOT_TRUNCATED = "root truncated", Consequence.IGNORE
    KEY_UNDER_FULL = "key under full", Consequence.IGNORE
    LABEL_ADDED = "enum label added", Consequence.IGNORE
    TYPE_RENAMED_INSIDE = "attribute renamed", Consequence.IGNORE
    COLUMN_ADDED = "column added", Consequence.APPLY
    COLUMN_DROPPED = "column dropped", Consequence.APPLY
    COLUMN_RENAMED = "column renamed", Consequence.APPLY
    COLUMN_WIDTH = "column width", Consequence.APPLY
    COLUMN_WIDENED = "column widened", Consequence.APPLY
    COLUMN_RECREATED = "column recreated", Consequence.APPLY
    IDENTITY = "identity", Consequence.APPLY
    CREATED = "created", Consequence.APPLY
    COLUMN_TYPE = "column type", Consequence.SNAPSHOT
    REWRITTEN = "rewritten", Consequence.SNAPSHOT
    PARTITION_ATTACHED = "partition attached", Consequence.SNAPSHOT
    PARTITION_DETACHED = "partition detached", Consequence.SNAPSHOT
    PARTITION_PASSED = "partition came and went", Consequence.SNAPSHOT
    PARTITION_FILE = "partition file", Consequence.SNAPSHOT
    PARTITION_IDENTITY = "partition identity", Consequence.SNAPSHOT
    LABEL_CHANGED = "enum label changed", Consequence.SNAPSHOT
    COMPOSITE = "composite altered", Consequence.SNAPSHOT
    FILTER = "row filter", Consequence.SNAPSHOT
    COLUMN_LIST = "column list", Consequence.SNAPSHOT
    COLUMN_SENT = "column sent", Consequence.SNAPSHOT
    OPERATIONS = "operations", Consequence.SNAPSHOT
    PUBLISHED_AGAIN = "published again", Consequence.SNAPSHOT
    PUBLICATION_ALTERED = "publication altered", Consequence.SNAPSHOT
    ENTERED = "entered", Consequence.SNAPSHOT
    UNREAD = "not read", Consequence.SNAPSHOT
    LEFT = "left", Consequence.GONE
    DROPPED = "dropped", Consequence.GONE
    BECAME_PARTITION = "became a partition", Consequence.GONE
    RENAMED = "renamed", Consequence.GONE


_ORDER = list(Consequence)


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A new column; `missing` is the value that older rows have in it, None for NULL or if they were rewritten."""

    name: str
    attnum: Count
    missing: str | None


@dataclass(frozen=True, slots=True)
class TableCreated:
    """A table published from its creation on, with its schema version here (`lakeproof.drain.catalog.created_tables`).

    `named`: it was never renamed or moved; `anchored` are the numbers of the columns that are as they were created;
    `numbered`: no column was ever dropped and all are sent, so its first n columns are those with the numbers 1 to n.
    """

    version: SchemaField
    named: bool
    anchored: tuple[AttributeNumber, ...]
    numbered: bool

    @property
    def untouched(self) -> bool:
        """True if its name and all of its columns are as they were created."""
        return self.named and {c.attnum for c in self.version.columns} <= set(self.anchored)


@dataclass(frozen=True, slots=True)
class TableDifferences:
    """A table's differences, under the name that it had; `renamed_to`, `added` and `created` say more if there is more.

    For a table that became a partition, `renamed_to` is the published table that it is now part of.

    `before` and `after` are `Fingerprint.digest`s; None if the table was, or is, not published. `version` is its present
    schema version, if that is the only difference and the configuration fits it. `empty` is the same of a table that has no
    row at the record's `upper_lsn`: whatever was done to its rows before, nothing is lost.
    """

    oid: OidField
    table: TableField
    differences: tuple[Difference, ...]
    before: Digest | None
    after: Digest | None
    renamed_to: TableField | None = None
    added: tuple[AddedColumn, ...] = ()
    version: SchemaField | None = None
    created: TableCreated | None = None
    empty: SchemaField | None = None

    @property
    def consequence(self) -> Consequence:
        """The greatest consequence of its differences."""
        return consequence(self.differences)

    @property
    def words(self) -> str:
        """Return what a person did: a renamed column is also an altered one, which calls for nothing by itself."""
        count = [d for d in self.differences if d.consequence is not Consequence.IGNORE] or self.differences
        return ", ".join(d.value for d in count)


def consequence(differences: tuple[Difference, ...]) -> Consequence:
    """Return the greatest consequence of these differences."""
    return max((d.consequence for d in differences), key=_ORDER.index, default=Consequence.IGNORE)


def compare(old: Fingerprint, new: Fingerprint, existing: frozenset[Oid]) -> list[TableDifferences]:
    """Return every table that differs, by OID. `existing`: old tables that the catalog still has, published or not."""
    changes = []
    gone = old.tables.keys() - new.tables.keys()
    roots = {leaf.oid: t.table for t in new.tables.values() for leaf in t.leaves} if gone else {}
    for oid in sorted(old.tables.keys() | new.tables.keys()):
        both = oid in old.tables and oid in new.tables
        change = _changed(oid, old, new) if both else _appeared_or_gone(oid, old, new, existing, roots)
        if change is not None:
            changes.append(change)
    return changes


def _appeared_or_gone(
    oid: Oid, old: Fingerprint, new: Fingerprint, existing: frozenset[Oid], roots: Mapping[int, TableName]
) -> TableDifferences | None:
    if oid in new.tables:
        return TableDifferences(oid, new.tables[oid].table, (Difference.ENTERED,), None, new.digest(oid))
    if oid in roots:
        became = (Difference.BECAME_PARTITION,)
        return TableDifferences(oid, old.tables[oid].table, became, old.digest(oid), None, roots[oid])
    difference = Difference.LEFT if oid in existing else Difference.DROPPED
    return TableDifferences(oid, old.tables[oid].table, (difference,), old.digest(oid), None)


def _changed(oid: Oid, old: Fingerprint, new: Fingerprint) -> TableDifferences | None:
    before, after = old.tables[oid], new.tables[oid]
    if before == after and old.types == new.types and old.publications == new.publications:
        return None
    differences = dict.fromkeys(
        [
            *([Difference.RENAMED] if before.table != after.table else []),
            *_published(before, after, old, new),
            *_columns(before, after, old, new),
            *_identity(before, after),
            *_partitions(before, after, new.operations(after)),
            *_types(before, after, old, new),
        ]
    )
    if not differences:
        return None
    had = {c.attnum for c in before.columns}
    return TableDifferences(
        oid,
        before.table,
        tuple(differences),
        old.digest(oid),
        new.digest(oid),
        after.table if before.table != after.table else None,
        tuple(AddedColumn(c.name, c.attnum, c.missing) for c in new.sent(after) if c.attnum not in had),
    )


def _published(before: TableFacts, after: TableFacts, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    if old.operations(before) != new.operations(after):
        yield Difference.OPERATIONS
    had_rows, has_rows = old.filters(before), new.filters(after)
    if any(had_rows[operation] != has_rows[operation] for operation in had_rows.keys() & has_rows.keys()):
        yield Difference.FILTER
    # A line that stands as it stood has published the table all along, whatever another one did.
    kept = {entry.publication for entry in {*before.entries} & {*after.entries}}
    had, has = before.in_force, after.in_force
    for oid in had.keys() & has.keys():
        if had[oid].listed != has[oid].listed:
            yield Difference.COLUMN_LIST
        elif oid not in kept and had[oid].filter == has[oid].filter:
            # Dropped and added, or detached and attached, at once or with changes in between that were not sent.
            yield Difference.PUBLISHED_AGAIN
        a, b = old.publications[oid], new.publications[oid]
        if a.epoch != b.epoch and _unaltered_but_for_its_epoch(a, b):
            yield Difference.PUBLICATION_ALTERED
    if had.keys() - has.keys():
        yield Difference.PUBLISHED_AGAIN


def _unaltered_but_for_its_epoch(a: PublicationFacts, b: PublicationFacts) -> bool:
    """True if nothing that a publication is now says what was altered: it may have sent less for a while."""
    return (a.owner, a.operations, a.generated, a.via_root) == (b.owner, b.operations, b.generated, b.via_root)


def _columns(before: TableFacts, after: TableFacts, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    had = {c.attnum: c for c in old.sent(before)}
    has = {c.attnum: c for c in new.sent(after)}
    both = had.keys() & has.keys()
    dropped = {had[n].name for n in had.keys() - both}
    added = {has[n].name for n in has.keys() - both}
    if dropped & added:
        yield Difference.COLUMN_RECREATED
    if dropped - added:
        yield Difference.COLUMN_DROPPED
    # A column that existed already has values in the older rows, which nothing has sent.
    unsent = {c.name for c in before.columns if c.attnum in has.keys() - both}
    if unsent - dropped:
        yield Difference.COLUMN_SENT
    if added - dropped - unsent:
        yield Difference.COLUMN_ADDED
    touched = [(had[n], has[n]) for n in both if had[n] != has[n]]
    retyped = {a.attnum for a, b in touched if _retyped(a, b) and not _same_below(a, b, old, new)}
    for a, b in touched:
        yield from _column(a, b, retyped)
    # VACUUM FULL, CLUSTER and TRUNCATE create a new file too, and leave the columns' lines in the catalog alone.
    if before.file != after.file:
        explained = all(_widened(a, b) or a.attnum in retyped or _filled(a, b) for a, b in touched)
        yield Difference.FILE if explained else Difference.REWRITTEN


def _filled(had: ColumnFacts, has: ColumnFacts) -> bool:
    """True if all that is new of the column is that a new file has its value in every row, in place of the catalog.

    Whatever writes the table anew does this. An ALTER of the column's own type would have made its default anew too.
    """
    same = had.default is not None and had.default == has.default
    return same and had.missing is not None and had._replace(epoch=has.epoch, missing=None) == has


def _same_below(had: ColumnFacts, has: ColumnFacts, old: Fingerprint, new: Fingerprint) -> bool:
    """True if one type is a domain of the other, or both are domains of one: their values are the same."""
    a, b = old.below_domain(had), new.below_domain(has)
    return (a.type_oid, a.typmod) == (b.type_oid, b.typmod)


def _column(had: ColumnFacts, has: ColumnFacts, retyped: Collection[int]) -> Iterator[Difference]:
    yield Difference.COLUMN_ALTERED
    if had.name != has.name:
        yield Difference.COLUMN_RENAMED
    if _widened(had, has):
        yield Difference.COLUMN_WIDENED
    elif had.attnum in retyped:
        yield Difference.COLUMN_TYPE
    elif (had.type_oid, had.typmod) != (has.type_oid, has.typmod):
        yield Difference.COLUMN_WIDTH


def is_wider(had: int, has: int) -> bool:
    """True if the type `has` has every value of `had`, and a table is rewritten for it."""
    return (had, has) in _WIDER


def _widened(had: ColumnFacts, has: ColumnFacts) -> bool:
    return is_wider(had.type_oid, has.type_oid)


def _retyped(had: ColumnFacts, has: ColumnFacts) -> bool:
    """True if the column has another type, not only a wider one; this shows in every row that is sent."""
    other = had.type_oid != has.type_oid and not {had.type_oid, has.type_oid} <= _TEXTS
    return other and not _widened(had, has)


def _identity(before: TableFacts, after: TableFacts) -> Iterator[Difference]:
    if before.identity != after.identity:
        yield Difference.IDENTITY
    elif before.key != after.key:
        yield Difference.KEY_UNDER_FULL if after.identity == "f" else Difference.IDENTITY


def _partitions(before: TableFacts, after: TableFacts, operations: str) -> Iterator[Difference]:
    if {"u", "d"} & set(operations):
        yield from _partition_identities(before, after)
    if before.leaves_text == after.leaves_text:
        return
    had, has = {p.oid: p for p in before.leaves}, {p.oid: p for p in after.leaves}
    if had.keys() - has.keys():
        yield Difference.PARTITION_DETACHED
    created = _created(before, after)
    for oid in has.keys() - had.keys():
        yield Difference.PARTITION_CREATED if oid in created else Difference.PARTITION_ATTACHED
    if any(had[oid].links != has[oid].links for oid in had.keys() & has.keys()):
        yield Difference.PARTITION_ATTACHED
    touched = {c.attnum: c for c in before.columns} != {c.attnum: c for c in after.columns}
    if new_files(before, after):
        yield Difference.REWRITTEN if touched else Difference.PARTITION_FILE


def new_files(before: TableFacts, after: TableFacts) -> list[LeafFacts]:
    """Return the leaves of `after` whose file is another one than in `before`, or, if they were created, than their first.

    A new one that was truncated has lost rows that the stream has; one that was unlogged has rows that it lacks.
    """
    files = {leaf.oid: leaf.file for leaf in before.leaves}
    # A table's first file has the table's number.
    files |= {oid: oid for oid in _created(before, after)}
    return [leaf for leaf in after.leaves if leaf.file != files.get(leaf.oid, leaf.file)]


def _created(before: TableFacts, after: TableFacts) -> set[int]:
    """Return the new leaves that were created below a table that was there, or was attached, before."""
    leaves = before.leaves
    had, attached = {leaf.oid for leaf in leaves}, {oid for leaf in leaves for oid in leaf.attached}
    return {leaf.oid for leaf in after.leaves if leaf.oid not in had and attached.issuperset(leaf.attached)}


def _partition_identities(before: TableFacts, after: TableFacts) -> Iterator[Difference]:
    """Yield the changes of identities, of partitions or the table, that decide if old rows can still be identified."""
    same = (before.leaves_text, before.identity, before.key) == (after.leaves_text, after.identity, after.key)
    if same or after.kind != "p":
        return
    had, has = {p.oid: p for p in before.leaves}, {p.oid: p for p in after.leaves}
    misfits_before = {oid: (p.identity, p.key) for oid, p in before.misfits.items()}
    if any(misfits_before.get(oid) != (p.identity, p.key) for oid, p in after.misfits.items()):
        yield Difference.PARTITION_IDENTITY
    for oid in had.keys() & has.keys() - after.misfits.keys():
        if oid in misfits_before or had[oid].identity != has[oid].identity:
            yield Difference.PARTITION_IDENTITY_FITS


def _types(before: TableFacts, after: TableFacts, old: Fingerprint, new: Fingerprint) -> Iterator[Difference]:
    had = old.types_of(c.type_oid for c in old.sent(before))
    has = new.types_of(c.type_oid for c in new.sent(after))
    for oid in had.keys() & has.keys():
        if had[oid] != has[oid] and had[oid].kind in {"e", "c"}:
            compared = _enum if had[oid].kind == "e" else _composite
            yield from compared(had[oid].parts, has[oid].parts)


def _enum(before: str, after: str) -> Iterator[Difference]:
    had, has = ({oid: label for oid, *label in json.loads(parts)} for parts in (before, after))
    # One renamed there and back has another epoch; older readings have none.
    if any(has.get(oid, [])[: len(label)] != label for oid, label in had.items()):
        yield Difference.LABEL_CHANGED
    if has.keys() - had.keys():
        yield Difference.LABEL_ADDED


def _composite(before: str, after: str) -> Iterator[Difference]:
    # Its text has no names. Rows had dropped attributes for a while.
    had, has = ([[n, *rest] for n, _, *rest in json.loads(parts)] for parts in (before, after))
    yield Difference.COMPOSITE if had != has else Difference.TYPE_RENAMED_INSIDE
