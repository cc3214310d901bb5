"""What can be wrong with single tables: missing, unpublished, without identity, unreadable, with names the lake can't hold.

The server, the role, the slot and the publication as such are judged in `checks.py`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from wal2delta.config.model import SourceConfig, TableConfig
from wal2delta.config.table_names import write_table
from wal2delta.names import TableName
from wal2delta.postgres import catalog_queries as queries
from wal2delta.postgres.catalog import PublishedTable, publications_of, read_tables, read_types
from wal2delta.postgres.connection import Connection, rows, source_errors
from wal2delta.postgres.findings import Finding, error, note, warning
from wal2delta.schema import Identity
from wal2delta.values.types import EXACT_TEXT, CatalogType, is_bare_numeric

# What a person who knows nothing of the values may begin with: the widest decimal, with decimals to spare.
_PIN = (38, 10)
_HIDDEN = "_w2d_"
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_WORDS = frozenset({"null", "true", "false"})
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
    "i": "an index",
}


def table_findings(
    conn: Connection, source: SourceConfig, only: Collection[TableName] | None = None
) -> Iterator[Finding]:
    """The findings about the published tables and those the configuration names. Raises as `read_tables`."""
    published = read_tables(conn, source) if publications_of(conn, source) else {}
    wanted = set(source.tables) | set(source.table) if only is None else set(only)
    facts = named_facts(conn, wanted - published.keys())
    for name in sorted(wanted - published.keys()):
        problem = candidate_problem(name, facts.get(name))
        if problem is not None:
            yield problem
        elif published or publications_of(conn, source):
            reason = f"it is not in publication {source.publication}"
            yield error(f"table {name}", reason, "run `wal2delta apply`, or take it out of the configuration", name)
    if publications_of(conn, source) and not published:
        remedy = "name tables in the configuration and run `wal2delta apply`"
        yield error(f"publication {source.publication}", "it has no table", remedy)
    chosen = [table for name, table in published.items() if only is None or name in only]
    access = _access(conn, chosen)
    types = _text_types(conn, chosen)
    for table in chosen:
        yield from _identity(table, source)
        yield from _actions(table)
        yield from _columns(table)
        yield from _bare_numerics(table, source.table_config(table.table), types)
        yield from _leaves(table)
        yield from _readable(table, access)


def named_facts(conn: Connection, tables: Iterable[TableName]) -> dict[TableName, dict[str, Any]]:
    """What the catalog says about relations of these names, whether published or not. Raises as `source_errors`."""
    names = sorted(tables)
    if not names:
        return {}
    with source_errors("tables"):
        found = rows(
            conn,
            queries.NAMED,
            {"schemas": [table.schema for table in names], "names": [table.name for table in names]},
        )
    return {TableName(row["schema"], row["name"]): row for row in found}


def candidate_problem(table: TableName, facts: dict[str, Any] | None) -> Finding | None:
    """Why a relation could never be published, None where it could."""
    thing = f"table {table}"
    out = "take it out of the configuration"
    if facts is None:
        return error(thing, "it does not exist", "correct its name (case counts), or create it", table)
    if facts["relkind"] not in ("r", "p"):
        return error(thing, f"it is {_KINDS.get(facts['relkind'], 'no table')}, which sends no changes", out, table)
    if facts["relpersistence"] == "u":
        return error(
            thing, "it is unlogged, so its changes are not in the WAL", f"ALTER TABLE … SET LOGGED, or {out}", table
        )
    if facts["relpersistence"] == "t":
        return error(thing, "it is a temporary table", out, table)
    if facts["schema"] in ("pg_catalog", "information_schema"):
        return error(thing, "it belongs to the system, which sends no changes", out, table)
    return None


def _identity(table: PublishedTable, source: SourceConfig) -> Iterator[Finding]:
    thing = f"table {table.table}"
    config = source.table_config(table.table)
    if table.changes_refused:
        risky = " and ".join(f"{action}s" for action in sorted(table.actions & {"update", "delete"}))
        why, remedy = _why_refused(table)
        yield error(thing, f"{risky} are published, but {why}: the application's own fail", remedy, table.table)
    if table.version.identity is Identity.FULL and not config.key:
        reason = "its identity is FULL: it is kept as a multiset of rows"
        yield note(thing, reason, "name a `key` for it in the configuration where columns tell rows apart", table.table)
    if config.key and table.version.identity is not Identity.FULL:
        reason = "the configured key is not used: its identity is an index, whose columns are the key"
        yield warning(thing, reason, "take `key` out of the configuration", table.table)


def _why_refused(table: PublishedTable) -> tuple[str, str]:
    """Why PostgreSQL refuses the application's updates and deletes of it, and what to do."""
    identity = table.version.identity
    if table.column_list and identity is Identity.FULL:
        return "its identity is FULL, with which there can be no column list", (
            "publish all of its columns without a list, or give it an identity of columns in the list"
        )
    if table.uncovered:
        return f"not its identity's columns {', '.join(table.uncovered)}", (
            "publish these columns too, or give it an identity of the columns that are published"
        )
    if not table.has_identity:
        named = {Identity.NOTHING: "its replica identity is NOTHING", Identity.INDEX: "its identity's index is gone"}
        remedy = (
            "add a primary key or ALTER TABLE … REPLICA IDENTITY FULL; or take it out with "
            f"ALTER PUBLICATION {table.publications[0]} DROP TABLE {write_table(table.table)} and run `wal2delta apply`, "
            "which publishes inserts only"
        )
        return named.get(identity, "it has no primary key that can serve as one (none, or a deferrable one)"), remedy
    return f"its row filter reads {', '.join(table.filtered_beyond)}, which its identity does not have", (
        "filter by columns of its identity alone, or ALTER TABLE … REPLICA IDENTITY FULL (or USING INDEX with these columns"
        " in it), or publish its inserts only"
    )


def _actions(table: PublishedTable) -> Iterator[Finding]:
    missing = [a for a in ("update", "delete", "truncate") if a not in table.actions]
    if missing == ["update", "delete"] and not table.has_identity:
        reason = "it has no identity and its inserts only are published: an UPDATE or DELETE on it would go unseen"
        yield note(f"table {table.table}", reason, "give it a primary key where rows change", table.table)
    elif missing:
        reason = f"its publication leaves out {', '.join(missing)}: the lake will keep what the source changed that way"
        yield warning(f"table {table.table}", reason, "publish all of insert, update, delete, truncate", table.table)


def _columns(table: PublishedTable) -> Iterator[Finding]:
    thing = f"table {table.table}"
    columns = table.version.columns
    leave_out = "rename it, or publish the table with a column list that leaves it out"
    if not columns:
        yield error(thing, "it has no published column", "add a column, or take the table out", table.table)
    for column in columns:
        if column.name.lower().startswith(_HIDDEN):
            reason = (
                f"the name of its column {column.name} begins with {_HIDDEN}, as those of the lake's own columns do"
            )
            yield error(thing, reason, leave_out, table.table)
    folded = Counter(column.name.lower() for column in columns)
    for name, count in folded.items():
        if count > 1:
            same = ", ".join(column.name for column in columns if column.name.lower() == name)
            yield error(thing, f"Spark can't tell its columns {same} apart", leave_out, table.table)


def _text_types(conn: Connection, tables: Iterable[PublishedTable]) -> dict[int, CatalogType]:
    """The types of the columns that are kept as exact text."""
    oids = {int(c.type_oid) for table in tables for c in table.version.columns if c.kind == EXACT_TEXT}
    with source_errors("types"):
        return read_types(conn, oids)


def _bare_numerics(table: PublishedTable, config: TableConfig, types: Mapping[int, CatalogType]) -> Iterator[Finding]:
    """The columns that are text for want of a precision, with the lines that give them one."""
    bare = [
        column.name
        for column in table.version.columns
        if column.kind == EXACT_TEXT
        and column.name not in config.as_text
        and int(column.type_oid) in types
        and is_bare_numeric(types[int(column.type_oid)], column.typmod)
    ]
    if not bare:
        return
    pins = {**config.numeric, **dict.fromkeys(bare, _PIN)}
    listed = ", ".join(f"{_yaml(name)}: [{precision}, {scale}]" for name, (precision, scale) in pins.items())
    line = f"table: {{{_yaml(write_table(table.table))}: {{numeric: {{{listed}}}}}}}"
    reason = f"without precision, and so kept as exact text: {', '.join(bare)}"
    yield note(f"table {table.table}", reason, f"to keep them as decimals, configure e.g. {line}", table.table)


def _yaml(text: str) -> str:
    """A key in a flow mapping: as it is, or in JSON's quotes, which YAML reads too."""
    return text if _PLAIN_KEY.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)


def _leaves(table: PublishedTable) -> Iterator[Finding]:
    for name, what in table.outside.items():
        reason = f"its partition {name} is {what}, so neither the copy nor the stream has its rows"
        remedy = "detach it, or know that the lake leaves it out"
        yield warning(f"table {table.table}", reason, remedy, table.table)
    if not table.partitioned or not table.actions & {"update", "delete"}:
        return
    for leaf in table.leaves:
        if leaf.identity not in (table.version.identity, Identity.FULL):
            reason = f"the replica identity of its partition {leaf.table} is another than its own"
            remedy = "give each partition the identity of the table: ALTER TABLE … REPLICA IDENTITY …"
            yield error(f"table {table.table}", reason, remedy, table.table)


def _access(conn: Connection, tables: Iterable[PublishedTable]) -> dict[int, dict[str, Any]]:
    oids = sorted({int(oid) for t in tables for oid in (t.version.oid, *(leaf.oid for leaf in t.leaves))})
    if not oids:
        return {}
    with source_errors("tables"):
        return {int(row["oid"]): row for row in rows(conn, queries.ACCESS, {"oids": oids})}


def _readable(table: PublishedTable, access: dict[int, dict[str, Any]]) -> Iterator[Finding]:
    """SELECT on the table and on each leaf: the copy reads leaves by name, the lock names all of them."""
    names = {int(table.version.oid): table.table, **{int(leaf.oid): leaf.table for leaf in table.leaves}}
    for oid, name in names.items():
        row = access.get(oid)
        if row is None:
            continue
        thing = f"table {name}"
        if not row["may_use_schema"]:
            remedy = f'GRANT USAGE ON SCHEMA "{name.schema}" TO {row["role"]}'
            yield error(thing, f"role {row['role']} may not use its schema", remedy, table.table)
        elif not row["may_select"]:
            remedy = f"GRANT SELECT ON {write_table(name)} TO {row['role']}"
            yield error(thing, f"role {row['role']} may not read it", remedy, table.table)
        if row["hides_rows"]:
            reason = f"row-level security hides rows of it from role {row['role']}, while the stream brings all"
            yield error(thing, reason, f"ALTER ROLE {row['role']} BYPASSRLS", table.table)
