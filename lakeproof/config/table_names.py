"""A table's name as people write it: `shop.orders`, `"my schema"."odd.name"`; patterns of names; and selections by both.

`lakeproof.postgres.catalog.selection` finds a pattern's tables in a database. Quoting for SQL is left to `psycopg.sql`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lakeproof.names import TableName

# One part: plain, or in double quotes with a doubled quote for a quote, as in SQL.
_QUOTED = r'"(?:[^"\x00]|"")+"'
_PLAIN = r'[^\s."/,*\x00]+'
_PART = f"{_QUOTED}|{_PLAIN}"
_PATTERN = re.compile(rf"({_PART}|\*)\.([^\s.\"/,\x00]*\*[^\s.\"/,\x00]*)")
_NAME = re.compile(rf"({_PART})\.({_PART})")
_LIST = re.compile(rf"\s*(({_PART})\.({_PART}))\s*(?:,|$)")

EVERY_SCHEMA = "*"
FORM = 'the form is schema.table, with double quotes around odd parts: "my schema"."odd.name"'


@dataclass(frozen=True, slots=True)
class TablePattern:
    """The tables of one schema whose names match; `*` in `name` stands for any characters, or none.

    The schema `*` is every one but the system's.
    """

    schema: str
    name: str

    def matches(self, table: TableName) -> bool:
        parts = (re.escape(part) for part in self.name.split("*"))
        return self.is_of(table.schema) and re.fullmatch(".*".join(parts), table.name, re.DOTALL) is not None

    def is_of(self, schema: str) -> bool:
        """True if the pattern may match tables of this schema."""
        return self.schema in {schema, EVERY_SCHEMA}

    def __str__(self) -> str:
        return f"{self.schema if self.schema == EVERY_SCHEMA else _quote(self.schema)}.{self.name}"


def parse_selected(text: str) -> TableName | TablePattern:
    """Read a name or a pattern; raises ValueError for anything else."""
    match = _PATTERN.fullmatch(text)
    if match is None:
        return parse_table(text)
    if match[1] == f'"{EVERY_SCHEMA}"':
        raise ValueError('a schema whose name is "*" can\'t be in a pattern; name its tables')
    return TablePattern(_unquote(match[1]), match[2])


def parse_table(text: str) -> TableName:
    """Read one name; case is kept, so it must be written as in the catalog. Raises ValueError for anything else."""
    match = _NAME.fullmatch(text)
    if match is None:
        why = "patterns are allowed only in `tables` and `exclude`" if _PATTERN.fullmatch(text) else FORM
        raise ValueError(f"not a table: {text[:140]!r} ({why})")
    return TableName(_unquote(match[1]), _unquote(match[2]))


def parse_tables(text: str) -> tuple[TableName, ...]:
    """Read names separated by commas; raises ValueError for anything else, and for a duplicate."""
    names: list[TableName] = []
    position = 0
    while position < len(text) or not names:
        match = _LIST.match(text, position)
        if match is None:
            raise ValueError(f"not a list of tables: {text[:140]!r} ({FORM}, commas between)")
        names.append(parse_table(match[1]))
        position = match.end()
    if text.rstrip().endswith(","):
        raise ValueError(f"not a list of tables: {text[:140]!r} (it ends with a comma)")
    twice = {str(name) for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"appears twice: {', '.join(sorted(twice))}")
    return tuple(names)


def table_text(name: TableName) -> str:
    """Write a name as `parse_table` reads it, with quotes only if needed."""
    return f"{_quote(name.schema)}.{_quote(name.name)}"


def _unquote(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part


def _quote(part: str) -> str:
    return part if re.fullmatch(_PLAIN, part) else '"' + part.replace('"', '""') + '"'


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
