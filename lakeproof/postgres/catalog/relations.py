"""Turns a Relation message into a schema version with attribute numbers and types, though the catalog may have changed.

The readings around a message are chosen by `lakeproof.drain.catalog.readings`; `lakeproof.catalog.attribute_numbers` derives
the numbers.

The stream names columns and types as they were. Numbers come from two readings, one from before the message and one from
after it; the present catalog is always one from after it. A dropped type is taken from a reading that has it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakeproof.catalog.attribute_numbers import UNKNOWN, Columns, NamedColumn, NumberedColumn, numbers_of
from lakeproof.catalog.fingerprint import ColumnFacts, Fingerprint, TableFacts
from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.names import Oid, TableName
from lakeproof.pgoutput.messages import Relation
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.fingerprint import type_of_line
from lakeproof.postgres.catalog.published import INDEX_FLAGS, by_oid, configured, identifying_columns, read_types
from lakeproof.postgres.connections.connect import Connection, Row, one_snapshot, rows, source_errors
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.values.catalog_kinds import CatalogType, make_column, unknown_column


@dataclass(frozen=True, slots=True)
class ReadingsAround:
    """The context of a message: a reading from before it, one from after it, and the schema version before it.

    `previous` is the version of the last message about the table on the same connection; `previous_is_newer` than `before`.
    """

    before: Fingerprint | None = None
    after: Fingerprint | None = None
    previous: SchemaVersion | None = None
    previous_is_newer: bool = True


@dataclass(frozen=True, slots=True)
class TableNow:
    """The catalog's present lines of one table, its identity's index by numbers, and types."""

    lines: Sequence[Row]
    index: tuple[int, ...]
    types: Mapping[int, CatalogType]


def read_now(conn: Connection, relations: Collection[Relation]) -> dict[Oid, TableNow]:
    """Read the catalog for messages about different tables, all in the same queries. Raises as `source_errors`."""
    oids = sorted({int(relation.oid) for relation in relations})
    type_oids = {int(column.type_oid) for relation in relations for column in relation.columns}
    with source_errors("the source's catalog"), one_snapshot(conn):
        indexes = rows(conn, queries.IDENTITY_NUMBERS, {"oids": oids})
        types = read_types(conn, type_oids)
        lines = by_oid(rows(conn, queries.LINES, {"oids": oids}), "oid")
    index: dict[tuple[int, Identity], tuple[int, ...]] = {}
    for row in indexes:
        for identity, flag in INDEX_FLAGS.items():
            if row[flag]:
                index.setdefault((int(row["oid"]), identity), tuple(row["numbers"]))
    return {
        relation.oid: TableNow(lines[int(relation.oid)], index.get((int(relation.oid), relation.identity), ()), types)
        for relation in relations
    }


def version_of(
    source: SourceConfig,
    relation: Relation,
    now: TableNow,
    around: ReadingsAround | None = None,
    *,
    strict: bool = False,
) -> SchemaVersion:
    """Return the schema version of a Relation message; `now` was read after it had arrived.

    A column with an unknown number gets attnum 0 and kind exact_text; a column that came and went between two readings has
    its number below zero. Configuration that does not fit a column, or a key that does not exist, is ignored: one table must
    not stop the whole stream, and `check` reports it. With `strict` it raises ConfigError.
    """
    around = around or ReadingsAround()
    table = TableName(relation.namespace or "pg_catalog", relation.name)
    sent = [NamedColumn(c.name, int(c.type_oid)) for c in relation.columns]
    before, after = _before(around, relation.oid), _after(around, relation, now)
    numbers = numbers_of(sent, before, after)
    config = source.table_config(table)
    indexed = relation.identity in INDEX_FLAGS
    columns: list[Column] = []
    for column, number in zip(relation.columns, numbers, strict=True):
        type_ = now.types.get(int(column.type_oid)) or _type_then(around, int(column.type_oid))
        flagged = column.identity and indexed
        if number == UNKNOWN or type_ is None:
            lost = unknown_column(column.name, column.type_oid, column.typmod, identity=flagged)
            columns.append(replace(lost, attnum=number))
            continue
        with configured(table):
            build = partial(make_column, column.name, type_, column.typmod, attnum=number, identity=flagged)
            columns.append(_configured(build, config, strict=strict))
    config = config if strict else _without_missing_key(config, columns)
    index = _index(relation, columns, [now.index, *_indexes_then(around, relation)])
    key = identifying_columns(relation.identity, index, columns, config, table)
    return SchemaVersion(table, relation.oid, relation.identity, tuple(columns), key)


def versions_in(
    conn: Connection, source: SourceConfig, reading: Fingerprint, oids: Collection[Oid]
) -> dict[Oid, SchemaVersion]:
    """Return the versions of tables in a reading; the server is asked for built-in types. Raises as `source_errors`.

    Configuration that does not fit is ignored, as in `version_of`.
    """
    types = {c.type_oid for oid in oids for c in reading.sent(reading.tables[oid])} - reading.types.keys()
    with source_errors("the source's catalog"):
        builtin = read_types(conn, types)
    return {oid: _version_in(source, reading, oid, builtin) for oid in oids}


def _version_in(
    source: SourceConfig, reading: Fingerprint, oid: Oid, builtin: Mapping[int, CatalogType]
) -> SchemaVersion:
    table = reading.tables[oid]
    config, identity = source.table_config(table.table), Identity(table.identity)
    numbers = table.key_numbers if identity in INDEX_FLAGS else ()
    columns: list[Column] = []
    for c in reading.sent(table):
        facts = reading.types.get(c.type_oid)
        type_ = builtin[c.type_oid] if facts is None else type_of_line(facts.line)
        build = partial(make_column, c.name, type_, c.typmod, attnum=c.attnum, identity=c.attnum in numbers)
        columns.append(_configured(build, config))
    config = _without_missing_key(config, columns)
    names = {column.attnum: column.name for column in columns}
    key = identifying_columns(identity, [names.get(number, "") for number in numbers], columns, config, table.table)
    return SchemaVersion(table.table, oid, identity, tuple(columns), key)


def _configured(build: Callable[..., Column], config: TableConfig, *, strict: bool = False) -> Column:
    """Make a column as configured; if the configuration does not fit, raise ValueError (`strict`) or ignore it."""
    try:
        return build(table=config)
    except ValueError:
        if strict:
            raise
        return build()


def _without_missing_key(config: TableConfig, columns: Sequence[Column]) -> TableConfig:
    exists = {c.name for c in columns}.issuperset(config.key)
    return config if exists else config.model_copy(update={"key": ()})


def _before(around: ReadingsAround, oid: Oid) -> Columns | None:
    """Return the columns at some point before: those of this connection's last message, or of a reading."""
    read = None if around.before is None else _columns(around.before, around.before.tables.get(oid))
    previous = () if around.previous is None else around.previous.columns
    if (
        not previous
        or not (around.previous_is_newer or read is None)
        or min(column.attnum for column in previous) <= UNKNOWN
    ):
        # It need not be known which column came and went.
        return read
    numbered = tuple(NumberedColumn(c.attnum, c.name, int(c.type_oid)) for c in previous)
    return Columns(numbered, max([0 if read is None else read.last, *(column.attnum for column in numbered)]))


def _after(around: ReadingsAround, relation: Relation, now: TableNow) -> Columns | None:
    """Return the columns at some point after: a reading's, or the present ones; None if the table is gone."""
    columns = None if around.after is None else _columns(around.after, around.after.tables.get(relation.oid))
    if columns is None and now.lines:
        columns = _columns_now(around, relation, now)
    if columns is None:
        return None
    existing = columns.unsent.union(columns.numbers)
    dropped = [int(line["attnum"]) for line in now.lines if line["dropped"]]
    named = {int(line["attnum"]): line["name"] for line in now.lines if line["as_added"]}
    return replace(
        columns,
        dropped=tuple(n for n in dropped if n <= columns.last and n not in existing),
        as_added=frozenset(c.attnum for c in columns.columns if named.get(c.attnum) == c.name),
    )


def _columns(reading: Fingerprint, table: TableFacts | None) -> Columns | None:
    if table is None:
        return None
    sent = reading.sent(table)
    numbered = tuple(NumberedColumn(c.attnum, c.name, c.type_oid) for c in sent)
    return Columns(numbered, table.last, frozenset(c.attnum for c in table.columns).difference(c.attnum for c in sent))


def _columns_now(around: ReadingsAround, relation: Relation, now: TableNow) -> Columns:
    """Return the present columns that the publications send, judged by the readings."""
    lines = [
        ColumnFacts(int(r["attnum"]), r["name"], int(r["type_oid"]), int(r["typmod"]), r["generated"], "", None, None)
        for r in sorted(now.lines, key=lambda r: int(r["attnum"]))
        if not r["dropped"]
    ]
    last = max(int(r["attnum"]) for r in now.lines)
    for reading in (around.after, around.before):
        table = None if reading is None else reading.tables.get(relation.oid)
        if reading is not None and table is not None:
            columns = _columns(reading, replace(table, columns_text=json.dumps(lines), last=last))
            if columns is not None:
                return columns
    names = {column.name for column in relation.columns}
    numbered = tuple(NumberedColumn(c.attnum, c.name, c.type_oid) for c in lines if c.name in names)
    return Columns(numbered, last, frozenset(c.attnum for c in lines if c.name not in names))


def _type_then(around: ReadingsAround, oid: int) -> CatalogType | None:
    for reading in (around.before, around.after):
        if reading is not None and oid in reading.types:
            return type_of_line(reading.types[oid].line)
    return None


def _indexes_then(around: ReadingsAround, relation: Relation) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of the identity index's columns, in its order, in each reading."""
    for reading in (around.after, around.before):
        table = None if reading is None else reading.tables.get(relation.oid)
        if table is not None and table.identity == relation.identity.value:
            yield table.key_numbers


def _index(relation: Relation, columns: Sequence[Column], indexes: Sequence[Sequence[int]]) -> list[str]:
    """Return the names of the identity index's columns, in its order; in the table's order if no index fits the flags.

    A column that is not sent has the empty name.
    """
    flagged = {column.attnum for column in columns if column.identity}
    names = {column.attnum: column.name for column in columns}
    fitting = [index for index in indexes if flagged and flagged <= set(index)]
    fitting.sort(key=lambda index: set(index) != flagged)
    if fitting:
        return [names.get(number, "") for number in fitting[0]]
    return [column.name for column in relation.columns if column.identity]
