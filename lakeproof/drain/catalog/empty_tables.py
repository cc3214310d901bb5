"""Marks the changes of tables that have no row: what would otherwise need a copy of their rows goes on without one.

Only changes of a table's rows, columns or name are asked about. A table that came into the publication counts only if a rule
published it for all of its life: for one that was added by name, transactions that were open then may be sent in part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakeproof.catalog.differences import Consequence, Difference, TableDifferences
from lakeproof.config.model import SourceConfig
from lakeproof.names import Oid
from lakeproof.postgres.catalog.empty import empty_tables
from lakeproof.postgres.catalog.fingerprint import CatalogReading
from lakeproof.postgres.catalog.relations import versions_in
from lakeproof.postgres.connections.connect import Connection

_OF_ROWS = frozenset(
    {
        Difference.REWRITTEN,
        Difference.COLUMN_TYPE,
        Difference.LABEL_CHANGED,
        Difference.COMPOSITE,
        Difference.ENTERED,
        Difference.RENAMED,
    }
)
# The lake can't always make these in place if there are rows.
_OF_COLUMNS = frozenset({Difference.COLUMN_RECREATED, Difference.COLUMN_ADDED})


def with_empty(
    conn: Connection,
    source: SourceConfig,
    publications: Sequence[str],
    changes: Sequence[TableDifferences],
    reading: CatalogReading,
) -> tuple[list[TableDifferences], CatalogReading]:
    """Return the changes, those of tables without a row marked, and the reading with the position at which they had none.

    Raises as `source_errors`.
    """
    asked = {change.oid for change in changes if _may_be_empty(change, reading)}
    if not asked:
        return list(changes), reading
    position, empty = empty_tables(conn, publications, reading.fingerprint, asked)
    versions = versions_in(conn, source, reading.fingerprint, empty)
    marked = [replace(change, empty=versions.get(Oid(change.oid))) for change in changes]
    return marked, replace(reading, upper_lsn=position)


def _may_be_empty(change: TableDifferences, reading: CatalogReading) -> bool:
    table = reading.fingerprint.tables.get(change.oid)
    if table is None or table.kind != "r":
        return False
    differences = set(change.differences)
    if Difference.ENTERED in differences and change.oid not in reading.created:
        return False
    if any(d.consequence in (Consequence.SNAPSHOT, Consequence.GONE) for d in differences - _OF_ROWS):
        return False
    in_new_file = Difference.FILE in differences or Difference.COLUMN_RECREATED in differences
    return bool(differences & _OF_ROWS) or (in_new_file and bool(differences & _OF_COLUMNS))
