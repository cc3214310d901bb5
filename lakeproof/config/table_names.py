"""A table's name as people write it: `shop.orders`, `"my schema"."odd.name"`; and patterns of names, `shop.*`.

`lakeproof.postgres.catalog.selection` finds a pattern's tables in a database. Quoting for SQL is left to `psycopg.sql`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
