"""Checks for tables that can end a slot's stream for ever: the server reads them while it decodes, like its own catalog.

A table WITH (user_catalog_table = true) is for an output plugin that looks into it. Where it is dropped before a slot has
read the changes of its rows, the server fails at them, whether a publication has the table or not
(`lakeproof.landing.stuck`).
"""

from __future__ import annotations

from collections.abc import Iterator

from psycopg.sql import SQL

from lakeproof.config.table_names import table_text
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Finding, warning
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

_TABLES = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence = 'p' AND EXISTS (
  SELECT FROM unnest(c.reloptions) o WHERE split_part(o, '=', 1) = 'user_catalog_table'
    AND lower(split_part(o, '=', 2)) IN ('true', 'on', 'yes', '1', 't', 'y')
)
ORDER BY 1, 2
""")
_SHOWN = 10


def catalog_table_findings(conn: Connection) -> Iterator[Finding]:
    """Yield one warning that names the database's user catalog tables, if it has any."""
    with source_errors("the database's user catalog tables"):
        names = [table_text(TableName(row["schema"], row["name"])) for row in rows(conn, _TABLES)]
    if not names:
        return
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    yield warning(
        "server",
        f"{shown}: with user_catalog_table = true; if such a table is dropped before the slot has read the changes of its"
        " rows, published or not, the server can't send the stream any further",
        f"ALTER TABLE {names[0]} RESET (user_catalog_table), unless an output plugin needs it; before a DROP TABLE let the "
        "drain catch up",
    )
