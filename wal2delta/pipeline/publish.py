"""The publication a source needs, as SQL that is shown before it is run.

The slot is not made here but by `wal2delta bootstrap`, together with its snapshot. Dropping belongs to `teardown`.

One source has one publication in its configuration. A table without replica identity can't be in it: publishing its updates
would make the *application's* UPDATE and DELETE fail. Which actions are published is a property of the publication, so such
tables go into a second one, `<publication>_inserts`, which publishes insert and truncate only; the drain then
reads both. Truncate is among them because it needs no identity, and pgbench, for one, truncates its history table.

Both publish a partitioned table under its own name (`publish_via_partition_root`). Tables in a publication that the
configuration does not name are left there, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from psycopg.sql import SQL, Composed, Identifier

from wal2delta.config.model import Config, SourceConfig
from wal2delta.errors import ConfigError
from wal2delta.names import TableName
from wal2delta.postgres import catalog_queries as queries
from wal2delta.postgres.catalog import INSERTS_SUFFIX, PublishedTable, publications_of, read_tables
from wal2delta.postgres.checks import examine_server
from wal2delta.postgres.connection import Connection, close_quietly, connect, rows, source_errors
from wal2delta.postgres.findings import Finding, refuse
from wal2delta.postgres.slot import read_slot
from wal2delta.postgres.table_checks import candidate_problem, named_facts, table_findings
from wal2delta.report import Event, Report, silent

_INSERTS = "insert, truncate"
_NAME_BYTES_MAX = 63


@dataclass(frozen=True, slots=True)
class Plan:
    """What `apply` would run, in order, in one transaction; `notes` are for people."""

    source: str
    statements: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.statements


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    source: SourceConfig
    statements: list[Composed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan(config: Config, name: str) -> Plan:
    """The statements that publish the configured tables of the source `name`; none where all are published.

    Raises ConfigError where neither configuration nor publication names tables; SourceError, naming every fault, where a
    table can't be published, or the server can't replicate; TransientError where it can't be reached.
    """
    source = config.source(name)
    conn = connect(source.dsn, "wal2delta plan")
    try:
        drawn = _draw(conn, source)
        return Plan(name, tuple(statement.as_string(conn) for statement in drawn.statements), tuple(drawn.notes))
    finally:
        close_quietly(conn)


def apply(config: Config, name: str, plan: Plan, report: Report = silent) -> Plan:
    """Run the statements of `plan` in one transaction and return it.

    Raises SourceError where the server refuses one (nothing is then changed), TransientError where it can't be reached.
    """
    source = config.source(name)
    if plan.source != name:
        raise ConfigError(f"source {name}", f"the plan is one for {plan.source}", "make it again")
    if plan.empty:
        return plan
    conn = connect(source.dsn, "wal2delta apply")
    try:
        with source_errors(f"publication {source.publication}"), conn.transaction():
            for statement in plan.statements:
                # Made by `plan` from identifiers that psycopg quoted.
                conn.execute(SQL(statement))
    finally:
        close_quietly(conn)
    for statement in plan.statements:
        report(Event("apply.statement", statement, {"source": name}))
    return plan


def _draw(conn: Connection, source: SourceConfig) -> _Draft:
    existing = publications_of(conn, source)
    published = read_tables(conn, source) if existing else {}
    if not source.tables and not published:
        raise ConfigError(f"source {source.name}", "it names no tables to publish", "list them under `tables`")
    facts = named_facts(conn, [table for table in source.tables if table not in published])
    refuse(
        [*examine_server(conn, source), *_candidates(source, published, facts), *_published(conn, source, published)]
    )
    new = [table for table in source.tables if table not in published]
    draft = _Draft(source)
    _publish(draft, source.publication, [t for t in new if facts[t]["has_identity"]], existing, always=True)
    # Made together: one that came later would be none for the stream until it has read up to there.
    second = source.publication not in existing
    _publish(draft, _inserts(source), [t for t in new if not facts[t]["has_identity"]], existing, always=second)
    _notes(conn, draft, new, published, facts)
    return draft


def _candidates(
    source: SourceConfig, published: Mapping[TableName, PublishedTable], facts: Mapping[TableName, dict[str, Any]]
) -> list[Finding]:
    problems = (candidate_problem(table, facts.get(table)) for table in source.tables if table not in published)
    return [problem for problem in problems if problem is not None]


def _published(conn: Connection, source: SourceConfig, published: Mapping[TableName, PublishedTable]) -> list[Finding]:
    return list(table_findings(conn, source, published.keys())) if published else []


def _publish(
    draft: _Draft, publication: str, tables: Sequence[TableName], existing: Sequence[str], *, always: bool
) -> None:
    """CREATE or ALTER one publication; `always` makes it even where it has no table yet."""
    listed = SQL(", ").join(Identifier(table.schema, table.name) for table in tables)
    if publication in existing:
        if tables:
            statement = SQL("ALTER PUBLICATION {} ADD TABLE {}").format(Identifier(publication), listed)
            draft.statements.append(statement)
        return
    if not tables and not always:
        return
    which = SQL(" FOR TABLE {}").format(listed) if tables else SQL("").format()
    only = SQL(f"publish = '{_INSERTS}', " if publication.endswith(INSERTS_SUFFIX) else "").format()
    draft.statements.append(
        SQL("CREATE PUBLICATION {}{} WITH ({}publish_via_partition_root = true)").format(
            Identifier(publication), which, only
        )
    )


def _notes(
    conn: Connection,
    draft: _Draft,
    new: Sequence[TableName],
    published: Mapping[TableName, PublishedTable],
    facts: Mapping[TableName, dict[str, Any]],
) -> None:
    source = draft.source
    for table in new:
        if not facts[table]["has_identity"]:
            draft.notes.append(
                f"{table} has no replica identity: only its inserts and truncates are published; "
                "an UPDATE or DELETE on it will not reach the lake"
            )
    extra = sorted(str(table) for table in published if source.tables and table not in source.tables)
    if extra:
        draft.notes.append(f"published, though not configured, and left so: {', '.join(extra)}")
    if read_slot(conn, source.slot) is None:
        draft.notes.append(f"slot {source.slot} is made by `wal2delta bootstrap`, together with its snapshot")
    elif new:
        draft.notes.append(f"then copy what is new: wal2delta bootstrap {source.name} --tables …")
    with source_errors("publications"):
        all_tables = rows(conn, queries.FOR_ALL_TABLES)
    if all_tables:
        names = ", ".join(str(row["pubname"]) for row in all_tables)
        draft.notes.append(
            f"beware of publications FOR ALL TABLES ({names}): UPDATE and DELETE on any table without identity fail"
        )


def _inserts(source: SourceConfig) -> str:
    name = source.publication + INSERTS_SUFFIX
    if len(name.encode()) > _NAME_BYTES_MAX:
        reason = f"its name and {INSERTS_SUFFIX} take more than {_NAME_BYTES_MAX} bytes together"
        raise ConfigError(f"publication {source.publication}", reason, "choose a shorter name")
    return name
