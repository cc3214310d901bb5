"""A cut as it is stored: its difference from a base, the base, and the tables' schemas, each in documents of their own.

The meaning of a cut is in `documents`, finding cuts in `store`.

    cycles/cuts/<n>             tables and held tables that differ from the base, in full: a cut is read with two documents
    cycles/bases/<n>            all tables and held tables of cut n; one base serves many cuts
    cycles/table_schemas/<id>   a schema, under the id of its contents: put once, read only for tables that somebody asks for

A table without changes has the same entry in each cut, so it is in none of them. A new base is put once the cuts since the
last base have named as many tables as there are. So all documents together are no more than twice what changed, and reading
a cut takes two of them. A base is that of the previous cut, which is durable already: who ends a cycle twice puts the
same bytes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, CycleField, IncarnationField, LsnField, SchemaField, TableField
from lakeproof.lake.records.documents import Cut, CutEntry, CutOrdinals, CutTable, CycleKind, fields_of
from lakeproof.lake.records.held import Held
from lakeproof.names import CycleNumber, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document import Document, Part, TimeField
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError, get_or_none

# For fewer tables a base is not worth its document.
NAMED_MIN = 200
# How many documents a process keeps whose names say what they contain.
SCHEMAS_KEPT = 65_536
BASES_KEPT = 4
_PUTS_AT_ONCE = 16
_V = TypeVar("_V")
_Entries = Mapping[TableName, Any]
_EntriesField = Mapping[TableField, dict[str, Any] | None]
_schemas: dict[str, SchemaVersion] = {}
_bases: OrderedDict[str, Contents] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Contents:
    """The entries of tables and of held tables, as JSON; in a difference, None under a name: its entry is gone."""

    tables: _Entries = field(default_factory=dict)
    held: _Entries = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tables) + len(self.held)

    def since(self, base: Contents) -> Contents:
        """Return what differs from `base`."""
        return Contents(_since(base.tables, self.tables), _since(base.held, self.held))

    def after(self, changed: Contents) -> Contents:
        """Return the contents with a difference applied."""
        return Contents(_after(self.tables, changed.tables), _after(self.held, changed.held))

    @classmethod
    def of(cls, cut: Cut) -> Contents:
        """Return all entries of a cut."""
        tables = {t: cut_table.entry(cut.position, cut.incarnation).to_json() for t, cut_table in cut.tables.items()}
        return cls(tables, {t: held.to_json() for t, held in cut.held.items()})


@dataclass(frozen=True, slots=True)
class CutBase(Part):
    """The base of a cut: the number of its cut, and its document's SHA-256."""

    number: CycleField
    sha256: str


@dataclass(frozen=True, slots=True)
class CutDoc(Document):
    """A cut's document: `tables` and `held` differ from those of `base`, an entry is null if its table is gone.

    `named` counts the entries of all cuts since the base, including this one's.
    """

    FORMAT = "lakeproof.cut/1"

    number: CycleField
    kind: CycleKind
    incarnation: IncarnationField
    position: LsnField
    ordinals: CutOrdinals
    commit_time: TimeField | None
    base: CutBase | None
    named: Count
    tables: _EntriesField
    held: _EntriesField
    next_segment: Count
    intent_sha256: str
    created_at: TimeField

    @property
    def changed(self) -> Contents:
        """The difference from the base."""
        return Contents(self.tables, self.held)


@dataclass(frozen=True, slots=True)
class BaseDoc(Document):
    """The document of a base: all entries of cut `number`."""

    FORMAT = "lakeproof.cutbase/1"

    number: CycleField
    tables: _EntriesField
    held: _EntriesField


@dataclass(frozen=True, slots=True)
class TableSchemaDoc(Document):
    """The document of a table's schema."""

    FORMAT = "lakeproof.table_schema/1"

    version: SchemaField


class _Lazy(Mapping[TableName, _V], Generic[_V]):
    """Values made from entries when somebody asks for them; the first one reads all entries."""

    def __init__(self, entries: Callable[[], _Entries], make: Callable[[TableName, Any], _V]) -> None:
        self._entries, self._make = entries, make
        self._values: dict[TableName, _V] = {}

    def __getitem__(self, table: TableName) -> _V:
        if table not in self._values:
            self._values[table] = self._make(table, self._entries()[table])
        return self._values[table]

    def __iter__(self) -> Iterator[TableName]:
        return iter(self._entries())

    def __len__(self) -> int:
        return len(self._entries())

    def __contains__(self, table: object) -> bool:
        return table in self._entries()


def load_cut_doc(lake: SourceLake, number: CycleNumber) -> CutDoc | None:
    """Return one cut's document, None if there is none; raises LakeError if it is damaged."""
    key = lake.paths.cut(number)
    doc = CutDoc.read(lake.store, key)
    if doc is not None and doc.number != number:
        raise LakeError(lake.url(key), f"it says that it is cut {doc.number}", "restore it from a backup")
    return doc


def open_cut(lake: SourceLake, doc: CutDoc) -> Cut:
    """Return the cut of a document. A later look-up raises LakeError if the entry is damaged or not kept any more."""
    place = lake.url(lake.paths.cut(doc.number))
    contents: list[Contents] = []

    def whole() -> Contents:
        if not contents:
            contents.append(whole_contents(lake, doc))
        return contents[0]

    def table(name: TableName, entry: Any) -> CutTable:
        read = CutEntry.from_json(entry, place, f"tables[{name.key}]")
        version = read_table_schema(lake, read.schema_id)
        return CutTable.of(read, doc.position, doc.incarnation, version, ordinals=doc.ordinals)

    def held(name: TableName, entry: Any) -> Held:
        return Held.from_json(entry, place, f"held[{name.key}]")

    tables, all_held = _Lazy(lambda: whole().tables, table), _Lazy(lambda: whole().held, held)
    return Cut(**{**fields_of(doc, Cut), "tables": tables, "held": all_held})


def whole_contents(lake: SourceLake, doc: CutDoc) -> Contents:
    """Return all entries of a cut, from its document and its base."""
    base = Contents() if doc.base is None else _read_base(lake, doc.base)
    return base.after(doc.changed)


def document_of(lake: SourceLake, cut: Cut, named_min: int = NAMED_MIN) -> CutDoc:
    """Return the document of a new cut, after putting its schemas and its base, durably."""
    contents = Contents.of(cut)
    before = load_cut_doc(lake, CycleNumber(cut.number - 1)) if cut.number > 1 else None
    base = None if before is None else before.base
    named = 0 if before is None else before.named
    start = Contents() if base is None else _read_base(lake, base)
    whole_before = start if before is None else start.after(before.changed)
    _put_table_schemas(lake, cut, contents.tables, {e["schema_id"] for e in whole_before.tables.values()})
    changed = contents.since(start)
    if before is not None and named + len(changed) > max(len(contents), named_min):
        base, named = _put_base(lake, before.number, whole_before), 0
        changed = contents.since(whole_before)
    own = {"base": base, "named": named + len(changed), "tables": changed.tables, "held": changed.held}
    return CutDoc(**{**fields_of(cut, CutDoc), **own})


def unneeded_bases(lake: SourceLake, oldest: CycleNumber) -> list[str]:
    """Return the bases that no cut from `oldest` on has; bases grow with the cuts' numbers."""
    doc = load_cut_doc(lake, oldest)
    needed = None if doc is None or doc.base is None else lake.paths.cut_base(doc.base.number)
    return [] if needed is None else [key for key in lake.store.list(lake.paths.cut_bases) if key < needed]


def read_table_schema(lake: SourceLake, schema_id: str) -> SchemaVersion:
    """Return a schema that some table has, or had, in a cut; raises LakeError if there is none, or it is damaged."""
    version = _schemas.get(schema_id)
    if version is None:
        key = lake.paths.table_schema(schema_id)
        doc = TableSchemaDoc.read(lake.store, key)
        if doc is None or doc.version.id != schema_id:
            reason = "it is missing" if doc is None else f"it is damaged: its schema is {doc.version.id}"
            raise LakeError(lake.url(key), reason, "restore it from a backup")
        version = doc.version
        if len(_schemas) >= SCHEMAS_KEPT:
            _schemas.clear()
        _schemas[schema_id] = version
    return version


def _put_table_schemas(lake: SourceLake, cut: Cut, entries: _Entries, existing: set[str]) -> None:
    new = {e["schema_id"]: cut.tables[t].version for t, e in entries.items() if e["schema_id"] not in existing}

    def put(schema_id: str) -> None:
        with suppress(AlreadyExistsError):
            lake.store.put_if_absent(lake.paths.table_schema(schema_id), TableSchemaDoc(new[schema_id]).to_bytes())

    # Each is made durable by itself; a source's first cut has as many schemas as tables.
    with ThreadPoolExecutor(max_workers=_PUTS_AT_ONCE) as pool:
        list(pool.map(put, new))


def _put_base(lake: SourceLake, number: CycleNumber, contents: Contents) -> CutBase:
    data = BaseDoc(number, contents.tables, contents.held).to_bytes()
    with suppress(AlreadyExistsError):
        lake.store.put_if_absent(lake.paths.cut_base(number), data)
    return CutBase(number, hashlib.sha256(data).hexdigest())


def _read_base(lake: SourceLake, base: CutBase) -> Contents:
    contents = _bases.get(base.sha256)
    if contents is None:
        key = lake.paths.cut_base(base.number)
        data = get_or_none(lake.store, key)
        if data is None:
            reason = "it is missing, and the cuts that name it can't be read without it"
            raise LakeError(lake.url(key), reason, "open a cut that is kept, or restore it from a backup")
        if hashlib.sha256(data).hexdigest() != base.sha256:
            raise LakeError(lake.url(key), "it is not what cuts were made of", "restore it from a backup")
        doc = BaseDoc.from_bytes(data, lake.url(key))
        contents = _bases[base.sha256] = Contents(doc.tables, doc.held)
        while len(_bases) > BASES_KEPT:
            _bases.popitem(last=False)
    return contents


def _since(base: _Entries, entries: _Entries) -> dict[TableName, Any]:
    changed = {t: e for t, e in entries.items() if base.get(t) != e}
    return changed | {t: None for t in base if t not in entries}


def _after(base: _Entries, changed: _Entries) -> _Entries:
    if not changed:
        return base
    both = {**base, **changed}
    return {t: e for t, e in both.items() if e is not None}
