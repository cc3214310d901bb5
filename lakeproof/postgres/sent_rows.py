"""The rows of a published table that its copies and the stream have, as an item of FROM: what else reads the source reads.

A table's own rows are those without its inheritance children's; a partitioned root's are those of its partitions. A
partition that sends nothing (`PublishedTable.outside`: unlogged or foreign) is not read: its rows are in the source alone.
"""

from __future__ import annotations

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import PublishedTable


def sent_rows(table: PublishedTable) -> Composed:
    """Return the item of FROM that has these rows, with the published columns by name."""
    name = _identifier(table.table)
    if table.partitioned and not table.outside:
        return SQL("{}").format(name)
    if not table.partitioned or not table.leaves:
        return SQL("ONLY {}").format(name)
    columns = SQL(", ").join(Identifier(column.name) for column in table.version.columns)
    parts = [SQL("SELECT {} FROM ONLY {}").format(columns, _identifier(leaf.table)) for leaf in table.leaves]
    return SQL("({}) AS {}").format(SQL(" UNION ALL ").join(parts), Identifier("lp_sent"))


def _identifier(table: TableName) -> Identifier:
    return Identifier(table.schema, table.name)
