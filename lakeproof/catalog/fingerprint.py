"""The fingerprint of a source's catalog: everything that the meaning of its tables' changes depends on, at one reading.

Reading it does not belong here (`lakeproof.postgres.catalog.fingerprint`), nor does the meaning of a difference
(`differences.py`).

A table is a handful of JSON texts made by the server: 10,000 tables of 100 columns are 10,000 small objects, compared as
texts, and parsed only if they differ. The file is written and read by hand, unlike the documents of a lake
(`lakeproof.storage.document`): it has 10,000 lists without field names, in the order that digests are made of.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from lakeproof.names import Oid, TableName
from lakeproof.schema import Identity, identity_fits

FORMAT = "lakeproof.catalog/1"


class ColumnFacts(NamedTuple):
    """A column. `epoch` changes with every ALTER of it; `missing` is the value of rows older than the column, as text.

    `default` is the OID of its default's line, which `ALTER … TYPE` and `SET DEFAULT` write anew.
    """

    attnum: int
    name: str
    type_oid: int
    typmod: int
    generated: str
    epoch: str
    missing: str | None
    default: int | None


class LeafFacts(NamedTuple):
    """A partition with rows.

    `file` is its relfilenode, `epoch` the xid that wrote its line of pg_class. `attached` are the partitions on the way
    up to the table that came by ATTACH; `links` changes if one of these is detached and attached again. `key` has the
    names of its identity index's columns.
    """

    oid: int
    file: int
    identity: str
    epoch: str
    attached: tuple[int, ...]
    links: tuple[str, ...]
    key: tuple[str, ...]


class EntryFacts(NamedTuple):
    """A table in a publication: `entry` is the catalog's line for it, `filter` a digest, `listed` attribute numbers.

    `links` lead a partition that is published under its own name up to the table of that line, as those of `LeafFacts`;
    empty if the line is about the table itself.
    """

    publication: int
    entry: str
    filter: str | None
    listed: tuple[int, ...] | None
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A published table; the texts are JSON, read by the properties. `last` is the highest attribute number ever given."""

    oid: Oid
    table: TableName
    kind: str
    identity: str
    key: str
    file: int
    columns_text: str
    leaves_text: str
    entries_text: str
    last: int

    @property
    def columns(self) -> tuple[ColumnFacts, ...]:
        """The columns in the order of their numbers."""
        return tuple(ColumnFacts(*c) for c in json.loads(self.columns_text))

    @property
    def leaves(self) -> tuple[LeafFacts, ...]:
        """The leaves of a partitioned table; empty for any other."""
        lines = json.loads(self.leaves_text)
        return tuple(
            LeafFacts(o, file, i, e, tuple(attached), tuple(links), tuple(key))
            for o, file, i, e, attached, links, key in lines
        )

    @property
    def key_numbers(self) -> tuple[int, ...]:
        """The attribute numbers of its identity index's columns, in the index's order; under FULL of its primary key's."""
        return tuple(int(number) for count, numbers in json.loads(self.key) for number in numbers.split()[:count])

    @property
    def identity_columns(self) -> frozenset[str]:
        """The names of its identity index's columns; empty under FULL and NOTHING."""
        names = {c.attnum: c.name for c in self.columns} if self.identity in {"d", "i"} else {}
        return frozenset(names[n] for n in self.key_numbers if n in names)

    @property
    def misfits(self) -> dict[int, LeafFacts]:
        """The partitions, by OID, whose old rows the table's identity does not identify."""
        leaves = self.leaves
        own, columns = Identity(self.identity), self.identity_columns if leaves else frozenset[str]()
        return {p.oid: p for p in leaves if not identity_fits(own, columns, Identity(p.identity), p.key)}

    @property
    def entries(self) -> tuple[EntryFacts, ...]:
        """One entry for each line of a publication that has the table."""
        return _entries(self.entries_text)

    @property
    def in_force(self) -> dict[int, EntryFacts]:
        """The entry by whose filter and columns each publication goes: its schema's, else its own, else a root's."""
        ranked = sorted(self.entries, key=lambda entry: (not entry.links, entry.entry[0] == "s"))
        return {entry.publication: entry for entry in ranked}


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """An enum's labels with their epochs, a composite's columns, also dropped ones, or what others are made of (`of`: OIDs).

    `parts` is JSON. An epoch changes with every ALTER of its label.

    `line` decides how its values are kept, as `lakeproof.postgres.catalog.fingerprint` writes it: the type may be dropped
    before the stream brings them.
    """

    kind: str
    parts: str
    of: tuple[int, ...]
    line: str

    @property
    def below(self) -> tuple[int, int]:
        """The type and the modifier below a domain, whose values its own are."""
        type_oid, typmod = json.loads(self.line)[4:6]
        return type_oid, typmod


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """A publication; `epoch` changes with every ALTER of it that is not about a table, `owner` is an OID."""

    name: str
    owner: int
    operations: str
    via_root: bool
    all_tables: bool
    generated: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A reading: tables, types that are not built in, and publications, each by OID."""

    tables: Mapping[Oid, TableFacts]
    types: Mapping[int, TypeFacts]
    publications: Mapping[int, PublicationFacts]

    @property
    def publication_names(self) -> set[str]:
        return {publication.name for publication in self.publications.values()}

    def sent(self, table: TableFacts) -> tuple[ColumnFacts, ...]:
        """Return the columns of a table that the stream has."""
        sent_numbers: set[int] = set()
        columns = table.columns
        for entry in table.in_force.values():
            generated = self.publications[entry.publication].generated == "s"
            sent_numbers |= (
                set(entry.listed)
                if entry.listed is not None
                else {c.attnum for c in columns if not c.generated or (generated and c.generated == "s")}
            )
        return tuple(c for c in columns if c.attnum in sent_numbers)

    def below_domain(self, column: ColumnFacts) -> ColumnFacts:
        """Return a column with the type below its domain; any other column as it is."""
        facts = self.types.get(column.type_oid)
        if facts is None or facts.kind != "d":
            return column
        type_oid, typmod = facts.below
        return column._replace(type_oid=type_oid, typmod=typmod)

    def operations(self, table: TableFacts) -> str:
        """Return the letters of its published operations: i, u, d and t."""
        filters = self.filters(table)
        return "".join(operation for operation in "iudt" if operation in filters)

    def filters(self, table: TableFacts) -> dict[str, set[str | None]]:
        """Return the digests of the row filters of each operation: a row that any of them has is sent; None has all rows."""
        filters: dict[str, set[str | None]] = {}
        for publication, entry in table.in_force.items():
            for operation in self.publications[publication].operations:
                filters.setdefault(operation, set()).add(entry.filter)
        return {operation: {None} if None in digests else digests for operation, digests in filters.items()}

    def types_of(self, oids: Iterable[int]) -> dict[int, TypeFacts]:
        """Return these types and all types that they are made of, without the built-in ones."""
        types: dict[int, TypeFacts] = {}
        waiting = list(oids)
        while waiting:
            oid = waiting.pop()
            if oid in self.types and oid not in types:
                types[oid] = self.types[oid]
                waiting += self.types[oid].of
        return types

    def digest(self, oid: Oid) -> str:
        """Return 16 hexadecimal digits over everything that the fingerprint has about one table."""
        table = self.tables[oid]
        types = self.types_of(c.type_oid for c in self.sent(table))
        about = {e.publication for e in table.entries}
        part = Fingerprint({oid: table}, types, {p: self.publications[p] for p in about})
        return hashlib.sha256(part.to_bytes()).hexdigest()[:16]

    def files(self, oid: Oid) -> dict[int, int]:
        """Return the files (relfilenodes) that have one table's rows, by the OID of the table or partition."""
        table = self.tables[oid]
        return {leaf.oid: leaf.file for leaf in table.leaves} if table.kind == "p" else {int(oid): table.file}

    def to_bytes(self) -> bytes:
        """Return canonical JSON; `parse_fingerprint` reads it."""
        document = {
            "format": FORMAT,
            "publications": [
                [oid, p.name, p.owner, p.operations, p.via_root, p.all_tables, p.generated, p.epoch]
                for oid, p in sorted(self.publications.items())
            ],
            "types": [[oid, t.kind, t.parts, list(t.of), t.line] for oid, t in sorted(self.types.items())],
            "tables": [
                [
                    int(t.oid), t.table.schema, t.table.name, t.kind, t.identity, t.key, t.file,
                    t.columns_text, t.leaves_text, t.entries_text, t.last,
                ]
                for _, t in sorted(self.tables.items())
            ],
        }  # fmt: skip
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def parse_fingerprint(data: bytes) -> Fingerprint:
    """Parse `to_bytes`' form; raise ValueError for any other bytes."""
    try:
        document = json.loads(data)
        if document.pop("format") != FORMAT:
            raise ValueError("it is of another format")
        fingerprint = Fingerprint(
            {
                Oid(oid): TableFacts(Oid(oid), TableName(schema, name), *rest)
                for oid, schema, name, *rest in document["tables"]
            },
            {oid: TypeFacts(kind, parts, tuple(of), line) for oid, kind, parts, of, line in document["types"]},
            {oid: PublicationFacts(*rest) for oid, *rest in document["publications"]},
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not a fingerprint ({type(error).__name__})") from None
    if fingerprint.to_bytes() != data:
        raise ValueError("it is not spelled as its contents call for")
    return fingerprint


@lru_cache(maxsize=1024)
def _entries(text: str) -> tuple[EntryFacts, ...]:
    lines = json.loads(text)
    return tuple(
        EntryFacts(p, e, f, None if listed is None else tuple(listed), tuple(links)) for p, e, f, listed, links in lines
    )
