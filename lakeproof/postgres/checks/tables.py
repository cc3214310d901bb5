"""Checks single tables: missing, unpublished, without identity, unreadable, or with names that the lake can't hold.

The server, the role, the slot and the publication as a whole do not belong here (`source.py`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from psycopg.sql import SQL

from lakeproof.config.mistakes import nearest_table
from lakeproof.config.model import SourceConfig, TableConfig
from lakeproof.config.table_names import TablePattern, table_text
from lakeproof.errors import DefiniteError
from lakeproof.events import listed
from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.published import publications_of, read_tables, read_types
from lakeproof.postgres.catalog.selection import no_match, select
from lakeproof.postgres.catalog.tables import SENDS_GENERATED, Leaf, PublishedTable
from lakeproof.postgres.checks.findings import Finding, error, from_error, note, warning
from lakeproof.postgres.checks.identity import identity_findings, only_inserted, sent_in_part
from lakeproof.postgres.checks.privileges import as_identifier, qualified
from lakeproof.postgres.checks.unselected import unselected
from lakeproof.postgres.connections.connect import Connection, Row, rows, source_errors
from lakeproof.postgres.publications import read_publications
from lakeproof.schema import REFUSED_IN_NAMES, Identity, LeftOutColumn, describe_left_out, lake_names
from lakeproof.values.catalog_kinds import CatalogType, is_bare_numeric
from lakeproof.values.types import EXACT_TEXT

# A first choice for a person who does not know the values: the widest decimal, with decimals to spare.
_PIN = (38, 10)
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
_WORDS = frozenset({"null", "true", "false"})
# Not read with a table's schema: pg_get_expr waits for an exclusive lock on the table, and answers for the present.
_EXPRESSIONS = SQL("""
SELECT d.adrelid::bigint AS oid, a.attname::text AS name, pg_catalog.pg_get_expr(d.adbin, d.adrelid) AS expression
FROM pg_catalog.pg_attrdef d
JOIN pg_catalog.pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE d.adrelid = ANY ({oids}::oid[]) AND a.attgenerated <> '' AND NOT a.attisdropped
""")
_KINDS = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
    "i": "an index",
}


def table_findings(
    conn: Connection,
    source: SourceConfig,
    only: Collection[TableName] | None = None,
    *,
    readable: bool = True,
    paused: Collection[TableName] = (),
    in_lake: Collection[TableName] = (),
) -> Iterator[Finding]:
    """Yield the findings about the published tables and those that the configuration names. Raises as `read_tables`.

    With `readable`, also if the role may read them. The tables `paused` are not published, as a person wants it. One that
    is `in_lake` and does not exist had its right name.
    """
    refused: dict[TableName, DefiniteError] = {}
    published = read_tables(conn, source, refused=refused) if publications_of(conn, source) else {}
    for name, refusal in refused.items():
        if only is None or name in only:
            yield replace(from_error(refusal), table=name)
    named = set(source.tables) | set(source.table) if only is None else set(only)
    named -= published.keys() | refused.keys() | set(paused)
    facts = named_facts(conn, named)
    near = suggestions(conn, named.difference(facts, in_lake))
    for name in sorted(named):
        problem = candidate_problem(name, facts.get(name), near.get(name), in_lake=name in in_lake)
        if problem is not None:
            yield problem
        elif published or publications_of(conn, source):
            reason = f"it is not in publication {source.publication}"
            yield error(name, reason, "run `lakeproof apply`, or take it out of the configuration")
    if only is None:
        yield from unselected(conn, source, published.keys() | refused.keys(), paused)
    if only is None and source.selection:
        yield from _selection(conn, source, published.keys() | refused.keys() | named | set(paused))
    if not published and not refused:
        yield from _empty(conn, source)
    chosen = [table for name, table in published.items() if only is None or name in only]
    yield from findings_of(conn, source, chosen, readable=readable)


def findings_of(
    conn: Connection, source: SourceConfig, tables: Collection[PublishedTable], *, readable: bool
) -> Iterator[Finding]:
    """Yield the findings about tables as they are published, or would be. Raises as `source_errors`."""
    access = _access(conn, tables) if readable else {}
    types = _text_types(conn, tables)
    expressions = _generated_expressions(conn, {t.version.oid for t in tables if any(c.generated for c in t.left_out)})
    yield from only_inserted(tables, source.name)
    for table in tables:
        yield from schema_findings(table, source)
        yield from sent_in_part(table)
        yield from left_out_findings(table, expressions, source.name, conn.info.server_version)
        yield from _bare_numerics(table, source.table_config(table.table), types)
        yield from _readable(table, access)


def _empty(conn: Connection, source: SourceConfig) -> Iterator[Finding]:
    """Yield the finding that the source's publications have no table: a beginning if later tables come in by themselves."""
    publications = read_publications(conn, publications_of(conn, source)).values()
    thing = f"publication {source.publication}"
    if any(publication.is_whole for publication in publications):
        reason = (
            "it has no table yet: each one made after `lakeproof bootstrap` comes in from the stream, without a copy"
        )
        yield note(thing, reason, "begin before the first table is made")
    elif publications:
        yield error(thing, "it has no table", "name tables in the configuration and run `lakeproof apply`")


def _selection(conn: Connection, source: SourceConfig, judged: Collection[TableName]) -> Iterator[Finding]:
    """Yield findings about unpublished matches of patterns, and about unnamed tables beside the selected ones."""
    selected = select(conn, source)
    for pattern in selected.unmatched:
        yield from_error(no_match(pattern))
    for table, reason in selected.unsupported.items():
        yield note(table, f"{reason}: a pattern leaves it out", "name it in `exclude`")
    exists = bool(publications_of(conn, source))
    for table, pattern in selected.matched.items():
        if exists and table not in judged:
            reason = f"it matches {pattern} and is not published: its changes are not followed"
            remedy = "run `lakeproof apply`, then copy it, or name it in `exclude`"
            yield warning(table, reason, remedy)
    others = [table for table in selected.others if table not in judged]
    for schema in sorted({table.schema for table in others}):
        names = [table_text(table) for table in others if table.schema == schema]
        reason = f"not selected and not published: {listed(names)}"
        every = TablePattern(schema, "*")
        yield note(f"schema {schema}", reason, f"to follow them, name them in `tables`, or all of them by {every}")


def schema_findings(table: PublishedTable, source: SourceConfig) -> Iterator[Finding]:
    """Yield the findings about a table's columns, identity and partitions, without asking the server again."""
    yield from identity_findings(table, source)
    yield from _columns(table)
    yield from _portable(table, source.table_config(table.table))
    yield from _leaves(table)


def named_facts(conn: Connection, tables: Iterable[TableName]) -> dict[TableName, Row]:
    """Return the catalog's facts about relations of these names, published or not. Raises as `source_errors`."""
    names = sorted(tables)
    if not names:
        return {}
    relations = rows(
        conn,
        queries.NAMED,
        {"schemas": [table.schema for table in names], "names": [table.name for table in names]},
        about="tables",
    )
    return {TableName(row["schema"], row["name"]): row for row in relations}


def suggestions(conn: Connection, tables: Collection[TableName]) -> dict[TableName, TableName]:
    """Return the table that was probably meant by each name that is no table's. Raises as `source_errors`."""
    if not tables:
        return {}
    existing = [TableName(row["schema"], row["name"]) for row in rows(conn, queries.TABLES, about="tables")]
    near = {table: nearest_table(table, existing) for table in tables}
    return {table: meant for table, meant in near.items() if meant is not None}


def candidate_problem(
    table: TableName, facts: Row | None, near: TableName | None = None, *, in_lake: bool = False
) -> Finding | None:
    """Return why a relation could never be published, None if it could; `near` is the table that was probably meant.

    One that is `in_lake` was dropped or renamed.
    """
    out = "take it out of the configuration"
    if facts is None and in_lake:
        reason = "it does not exist any more; the lake keeps what it has of it"
        return error(table, reason, f"{out}, or create it again")
    if facts is None:
        hint = "correct its name" if near is None else f"did you mean {table_text(near)}? Correct its name"
        return error(table, "it does not exist", f"{hint} (case counts), create it, or {out}")
    if facts["relkind"] not in ("r", "p"):
        return error(table, f"it is {_KINDS.get(facts['relkind'], 'no table')}, which sends no changes", out)
    if facts["relpersistence"] == "u":
        return error(table, "it is unlogged, so its changes are not in the WAL", f"ALTER TABLE … SET LOGGED, or {out}")
    if facts["relpersistence"] == "t":
        return error(table, "it is a temporary table", out)
    if facts["schema"] in ("pg_catalog", "information_schema"):
        return error(table, "it belongs to the system, which sends no changes", out)
    return None


def _columns(table: PublishedTable) -> Iterator[Finding]:
    columns = table.version.columns
    if not columns:
        yield error(table.table, "it has no published column", "add a column, or take the table out")
    renamed = [f"{name} is {lake_name}" for name, lake_name in lake_names(columns).items() if name != lake_name]
    if renamed:
        reason = (
            f"Spark can't tell some of its columns from others or from the lake's own: in the lake {', '.join(renamed)}"
        )
        yield note(table.table, reason, "rename them in the source if readers should see their names")


def _portable(table: PublishedTable, config: TableConfig) -> Iterator[Finding]:
    """Yield the finding that a portable table can't have names that need column mapping."""
    names = lake_names(table.version.columns).values()
    refused = [f"`{name}`" for name in names if not REFUSED_IN_NAMES.isdisjoint(name)]
    if config.readers == "portable" and refused:
        reason = (
            f"it is configured with `readers: portable`, and without column mapping a file can't have the names"
            f" {', '.join(refused)}: it would be held"
        )
        remedy = "rename these columns, or take `readers` out of its configuration"
        yield error(table.table, reason, remedy)


def left_out_findings(
    table: PublishedTable, expressions: Mapping[tuple[Oid, str], str], source: str, server_version: int
) -> Iterator[Finding]:
    """Yield findings about the columns of a table that are not sent, with the lines of a view that computes them."""
    may_send = server_version >= SENDS_GENERATED
    by_list = [
        c for c in table.left_out if not c.generated or (table.column_list and may_send and c.generated == "stored")
    ]
    if by_list:
        reason = f"its column list leaves out {describe_left_out(by_list)}: neither the lake nor a proof has that"
        yield note(table.table, reason, "add to the list what the lake should have, and copy the table again")
    for kind in ("stored", "virtual"):
        columns = [c for c in table.left_out if c.generated == kind and c not in by_list]
        if not columns:
            continue
        reason = f"{', '.join(c.name for c in columns)} {_is_not_sent(kind, len(columns), server_version)}"
        reason += ": neither the lake nor a proof has " + ("it" if len(columns) == 1 else "them")
        lines = [_computed(column, expressions.get((table.version.oid, column.name))) for column in columns]
        remedy = f"compute in a view: {', '.join(lines)}"
        if kind == "stored" and may_send:
            alter = "; ".join(
                f"ALTER PUBLICATION {as_identifier(name)} SET (publish_generated_columns = stored)"
                for name in table.publications
            )
            again = f"lakeproof bootstrap {source} --tables {shlex.quote(table_text(table.table))}"
            remedy = f"run {alter}, then copy the table: `{again}`; or {remedy}"
        yield warning(table.table, reason, remedy)


def _is_not_sent(kind: str, count: int, server_version: int) -> str:
    """Return why generated columns of a kind are not sent."""
    are = "is a generated column" if count == 1 else "are generated columns"
    if server_version < SENDS_GENERATED:
        return f"{are}, which PostgreSQL before 18 does not send"
    if kind == "virtual":
        return f"{are.replace('generated', 'virtual generated')}, which PostgreSQL does not send"
    return f"{are}, which its publication does not send"


def _computed(column: LeftOutColumn, expression: str | None) -> str:
    """Return the line of a view that has the column, in PostgreSQL's words; only its name if the table is gone by now."""
    if expression is None:
        return column.name
    return f"{expression} AS {as_identifier(column.name)}"


def _generated_expressions(conn: Connection, oids: Collection[Oid]) -> dict[tuple[Oid, str], str]:
    """Return each generated column's expression, by the table's OID and the column's name."""
    lines = rows(conn, _EXPRESSIONS, {"oids": sorted(oids)}, about="generated columns") if oids else []
    return {(Oid(int(row["oid"])), str(row["name"])): str(row["expression"]) for row in lines}


def _text_types(conn: Connection, tables: Iterable[PublishedTable]) -> dict[int, CatalogType]:
    """Return the types of the columns that are kept as exact text."""
    oids = {int(c.type_oid) for table in tables for c in table.version.columns if c.kind == EXACT_TEXT}
    with source_errors("types"):
        return read_types(conn, oids)


def _bare_numerics(table: PublishedTable, config: TableConfig, types: Mapping[int, CatalogType]) -> Iterator[Finding]:
    """Yield a note about columns that are text for want of a precision, with the configuration that gives them one."""
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
    decimals = ", ".join(f"{yaml_text(name)}: [{precision}, {scale}]" for name, (precision, scale) in pins.items())
    line = f"table: {{{yaml_text(table_text(table.table))}: {{numeric: {{{decimals}}}}}}}"
    reason = f"without precision, and so kept as exact text: {', '.join(bare)}"
    yield note(table.table, reason, f"to keep them as decimals, configure e.g. {line}")


def yaml_text(text: str) -> str:
    """Return a key in a flow mapping: as it is, or in JSON's quotes, which YAML reads too."""
    return text if _PLAIN_KEY.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)


def _leaves(table: PublishedTable) -> Iterator[Finding]:
    for name, kind in table.outside.items():
        reason = f"its partition {name} is {kind}, so neither the copy nor the stream has its rows"
        remedy = "detach it, or know that the lake leaves it out"
        yield warning(table.table, reason, remedy)
    for leaf in table.unfit_leaves:
        reason = (
            f"the replica identity of its partition {leaf.table} is {_described(leaf)}, "
            "which does not have the columns of the table's own"
        )
        own = ", ".join(c.name for c in table.version.columns if c.identity)
        better = "FULL" if not own else f"USING INDEX …, of an index that has {own}; or FULL"
        remedy = f"ALTER TABLE {table_text(leaf.table)} REPLICA IDENTITY {better}"
        yield error(table.table, reason, remedy)
    if table.partitioned and table.column_list and table.version.identity is not Identity.FULL:
        yield from _leaves_under_a_list(table)


def _leaves_under_a_list(table: PublishedTable) -> Iterator[Finding]:
    """Yield the partitions whose own identity the column list of the table does not cover."""
    sent = {column.name for column in table.version.columns}
    for leaf in table.leaves:
        missing = [name for name in leaf.identity_columns if name not in sent]
        if leaf.identity is Identity.FULL:
            reason = f"its partition {leaf.table} has identity FULL, with which there can be no column list"
        elif missing:
            reason = f"the column list does not have {', '.join(missing)} of the identity of its partition {leaf.table}"
        else:
            continue
        remedy = "publish all of its columns without a list, or give the partition the table's identity"
        yield error(table.table, f"{reason}: the application's own changes fail", remedy)


def _described(leaf: Leaf) -> str:
    """Return a partition's identity, for people."""
    if leaf.identity_columns:
        return f"its index of ({', '.join(leaf.identity_columns)})"
    return {Identity.FULL: "FULL", Identity.NOTHING: "NOTHING"}.get(leaf.identity, "an index that it does not have")


def _access(conn: Connection, tables: Iterable[PublishedTable]) -> dict[int, Row]:
    oids = sorted({int(oid) for t in tables for oid in (t.version.oid, *(leaf.oid for leaf in t.leaves))})
    if not oids:
        return {}
    return {int(row["oid"]): row for row in rows(conn, queries.ACCESS, {"oids": oids}, about="tables")}


def _readable(table: PublishedTable, access: dict[int, Row]) -> Iterator[Finding]:
    """Check SELECT on the table and on each leaf: the copy reads leaves by name, the lock names all of them."""
    names = {int(table.version.oid): table.table, **{int(leaf.oid): leaf.table for leaf in table.leaves}}
    for oid, name in names.items():
        if oid in access:
            yield from (replace(finding, table=table.table) for finding in _readable_by_role(name, access[oid]))


def _readable_by_role(name: TableName, access: Row) -> Iterator[Finding]:
    role = as_identifier(access["role"])
    if not access["may_use_schema"]:
        remedy = f"GRANT USAGE ON SCHEMA {as_identifier(name.schema)} TO {role}"
        yield error(name, f"role {access['role']} may not use its schema", remedy)
    elif not access["may_select"]:
        reason = f"role {access['role']} may not read it"
        if access["may_select_some"]:
            reason = (
                f"role {access['role']} may read some of its columns, and the copy locks it (LOCK TABLE), which takes "
                "SELECT on the whole table; a column list of the publication leaves columns out"
            )
        yield error(name, reason, f"GRANT SELECT ON {qualified(name)} TO {role}")
    if access["hides_rows"]:
        reason = f"row-level security hides rows of it from role {access['role']}, while the stream brings all"
        yield error(name, reason, f"ALTER ROLE {role} BYPASSRLS")
