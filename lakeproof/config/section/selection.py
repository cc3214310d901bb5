"""The tables that a source's configuration selects: names, patterns of names, and exceptions from the patterns.

`table_names` parses them; `lakeproof.postgres.catalog.selection` compares them with a database.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lakeproof.config.table_names import EVERY_SCHEMA, TablePattern
from lakeproof.names import TableName


@dataclass(frozen=True, slots=True)
class Selection:
    """The named tables, the patterns, and the exceptions.

    Making one costs a look at each name; asking it about a table does not. So it is made once for many tables.
    """

    tables: tuple[TableName, ...] = ()
    patterns: tuple[TablePattern, ...] = ()
    exclude: tuple[TableName | TablePattern, ...] = ()
    _names: frozenset[TableName] = field(default=frozenset(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_names", frozenset(self.tables))

    def __bool__(self) -> bool:
        return bool(self.tables or self.patterns)

    def selected(self, table: TableName) -> bool:
        """True if the table is named, or a pattern matches it and no exception does."""
        return self.named(table) or self.matching(table) is not None

    def named(self, table: TableName) -> bool:
        return table in self._names

    def matching(self, table: TableName) -> TablePattern | None:
        """Return the first pattern that selects the table, None if none does."""
        if self.excluded(table):
            return None
        return next((pattern for pattern in self.patterns if pattern.matches(table)), None)

    def excluded(self, table: TableName) -> bool:
        """True if the table is left out by name or pattern."""
        return any(_is_meant(entry, table) for entry in self.exclude)

    def mistakes(self, entry: TableName | TablePattern) -> Iterator[str]:
        """Return what is wrong with an entry of `exclude`: it can't leave anything out, or contradicts a name."""
        if not any(pattern.is_of(entry.schema) or entry.schema == EVERY_SCHEMA for pattern in self.patterns):
            yield f"leaves nothing out: `tables` has no pattern for schema {entry.schema}"
        for table in self.tables:
            if _is_meant(entry, table):
                yield f"leaves out {table}, which `tables` names"


def _is_meant(entry: TableName | TablePattern, table: TableName) -> bool:
    return entry.matches(table) if isinstance(entry, TablePattern) else entry == table
