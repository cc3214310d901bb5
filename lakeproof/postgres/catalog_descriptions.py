"""Reads what people should know of the published tables: comments, full types, nullability.

Nothing here decides anything (`catalog_published.py` reads what the meaning of changes depends on), and keeping what was
read belongs to `lakeproof.commands.describe`.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL

from lakeproof.config.model import SourceConfig
from lakeproof.names import TableName
from lakeproof.postgres.catalog_published import publications_of
from lakeproof.postgres.connection import Connection, rows, source_errors
from lakeproof.storage.document import Part


@dataclass(frozen=True, slots=True)
class ColumnDescription(Part):
    """A published column: its whole type as PostgreSQL writes it (`numeric(12,2)`), and its comment."""

    name: str
    type: str
    not_null: bool
    comment: str | None


@dataclass(frozen=True, slots=True)
class TableDescription(Part):
    """A published table's comment, and its columns in order."""

    comment: str | None
    columns: tuple[ColumnDescription, ...]


# A comment may have a gigabyte; nobody reads more than this.
_TEXT_MAX = 4000

# 14 has no `attnames`: all columns are published. A domain over a domain may be NOT NULL at any level; the column's own type
# is as far as this looks.
_DESCRIPTIONS = SQL("""
SELECT DISTINCT ON (c.oid, a.attnum) n.nspname::text AS schema, c.relname::text AS name,
       pg_catalog.left(pg_catalog.obj_description(c.oid, 'pg_class'), {length}) AS comment,
       a.attname::text AS column,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull OR t.typnotnull AS not_null,
       pg_catalog.left(pg_catalog.col_description(c.oid, a.attnum), {length}) AS column_comment
FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 AND COALESCE(pg_catalog.jsonb_exists(pg_catalog.to_jsonb(p) -> 'attnames', a.attname::text), true)
LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE p.pubname = ANY ({names}::name[])
ORDER BY c.oid, a.attnum
""")


def read_descriptions(conn: Connection, source: SourceConfig) -> dict[TableName, TableDescription]:
    """Return the description of every published table, by name in order; raises as `source_errors`."""
    with source_errors(f"publication {source.publication}"):
        lines = rows(conn, _DESCRIPTIONS, {"names": publications_of(conn, source), "length": _TEXT_MAX})
    comments: dict[TableName, str | None] = {}
    columns: dict[TableName, list[ColumnDescription]] = {}
    for line in lines:
        table = TableName(line["schema"], line["name"])
        comments[table] = line["comment"]
        listed = columns.setdefault(table, [])
        if line["column"] is not None:
            listed.append(
                ColumnDescription(line["column"], line["type"], bool(line["not_null"]), line["column_comment"])
            )
    return {table: TableDescription(comments[table], tuple(columns[table])) for table in sorted(columns)}
