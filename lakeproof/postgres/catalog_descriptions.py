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

# The view finds a table's columns anew for each row that asks for them, so it is asked once for each table. 14 has no
# `attnames`: all columns are published. A domain over a domain may be NOT NULL at any level; the column's own type is as
# far as this looks.
_DESCRIPTIONS = """
WITH published AS MATERIALIZED (
  SELECT DISTINCT c.oid, n.nspname, c.relname, a.attname
  FROM pg_catalog.pg_publication_tables p
  JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
  LEFT JOIN LATERAL ({columns}) AS a (attname) ON true
  WHERE p.pubname = ANY ({{names}}::name[])
)
SELECT p.nspname::text AS schema, p.relname::text AS name,
       pg_catalog.left(pg_catalog.obj_description(p.oid, 'pg_class'), {{length}}) AS comment,
       a.attname::text AS column,
       pg_catalog.format_type(a.atttypid, a.atttypmod) AS type,
       a.attnotnull OR t.typnotnull AS not_null,
       pg_catalog.left(pg_catalog.col_description(p.oid, a.attnum), {{length}}) AS column_comment
FROM published p
LEFT JOIN pg_catalog.pg_attribute a
  ON a.attrelid = p.oid AND a.attname = p.attname AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
ORDER BY p.oid, a.attnum
"""
_DESCRIPTIONS_15 = SQL(_DESCRIPTIONS.format(columns="SELECT pg_catalog.unnest(p.attnames)"))
_DESCRIPTIONS_14 = SQL(
    _DESCRIPTIONS.format(
        columns="""SELECT b.attname FROM pg_catalog.pg_attribute b
                     WHERE b.attrelid = c.oid AND b.attnum > 0 AND NOT b.attisdropped"""
    )
)


def read_descriptions(conn: Connection, source: SourceConfig) -> dict[TableName, TableDescription]:
    """Return the description of every published table, by name in order; raises as `source_errors`."""
    with source_errors(f"publication {source.publication}"):
        query = _DESCRIPTIONS_15 if conn.info.server_version >= 150000 else _DESCRIPTIONS_14
        lines = rows(conn, query, {"names": publications_of(conn, source), "length": _TEXT_MAX})
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
