"""Which tables a source's configuration selects: names, patterns of names, and what the patterns leave out.

How they are written belongs to `table_names`; which tables a database has, to `lakeproof.postgres.catalog_selection`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakeproof.config.table_names import TablePattern
from lakeproof.names import TableName


@dataclass(frozen=True, slots=True)
class Selection:
    """The tables named, the patterns, and what these leave out."""

    tables: tuple[TableName, ...] = ()
    patterns: tuple[TablePattern, ...] = ()
    exclude: tuple[TableName | TablePattern, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.tables or self.patterns)

    def selected(self, table: TableName) -> bool:
        """Return whether the table is named, or a pattern matches it and leaves it in."""
        return table in self.tables or self.matching(table) is not None

    def matching(self, table: TableName) -> TablePattern | None:
        """Return the first pattern that selects the table, None if none does."""
        if self.excluded(table):
            return None
        return next((pattern for pattern in self.patterns if pattern.matches(table)), None)

    def excluded(self, table: TableName) -> bool:
        """Return whether the table is left out by name or pattern."""
        return any(_is_meant(entry, table) for entry in self.exclude)

    def mistakes(self, entry: TableName | TablePattern) -> Iterator[str]:
        """Give what is wrong with an entry of `exclude`: that it can't leave anything out, or contradicts a name."""
        if not any(pattern.schema == entry.schema for pattern in self.patterns):
            yield f"leaves nothing out: `tables` has no pattern for schema {entry.schema}"
        for table in self.tables:
            if _is_meant(entry, table):
                yield f"leaves out {table}, which `tables` names"


def _is_meant(entry: TableName | TablePattern, table: TableName) -> bool:
    return entry.matches(table) if isinstance(entry, TablePattern) else entry == table
