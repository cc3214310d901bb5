"""Finds the tables of a database that a source's configuration selects, by names and patterns.

A pattern selects ordinary and partitioned tables. A partition goes with its root: a pattern does not select it if an
ancestor is selected. The answer is the present one: a table created later is selected then, and the next `apply`
publishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import EVERY_SCHEMA, TablePattern
from lakeproof.errors import SourceError
from lakeproof.names import TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.published import publications_of
from lakeproof.postgres.connections.connect import Connection, Row, rows


@dataclass(frozen=True, slots=True)
class CatalogRelation:
    """An ordinary, partitioned or foreign table, all tables that it is a partition of, and why it sends no changes."""

    table: TableName
    ancestors: tuple[TableName, ...]
    unsupported_reason: str | None


@dataclass(frozen=True, slots=True)
class Selected:
    """The matches of patterns: `matched` tables with the pattern, `unsupported` tables with the reason that keeps them out.

    `unmatched` patterns match nothing; `others` are the tables beside the selected ones, without partitions and those that
    `exclude` names.
    """

    matched: Mapping[TableName, TablePattern]
    unsupported: Mapping[TableName, str]
    unmatched: tuple[TablePattern, ...]
    others: tuple[TableName, ...]


def user_relations(conn: Connection, schemas: Iterable[str] | None = None) -> list[CatalogRelation]:
    """Return the relations of these schemas, by default of all but the system's, by name. Raises as `source_errors`."""
    names = None if schemas is None else sorted(schemas)
    lines = rows(conn, queries.USER_RELATIONS, {"schemas": names}, about="tables")
    return [
        CatalogRelation(
            TableName(row["schema"], row["name"]),
            tuple(map(TableName, row["ancestor_schemas"], row["ancestor_names"])),
            _unsupported_reason(row),
        )
        for row in lines
    ]


def select(conn: Connection, source: SourceConfig) -> Selected:
    """Search all tables of the schemas that the configuration mentions. Raises as `source_errors`."""
    selection = source.selection
    schemas = {table.schema for table in selection.tables} | {pattern.schema for pattern in selection.patterns}
    matched, unsupported, others = dict[TableName, TablePattern](), dict[TableName, str](), list[TableName]()
    used = {pattern for pattern in selection.patterns if any(map(pattern.matches, selection.tables))}
    for relation in user_relations(conn, None if EVERY_SCHEMA in schemas else schemas):
        table, pattern = relation.table, selection.matching(relation.table)
        if selection.named(table) or any(map(selection.selected, relation.ancestors)):
            continue
        if pattern is not None:
            used.add(pattern)
        if pattern is not None and relation.unsupported_reason is not None:
            unsupported[table] = relation.unsupported_reason
        elif pattern is not None:
            matched[table] = pattern
        elif relation.unsupported_reason is None and not relation.ancestors and not selection.excluded(table):
            others.append(table)
    used |= {pattern for pattern in selection.patterns if any(map(pattern.matches, matched))}
    unused = [pattern for pattern in selection.patterns if pattern not in used]
    whole = _existing(conn, source.schemas) if unused else set[str]()
    # A schema that is published whole may have no table yet.
    unmatched = tuple(p for p in unused if not (p.name == "*" and p.schema in whole))
    return Selected(matched, unsupported, unmatched, tuple(others))


def _existing(conn: Connection, schemas: Iterable[str]) -> set[str]:
    """Return those of the schemas that exist."""
    return {str(row["name"]) for row in rows(conn, queries.SCHEMAS, {"names": sorted(schemas)}, about="schemas")}


def with_matches(conn: Connection, source: SourceConfig) -> SourceConfig:
    """Return the source with every table that its patterns match among its `tables`.

    Raises SourceError for a pattern that matches nothing, else as `source_errors`.
    """
    if not source.patterns:
        return source
    selected = select(conn, source)
    for pattern in selected.unmatched:
        raise no_match(pattern)
    return source.model_copy(update={"tables": (*source.tables, *sorted(selected.matched))})


def no_match(pattern: TablePattern) -> SourceError:
    """Return the error about a pattern that matches nothing."""
    return SourceError(f"tables {pattern}", "no table matches", "correct it (case counts), create one, or take it out")


def unpublished(conn: Connection, source: SourceConfig) -> tuple[TableName, ...]:
    """Return the tables that match patterns and are in none of the source's publications. Raises as `source_errors`."""
    if not source.patterns:
        return ()
    matched = select(conn, source).matched
    names = publications_of(conn, source)
    query = queries.published(conn.info.server_version)
    lines = rows(conn, query, {"names": names}, about=f"publication {source.publication}")
    published = {TableName(row["schema"], row["name"]) for row in lines}
    return tuple(sorted(matched.keys() - published))


def _unsupported_reason(row: Row) -> str | None:
    if row["relkind"] == "f":
        return "it is a foreign table, which sends no changes"
    return "it is unlogged, so its changes are not in the WAL" if row["relpersistence"] == "u" else None
