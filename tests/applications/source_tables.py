"""The tables of a schema as its catalog has them: columns, keys and foreign keys, for a mutator that knows no schema.

Which of them are published is for `application.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.sql import Identifier

from lakeproof.names import TableName

_OWN = """
n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast') AND n.nspname NOT LIKE 'pg_temp%'
AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
"""
_COLUMNS = f"""
SELECT c.oid, n.nspname, c.relname, c.relkind = 'p', a.attname, a.attnum, a.atttypid, format_type(a.atttypid, a.atttypmod),
    a.attgenerated <> '', a.attidentity, a.atthasdef, a.attnotnull, coalesce(a.attnum = ANY (i.indkey), false),
    coalesce(a.attnum = ANY (p.partattrs), false)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_index i ON i.indexrelid = (SELECT k.indexrelid FROM pg_index k WHERE k.indrelid = c.oid
    AND (k.indisprimary OR k.indisreplident) ORDER BY k.indisreplident DESC LIMIT 1)
LEFT JOIN pg_partitioned_table p ON p.partrelid = c.oid
WHERE {_OWN} ORDER BY n.nspname, c.relname, a.attnum
"""
_FOREIGN = f"""
SELECT c.oid, f.confrelid, f.conkey, (SELECT array_agg(r.attname ORDER BY k.place)
    FROM unnest(f.confkey) WITH ORDINALITY k (attnum, place)
    JOIN pg_attribute r ON r.attrelid = f.confrelid AND r.attnum = k.attnum)
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 AND {_OWN} ORDER BY c.oid, f.conname
"""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column; `key`: it identifies rows, perhaps with others; `partitions`: the table is partitioned by it."""

    name: str
    attnum: int
    type_oid: int
    type_text: str
    generated: bool
    identity: str
    default: bool
    not_null: bool
    key: bool
    partitions: bool

    @property
    def sql(self) -> str:
        """The name, quoted."""
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """The columns of this table, by attribute number, the table that they refer to, and its columns."""

    columns: tuple[int, ...]
    table: str
    referred: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table; the rows of a partitioned one are those of its partitions."""

    name: TableName
    oid: int
    partitioned: bool
    columns: tuple[SourceColumn, ...]
    foreign: tuple[ForeignKey, ...] = ()

    @property
    def sql(self) -> str:
        """The name, qualified and quoted."""
        return Identifier(self.name.schema, self.name.name).as_string(None)

    @property
    def key(self) -> tuple[SourceColumn, ...]:
        """The columns that identify a row."""
        return tuple(c for c in self.columns if c.key)

    @property
    def foreign_columns(self) -> frozenset[int]:
        """The attribute numbers of the columns that refer to a table."""
        return frozenset(number for key in self.foreign for number in key.columns)

    @property
    def plain(self) -> tuple[SourceColumn, ...]:
        """The columns that may be written and altered alone: no key's, no foreign key's, not generated."""
        bound = self.foreign_columns
        return tuple(
            c for c in self.columns if not (c.key or c.partitions or c.generated or c.identity or c.attnum in bound)
        )


def quoted(*names: str) -> str:
    """Return a name in quotes."""
    return Identifier(*names).as_string(None)


def read_tables(connection: psycopg.Connection[Any], left_out: Iterable[TableName] = ()) -> list[SourceTable]:
    """Return the tables by name, partitioned ones in place of their partitions, without those that are `left_out`."""
    named: dict[int, tuple[TableName, bool]] = {}
    columns: dict[int, list[SourceColumn]] = defaultdict(list)
    for oid, schema, name, partitioned, *rest in connection.execute(_COLUMNS.encode()).fetchall():
        named[oid] = (TableName(schema, name), partitioned)
        columns[oid].append(SourceColumn(*rest))
    foreign: dict[int, list[ForeignKey]] = defaultdict(list)
    for oid, referred, own, names in connection.execute(_FOREIGN.encode()).fetchall():
        if referred in named:
            table = quoted(named[referred][0].schema, named[referred][0].name)
            foreign[oid].append(ForeignKey(tuple(own), table, tuple(names)))
    gone = frozenset(left_out)
    return [
        SourceTable(name, oid, partitioned, tuple(columns[oid]), tuple(foreign[oid]))
        for oid, (name, partitioned) in named.items()
        if name not in gone
    ]
