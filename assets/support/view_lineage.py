"""The columns of a view and what each is computed from, by its SQL alone; what is not certain is left out.

Dagster's objects do not belong here (`columns.py`), nor running the query (`lakeproof.views`).

A column depends on the columns whose values go into it; what only chooses or orders rows (WHERE, JOIN, GROUP BY) does not
count. Nothing is guessed: a query that sqlglot does not resolve against the tables' columns has no known column, and a
column that depends on something that is no column of a table has no known origin.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, build_scope

# It warns of every function that it does not know, on the log of whoever loads the location.
logging.getLogger("sqlglot").setLevel(logging.ERROR)

_DIALECT = "spark"


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column of a view: the (name in the SQL, column) pairs that it is computed from, None if they are not known.

    `is_copy`: it has the value of its only origin as it is, and with it that column's type.
    """

    name: str
    origins: tuple[tuple[str, str], ...] | None
    is_copy: bool = False


def view_columns(sql: str, tables: Mapping[str, Mapping[str, str]]) -> list[ViewColumn]:
    """Return a view's columns in order, none if they are not known; `tables` has the columns of each, with their types."""
    spelled = _Spelled(tables)
    try:
        parsed = parse_one(sql, read=_DIALECT)
        if not isinstance(parsed, exp.Query):
            return []
        written = {name.casefold(): name for name in parsed.named_selects}
        schema: dict[str, object] = {table: dict(columns) for table, columns in tables.items()}
        query = qualify(parsed, schema=schema, dialect=_DIALECT, validate_qualify_columns=True)
        scope = build_scope(query)
        if scope is None or not isinstance(query, exp.Query):
            return []
        names = query.named_selects
        if "*" in names or len({name.casefold() for name in names}) < len(names):
            return []
        return [
            _column(query, scope, name, written.get(name.casefold()) or spelled.column(name), spelled) for name in names
        ]
    # sqlglot has errors of its own, and others where it meets what it does not expect.
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


class _Spelled:
    """The names of tables and columns as they are spelled; sqlglot returns small letters, Spark ignores case."""

    def __init__(self, tables: Mapping[str, Mapping[str, str]]) -> None:
        self._tables = {table.casefold(): table for table in tables}
        self._columns = {
            table.casefold(): {column.casefold(): column for column in columns} for table, columns in tables.items()
        }

    def column(self, name: str) -> str:
        """Return a column's name as the first table with such a column spells it."""
        return next((own[name.casefold()] for own in self._columns.values() if name.casefold() in own), name)

    def origin(self, table: str, column: str) -> tuple[str, str] | None:
        """Return the pair of table and column, None if there is none."""
        own = self._columns.get(table.casefold(), {})
        return None if column.casefold() not in own else (self._tables[table.casefold()], own[column.casefold()])


def _column(query: exp.Query, scope: Scope, name: str, shown: str, spelled: _Spelled) -> ViewColumn:
    # The query is resolved already, so its schema is needed no more.
    nodes = list(lineage(name, query, {}, dialect=_DIALECT, scope=scope).walk())
    origins: set[tuple[str, str]] = set()
    for node in nodes:
        if any(not isinstance(star.parent, exp.Count) for star in _stars(node)):
            return ViewColumn(shown, None)
        if isinstance(node.expression, exp.Table):
            origin = spelled.origin(node.expression.name, parse_one(node.name).name)
            if origin is None:
                return ViewColumn(shown, None)
            origins.add(origin)
        elif not node.downstream and node.expression.find(exp.Column) is not None:
            return ViewColumn(shown, None)
    selected = nodes[0].expression.unalias() if isinstance(query, exp.Select) else None
    is_copy = isinstance(selected, exp.Column) and len(nodes) == 2 and len(origins) == 1
    return ViewColumn(shown, tuple(sorted(origins)), is_copy)


def _stars(node: Node) -> Iterator[exp.Star]:
    if isinstance(node.expression, exp.Alias):
        yield from node.expression.find_all(exp.Star)
