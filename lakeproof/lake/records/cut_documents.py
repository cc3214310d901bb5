"""A cut as it is stored: its difference from a base, the base, and the tables' schemas, each in documents of their own.

What a cut means does not belong here but in `documents`, finding cuts in `store`.

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
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.held import Held
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.schema import SchemaVersion
from lakeproof.storage.document_fields import Fields, read_document, write_document
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError, NotFoundError

CUT_FORMAT = "lakeproof.cut/1"
BASE_FORMAT = "lakeproof.cutbase/1"
TABLE_SCHEMA_FORMAT = "lakeproof.table_schema/1"
# For fewer tables a base is not worth its document.
NAMED_MIN = 200
# How many documents a process keeps whose names say what they contain.
SCHEMAS_KEPT = 65_536
BASES_KEPT = 4
_PUTS_AT_ONCE = 16
_V = TypeVar("_V")
_Entries = Mapping[TableName, Any]
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

    def to_json(self) -> dict[str, Any]:
        """Return the fields `tables` and `held`."""
        return {"tables": {t.key: e for t, e in self.tables.items()}, "held": {t.key: e for t, e in self.held.items()}}

    @classmethod
    def of(cls, cut: Cut) -> Contents:
        """Return all entries of a cut."""
        tables = {t: cut_table.to_json(cut.position, cut.incarnation) for t, cut_table in cut.tables.items()}
        return cls(tables, {t: held.to_json() for t, held in cut.held.items()})

    @classmethod
    def from_fields(cls, f: Fields) -> Contents:
        """Read what `to_json` gives; an entry itself is read when somebody asks for it."""
        contents = {name: f.entries(name) for name in ("tables", "held")}
        for name, entries in contents.items():
            for table, entry in entries.items():
                if not isinstance(entry, dict | None):
                    raise f.damaged(f"{name}[{table.key}]", "is neither an object nor null")
        return cls(**contents)


@dataclass(frozen=True, slots=True)
class CutDoc:
    """A cut's document: `changed` is the difference from `base` (a cut's number and its document's SHA-256).

    `named` counts the entries of all cuts since the base, including this one's.
    """

    number: CycleNumber
    kind: CycleKind
    incarnation: Incarnation
    position: Lsn
    commit_time: str | None
    base: tuple[CycleNumber, str] | None
    named: int
    changed: Contents
    next_segment: int
    intent_sha256: str
    created_at: str

    def to_bytes(self) -> bytes:
        """Return the document."""
        return write_document(
            CUT_FORMAT,
            number=int(self.number),
            kind=self.kind.value,
            incarnation=int(self.incarnation),
            position=str(self.position),
            commit_time=self.commit_time,
            base=None if self.base is None else {"number": int(self.base[0]), "sha256": self.base[1]},
            named=self.named,
            **self.changed.to_json(),
            next_segment=self.next_segment,
            intent_sha256=self.intent_sha256,
            created_at=self.created_at,
        )

    @classmethod
    def from_bytes(cls, data: bytes, thing: str) -> CutDoc:
        """Read what `to_bytes` gives; raises LakeError naming `thing` and the damaged field."""
        f = read_document(data, CUT_FORMAT, thing)

        def base() -> tuple[CycleNumber, str]:
            of = f.object("base")
            return CycleNumber(of.count("number")), of.text("sha256")

        return cls(
            number=CycleNumber(f.count("number")),
            kind=CycleKind.from_fields(f),
            incarnation=Incarnation(f.count("incarnation")),
            position=f.lsn("position"),
            commit_time=f.optional("commit_time", lambda: f.text("commit_time")),
            base=f.optional("base", base),
            named=f.count("named"),
            changed=Contents.from_fields(f),
            next_segment=f.count("next_segment"),
            intent_sha256=f.text("intent_sha256"),
            created_at=f.text("created_at"),
        )


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
    try:
        data = lake.store.get(key)
    except NotFoundError:
        return None
    doc = CutDoc.from_bytes(data, lake.url(key))
    if doc.number != number:
        raise LakeError(lake.url(key), f"it says that it is cut {doc.number}", "restore it from a backup")
    return doc


def opened(lake: SourceLake, doc: CutDoc) -> Cut:
    """Return the cut of a document. A later look-up raises LakeError if the entry is damaged or not kept any more."""
    place = lake.url(lake.paths.cut(doc.number))
    contents: list[Contents] = []

    def whole() -> Contents:
        if not contents:
            contents.append(whole_contents(lake, doc))
        return contents[0]

    def table(name: TableName, entry: Any) -> CutTable:
        f = Fields({}, place).inner(entry, f"tables[{name.key}]")
        return CutTable.from_fields(f, doc.position, doc.incarnation, lambda i: read_table_schema(lake, i))

    def held(name: TableName, entry: Any) -> Held:
        return Held.from_fields(Fields({}, place).inner(entry, f"held[{name.key}]"))

    return Cut(
        number=doc.number,
        kind=doc.kind,
        incarnation=doc.incarnation,
        position=doc.position,
        commit_time=doc.commit_time,
        tables=_Lazy(lambda: whole().tables, table),
        next_segment=doc.next_segment,
        intent_sha256=doc.intent_sha256,
        created_at=doc.created_at,
        held=_Lazy(lambda: whole().held, held),
    )


def whole_contents(lake: SourceLake, doc: CutDoc) -> Contents:
    """Return all entries of a cut, from its document and its base."""
    base = Contents() if doc.base is None else _read_base(lake, *doc.base)
    return base.after(doc.changed)


def document_of(lake: SourceLake, cut: Cut) -> CutDoc:
    """Return the document of a new cut, after putting its schemas and its base, durably."""
    contents = Contents.of(cut)
    before = load_cut_doc(lake, CycleNumber(cut.number - 1)) if cut.number > 1 else None
    base = None if before is None else before.base
    named = 0 if before is None else before.named
    start = Contents() if base is None else _read_base(lake, *base)
    whole_before = start if before is None else start.after(before.changed)
    _put_table_schemas(lake, cut, contents.tables, {e["schema_id"] for e in whole_before.tables.values()})
    changed = contents.since(start)
    if before is not None and named + len(changed) > max(len(contents), NAMED_MIN):
        base, named = _put_base(lake, before.number, whole_before), 0
        changed = contents.since(whole_before)
    return CutDoc(
        number=cut.number,
        kind=cut.kind,
        incarnation=cut.incarnation,
        position=cut.position,
        commit_time=cut.commit_time,
        base=base,
        named=named + len(changed),
        changed=changed,
        next_segment=cut.next_segment,
        intent_sha256=cut.intent_sha256,
        created_at=cut.created_at,
    )


def unneeded_bases(lake: SourceLake, oldest: CycleNumber) -> list[str]:
    """Return the bases that no cut from `oldest` on has; bases grow with the cuts' numbers."""
    doc = load_cut_doc(lake, oldest)
    needed = None if doc is None or doc.base is None else lake.paths.cut_base(doc.base[0])
    return [] if needed is None else [key for key in lake.store.list(lake.paths.cut_bases) if key < needed]


def read_table_schema(lake: SourceLake, schema_id: str) -> SchemaVersion:
    """Return a schema that some table has, or had, in a cut; raises LakeError if there is none, or it is damaged."""
    version = _schemas.get(schema_id)
    if version is None:
        key = lake.paths.table_schema(schema_id)
        try:
            data = lake.store.get(key)
        except NotFoundError:
            raise LakeError(lake.url(key), "it is missing", "restore it from a backup") from None
        version = read_document(data, TABLE_SCHEMA_FORMAT, lake.url(key)).version("version", schema_id)
        _cache_table_schema(version, schema_id)
    return version


def table_schema_bytes(version: SchemaVersion) -> bytes:
    """Return a schema's document."""
    return write_document(TABLE_SCHEMA_FORMAT, version=version.to_json())


def _cache_table_schema(version: SchemaVersion, schema_id: str) -> None:
    if len(_schemas) >= SCHEMAS_KEPT:
        _schemas.clear()
    _schemas[schema_id] = version


def _put_table_schemas(lake: SourceLake, cut: Cut, entries: _Entries, existing: set[str]) -> None:
    new = {e["schema_id"]: cut.tables[t].version for t, e in entries.items() if e["schema_id"] not in existing}

    def put(schema_id: str) -> None:
        with suppress(AlreadyExistsError):
            lake.store.put_if_absent(lake.paths.table_schema(schema_id), table_schema_bytes(new[schema_id]))

    # Each is made durable by itself; a source's first cut has as many schemas as tables.
    with ThreadPoolExecutor(max_workers=_PUTS_AT_ONCE) as pool:
        list(pool.map(put, new))


def _put_base(lake: SourceLake, number: CycleNumber, contents: Contents) -> tuple[CycleNumber, str]:
    data = base_bytes(number, contents)
    with suppress(AlreadyExistsError):
        lake.store.put_if_absent(lake.paths.cut_base(number), data)
    return number, hashlib.sha256(data).hexdigest()


def base_bytes(number: CycleNumber, contents: Contents) -> bytes:
    """Return a base's document."""
    return write_document(BASE_FORMAT, number=int(number), **contents.to_json())


def _read_base(lake: SourceLake, number: CycleNumber, sha256: str) -> Contents:
    contents = _bases.get(sha256)
    if contents is None:
        key = lake.paths.cut_base(number)
        try:
            data = lake.store.get(key)
        except NotFoundError:
            reason = "it is missing, and the cuts that name it can't be read without it"
            raise LakeError(lake.url(key), reason, "open a cut that is kept, or restore it from a backup") from None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise LakeError(lake.url(key), "it is not what cuts were made of", "restore it from a backup")
        contents = _bases[sha256] = Contents.from_fields(read_document(data, BASE_FORMAT, lake.url(key)))
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
