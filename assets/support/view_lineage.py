"""The columns of a view and what each is computed from, by its SQL alone; what is not certain is left out.

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
    """A column of a view: the (name in the SQL, column) pairs that it is known to be computed from.

    The type is that of its only origin, if it has the value of that as it is; else it is not known.
    """

    name: str
    origins: tuple[tuple[str, str], ...] = ()
    type: str = "unknown"


def view_columns(sql: str, tables: Mapping[str, Mapping[str, str]]) -> list[ViewColumn]:
    """Return a view's columns in order, none if they are not known; `tables` has the columns of each, with their types."""
    try:
        parsed = parse_one(sql, read=_DIALECT)
        if not isinstance(parsed, exp.Query):
            return []
        schema: dict[str, object] = {table: dict(columns) for table, columns in tables.items()}
        query = qualify(parsed.copy(), schema=schema, dialect=_DIALECT, validate_qualify_columns=True)
        scope = build_scope(query)
        if scope is None or not isinstance(query, exp.Query):
            return []
        names = query.named_selects
        if "*" in names or len({name.casefold() for name in names}) < len(names):
            return []
        # sqlglot returns small letters: a name is as the query spells it, else as the first table with such a column.
        spelled = {name.casefold(): name for columns in reversed([*tables.values()]) for name in columns}
        spelled |= {name.casefold(): name for name in parsed.named_selects}
        places = {(t.casefold(), c.casefold()): (t, c) for t, columns in tables.items() for c in columns}
        columns = [(spelled.get(name.casefold(), name), *_origin(query, scope, name, places)) for name in names]
        return [
            ViewColumn(name, origins, tables[origins[0][0]][origins[0][1]]) if is_copy else ViewColumn(name, origins)
            for name, origins, is_copy in columns
        ]
    # sqlglot has errors of its own, and others where it meets what it does not expect.
    except (SqlglotError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return []


def _origin(
    query: exp.Query, scope: Scope, name: str, places: Mapping[tuple[str, str], tuple[str, str]]
) -> tuple[tuple[tuple[str, str], ...], bool]:
    """Return the origins of a column, none if one is not certain; and True if it has the value of its only one."""
    # The query is resolved already, so its schema is needed no more.
    nodes = list(lineage(name, query, {}, dialect=_DIALECT, scope=scope).walk())
    origins: set[tuple[str, str]] = set()
    for node in nodes:
        if any(not isinstance(star.parent, exp.Count) for star in _stars(node)):
            return (), False
        if isinstance(node.expression, exp.Table):
            place = node.expression.name.casefold(), parse_one(node.name).name.casefold()
            if place not in places:
                return (), False
            origins.add(places[place])
        elif not node.downstream and node.expression.find(exp.Column) is not None:
            return (), False
    selected = nodes[0].expression.unalias() if isinstance(query, exp.Select) else None
    is_copy = isinstance(selected, exp.Column) and len(nodes) == 2 and len(origins) == 1
    return tuple(sorted(origins)), is_copy


def _stars(node: Node) -> Iterator[exp.Star]:
    if isinstance(node.expression, exp.Alias):
        yield from node.expression.find_all(exp.Star)
