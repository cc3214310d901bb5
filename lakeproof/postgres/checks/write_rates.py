"""The changes of published tables since the server's statistics began: how much each of them writes.

`lakeproof.postgres.checks.spread` judges them.
"""

from __future__ import annotations

from collections.abc import Collection

from psycopg.sql import SQL

from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.connections.connect import Connection, rows, source_errors

_CHANGES = SQL("""
SELECT relid::bigint AS oid, (n_tup_ins + n_tup_upd + n_tup_del)::bigint AS changes
FROM pg_catalog.pg_stat_user_tables WHERE relid = ANY ({oids}::oid[])
""")


def changes_of(conn: Connection, tables: Collection[PublishedTable]) -> dict[TableName, int]:
    """Return the rows that were inserted, updated and deleted in each table; those of a partitioned one are its leaves'."""
    oids = sorted({int(leaf.oid) for table in tables for leaf in table.leaves})
    with source_errors("the statistics of the published tables"):
        counted = {int(row["oid"]): int(row["changes"]) for row in rows(conn, _CHANGES, {"oids": oids})}
    return {table.table: sum(counted.get(int(leaf.oid), 0) for leaf in table.leaves) for table in tables}
