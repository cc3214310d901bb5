"""The columns that a table's publication does not send: generated columns, and columns outside its column list.

The columns of the stream are in `published.py`, the findings about unpublished columns in `checks/tables.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from psycopg.sql import SQL

from lakeproof.names import Oid
from lakeproof.postgres.connections.connect import Connection, Row, rows, source_errors
from lakeproof.schema import LeftOutColumn

# From this version on a publication can send stored generated columns; virtual ones it never can.
SENDS_GENERATED = 180000

# Not read with a table's schema: pg_get_expr waits for an exclusive lock on the table, and answers for the present.
_EXPRESSIONS = SQL("""
SELECT d.adrelid::bigint AS oid, a.attname::text AS name, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
FROM pg_catalog.pg_attrdef d
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = ANY ({oids}::oid[]) AND a.attgenerated <> '' AND NOT a.attisdropped
""")


def left_out(columns: Iterable[Row], sent: Collection[str]) -> tuple[LeftOutColumn, ...]:
    """Return the catalog's columns of a table that are not `sent`."""
    kinds = {"s": "stored", "v": "virtual"}
    return tuple(
        LeftOutColumn(str(row["attname"]), kinds.get(row["attgenerated"], ""))
        for row in columns
        if row["attname"] not in sent
    )


def generated_expressions(conn: Connection, oids: Collection[Oid]) -> dict[tuple[Oid, str], str]:
    """Return each generated column's expression, by the table's OID and the column's name. Raises as `source_errors`."""
    if not oids:
        return {}
    with source_errors("generated columns"):
        expressions = rows(conn, _EXPRESSIONS, {"oids": sorted(oids)})
    return {(Oid(int(row["oid"])), str(row["name"])): str(row["expression"]) for row in expressions}
