"""What a Relation message stands for: its columns with their numbers and types, though the catalog may have gone on since.

Which readings lie around the message belongs to `lakeproof.drain.catalog_readings`, how they give the numbers to
`lakeproof.catalog.attribute_numbers`.

The stream names columns and types as they were. Numbers come from two readings, one from before the message and one from
after it; the catalog as it is now is always one from after it. A type that is gone is taken from a reading that had it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lakeproof.catalog.attribute_numbers import UNKNOWN, Columns, NamedColumn, NumberedColumn, numbers_of
from lakeproof.catalog.fingerprint import ColumnFacts, Fingerprint, TableFacts
from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.names import Oid, TableName
from lakeproof.pgoutput.messages import Relation
from lakeproof.postgres import catalog_queries as queries
from lakeproof.postgres.catalog_published import configured, key_of, read_types
from lakeproof.postgres.catalog_type_lines import type_of_line
from lakeproof.postgres.connection import Connection, one_snapshot, rows, source_errors
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.values.types import CatalogType, make_column, unknown_column


@dataclass(frozen=True, slots=True)
class Around:
    """What is known from around a message: a reading from before it, one from after it, and the version before it.

    `known` is what the last message about the table, on the same connection, stood for; `known_is_newer`: than `before`.
    """

    before: Fingerprint | None = None
    after: Fingerprint | None = None
    known: SchemaVersion | None = None
    known_is_newer: bool = True


@dataclass(frozen=True, slots=True)
class _Now:
    """The catalog's lines of one table as they are now, its identity's index by numbers, and types."""

    lines: Sequence[Mapping[str, Any]]
    index: tuple[int, ...]
    types: Mapping[int, CatalogType]


def version_of(
    conn: Connection, source: SourceConfig, relation: Relation, around: Around | None = None, *, strict: bool = False
) -> SchemaVersion:
    """The schema version that a Relation message stands for.

    A column whose number can't be told gets attnum 0 and kind exact_text; one that came and went between two readings has
    its number below zero. What the configuration says of a column that it does not fit, or of a key that is not there, does
    not count: one table must not stop the stream of all, and `check` says so. `strict`: it raises ConfigError. Raises as
    `source_errors`.
    """
    around = around or Around()
    table = TableName(relation.namespace or "pg_catalog", relation.name)
    with source_errors(f"table {table}"), one_snapshot(conn):
        now = _read_now(conn, relation)
    sent = [NamedColumn(c.name, int(c.type_oid)) for c in relation.columns]
    before, after = _before(around, relation.oid), _after(around, relation, now)
    numbers = numbers_of(sent, before, after)
    config = source.table_config(table)
    indexed = relation.identity in (Identity.DEFAULT, Identity.INDEX)
    columns: list[Column] = []
    for one, number in zip(relation.columns, numbers, strict=True):
        type_ = now.types.get(int(one.type_oid)) or _type_then(around, int(one.type_oid))
        flagged = one.identity and indexed
        if number == UNKNOWN or type_ is None:
            lost = unknown_column(one.name, one.type_oid, one.typmod, identity=flagged)
            columns.append(replace(lost, attnum=number))
            continue
        with configured(table):
            columns.append(_column(one.name, type_, one.typmod, number, config, identity=flagged, strict=strict))
    config = config if strict else _with_a_key_that_is_there(config, columns)
    index = _index(relation, columns, [now.index, *_indexes_then(around, relation)])
    key = key_of(relation.identity, index, columns, config, table)
    return SchemaVersion(table, relation.oid, relation.identity, tuple(columns), key)


def version_in(
    source: SourceConfig, reading: Fingerprint, oid: Oid, builtin: Mapping[int, CatalogType]
) -> SchemaVersion:
    """The version of a table in a reading; `builtin` are the types of its columns that are not the reading's.

    What the configuration says and does not fit does not count, as in `version_of`.
    """
    table = reading.tables[oid]
    config, identity = source.table_config(table.table), Identity(table.identity)
    numbers: Sequence[int] = ()
    if identity in (Identity.DEFAULT, Identity.INDEX):
        numbers = next(_index_in(table), ())
    columns: list[Column] = []
    for c in reading.sent(table):
        known = reading.types.get(c.type_oid)
        type_ = builtin[c.type_oid] if known is None else type_of_line(known.line)
        columns.append(_column(c.name, type_, c.typmod, c.attnum, config, identity=c.attnum in numbers))
    config = _with_a_key_that_is_there(config, columns)
    names = {column.attnum: column.name for column in columns}
    key = key_of(identity, [names.get(number, "") for number in numbers], columns, config, table.table)
    return SchemaVersion(table.table, oid, identity, tuple(columns), key)


def _column(
    name: str,
    type_: CatalogType,
    typmod: int,
    attnum: int,
    config: TableConfig,
    *,
    identity: bool,
    strict: bool = False,
) -> Column:
    """As configured; raises ValueError, or passes that over, when the configuration does not fit."""
    make = partial(make_column, name, type_, typmod, attnum=attnum, identity=identity)
    try:
        return make(table=config)
    except ValueError:
        if strict:
            raise
        return make()


def _with_a_key_that_is_there(config: TableConfig, columns: Sequence[Column]) -> TableConfig:
    there = {c.name for c in columns}.issuperset(config.key)
    return config if there else config.model_copy(update={"key": ()})


def _read_now(conn: Connection, relation: Relation) -> _Now:
    oid = int(relation.oid)
    flag = {Identity.DEFAULT: "indisprimary", Identity.INDEX: "indisreplident"}.get(relation.identity)
    indexes = rows(conn, queries.IDENTITY_NUMBERS, {"oid": oid})
    index = [tuple(row["numbers"]) for row in indexes if flag is not None and row[flag]]
    types = read_types(conn, {int(column.type_oid) for column in relation.columns})
    return _Now(rows(conn, queries.LINES, {"oid": oid}), index[0] if index else (), types)


def _before(around: Around, oid: Oid) -> Columns | None:
    """The columns at some point before: what this connection had last, or a reading."""
    read = None if around.before is None else _columns(around.before, around.before.tables.get(oid))
    known = () if around.known is None else around.known.columns
    if not known or not (around.known_is_newer or read is None) or min(column.attnum for column in known) <= UNKNOWN:
        # Which one a column was that came and went need not be known.
        return read
    given = tuple(NumberedColumn(c.attnum, c.name, int(c.type_oid)) for c in known)
    return Columns(given, max([0 if read is None else read.last, *(column.attnum for column in given)]))


def _after(around: Around, relation: Relation, now: _Now) -> Columns | None:
    """The columns at some point after: a reading's, or those of now; None where the table is gone."""
    found = None if around.after is None else _columns(around.after, around.after.tables.get(relation.oid))
    if found is None and now.lines:
        found = _columns_now(around, relation, now)
    if found is None:
        return None
    there = found.unsent.union(found.numbers)
    dropped = [int(line["attnum"]) for line in now.lines if line["dropped"]]
    named = {int(line["attnum"]): line["name"] for line in now.lines if line["as_added"]}
    return replace(
        found,
        dropped=tuple(n for n in dropped if n <= found.last and n not in there),
        as_added=frozenset(c.attnum for c in found.columns if named.get(c.attnum) == c.name),
    )


def _columns(reading: Fingerprint, table: TableFacts | None) -> Columns | None:
    if table is None:
        return None
    sent = reading.sent(table)
    given = tuple(NumberedColumn(c.attnum, c.name, c.type_oid) for c in sent)
    return Columns(given, table.last, frozenset(c.attnum for c in table.columns).difference(c.attnum for c in sent))


def _columns_now(around: Around, relation: Relation, now: _Now) -> Columns:
    """Those of now, as far as the publications send them, by what the readings have of these."""
    lines = [
        ColumnFacts(int(r["attnum"]), r["name"], int(r["type_oid"]), int(r["typmod"]), r["generated"], "", None)
        for r in sorted(now.lines, key=lambda r: int(r["attnum"]))
        if not r["dropped"]
    ]
    last = max(int(r["attnum"]) for r in now.lines)
    for reading in (around.after, around.before):
        table = None if reading is None else reading.tables.get(relation.oid)
        if reading is not None and table is not None:
            found = _columns(reading, replace(table, columns_text=json.dumps(lines), last=last))
            if found is not None:
                return found
    names = {column.name for column in relation.columns}
    given = tuple(NumberedColumn(c.attnum, c.name, c.type_oid) for c in lines if c.name in names)
    return Columns(given, last, frozenset(c.attnum for c in lines if c.name not in names))


def _type_then(around: Around, oid: int) -> CatalogType | None:
    for reading in (around.before, around.after):
        if reading is not None and oid in reading.types:
            return type_of_line(reading.types[oid].line)
    return None


def _indexes_then(around: Around, relation: Relation) -> Iterator[tuple[int, ...]]:
    """The numbers of the identity index's columns, in its order, in each reading."""
    for reading in (around.after, around.before):
        table = None if reading is None else reading.tables.get(relation.oid)
        if table is not None and table.identity == relation.identity.value:
            yield from _index_in(table)


def _index_in(table: TableFacts) -> Iterator[tuple[int, ...]]:
    for count, numbers in json.loads(table.key):
        yield tuple(int(n) for n in numbers.split()[:count])


def _index(relation: Relation, columns: Sequence[Column], indexes: Sequence[Sequence[int]]) -> list[str]:
    """The identity index's columns by name, in its order; in the table's order where no index has those that are flagged.

    One that is not sent has no name.
    """
    flagged = {column.attnum for column in columns if column.identity}
    names = {column.attnum: column.name for column in columns}
    fitting = [index for index in indexes if flagged and flagged <= set(index)]
    fitting.sort(key=lambda index: set(index) != flagged)
    if fitting:
        return [names.get(number, "") for number in fitting[0]]
    return [column.name for column in relation.columns if column.identity]
