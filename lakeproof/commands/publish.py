"""The publication that a source needs, as SQL that is shown before it is run.

The slot is not made here but by `lakeproof bootstrap`, together with its snapshot. Dropping is in `teardown`.

One source has one publication in its configuration. A table without replica identity can't be in it: publishing its updates
would make the *application's* UPDATE and DELETE fail. The published actions are a property of the publication, so such
tables go into a second one, `<publication>_inserts`, which publishes insert and truncate only; the drain then
reads both. Truncate is among them because it needs no identity, and pgbench, for one, truncates its history table.

Patterns of the configuration become the tables that they match now, by name: a publication of a whole schema takes a
superuser, and would publish the updates of tables without identity (docs/decisions/0026-tables-by-pattern.md). Both
publications publish a partitioned table under its own name (`publish_via_partition_root`), and from PostgreSQL 18 on stored
generated columns (`publish_generated_columns`). A publication without that option gets it with a new table, unless it would
change the schema of a table that is published already. Tables in a publication that the configuration does not name are left
there, with a note.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from psycopg.sql import SQL, Composed, Identifier

from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError, DefiniteError, SourceError
from lakeproof.events import Event, Report, silent
from lakeproof.names import TableName
from lakeproof.postgres import catalog_queries as queries
from lakeproof.postgres.catalog_published import INSERTS_SUFFIX, as_if_published, publications_of, read_tables
from lakeproof.postgres.catalog_selection import with_matches
from lakeproof.postgres.catalog_tables import ACTIONS, PublishedTable
from lakeproof.postgres.catalog_unpublished import SENDS_GENERATED
from lakeproof.postgres.check_findings import Finding, from_error, refusals, refuse
from lakeproof.postgres.check_privileges import lacks_for_publishing, role_name
from lakeproof.postgres.check_source import examine_server
from lakeproof.postgres.check_tables import candidate_problem, named_facts, schema_findings, suggestions, table_findings
from lakeproof.postgres.connection import Connection, close_quietly, connect, rows, source_errors
from lakeproof.postgres.replication_slot import read_slot
from lakeproof.schema import describe_left_out

_INSERTS = "insert, truncate"
_NAME_BYTES_MAX = 63
_SEND_GENERATED = SQL("ALTER PUBLICATION {} SET (publish_generated_columns = stored)")


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """The statements that `apply` would run, in order, in one transaction; `notes` are for people.

    `refused` are the tables that can't go on, published or not, each with the reason and the remedy. `lacking` are the
    privileges that the connection's `role` lacks to run it: then somebody else must.
    """

    source: str
    statements: tuple[str, ...]
    notes: tuple[str, ...]
    refused: Mapping[TableName, str] = field(default_factory=dict)
    role: str = ""
    lacking: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.statements


@dataclass(slots=True)
class _Draft:
    """A plan that is being drawn."""

    source: SourceConfig
    statements: list[Composed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: dict[TableName, str] = field(default_factory=dict)
    lacking: Sequence[str] = ()


def plan(config: Config, name: str) -> PublicationPlan:
    """Return the statements that publish the configured tables of the source `name`; none if all are published.

    Raises ConfigError if neither configuration nor publication names tables; SourceError, naming every fault, if no table
    can go on, or the server can't replicate; TransientError if it can't be reached.
    """
    source = config.source(name)
    conn = connect(source.dsn, "lakeproof plan")
    try:
        drawn = _draw(conn, source)
        statements = tuple(statement.as_string(conn) for statement in drawn.statements)
        role = role_name(conn)
        return PublicationPlan(name, statements, tuple(drawn.notes), drawn.refused, role, tuple(drawn.lacking))
    finally:
        close_quietly(conn)


def apply(config: Config, name: str, plan: PublicationPlan, report: Report = silent) -> PublicationPlan:
    """Run the statements of `plan` in one transaction and return it.

    Raises SourceError if the role may not run them, or the server refuses one (nothing is then changed), TransientError
    if it can't be reached.
    """
    source = config.source(name)
    if plan.source != name:
        raise ConfigError(f"source {name}", f"the plan is one for {plan.source}", "make it again")
    if plan.empty:
        return plan
    if plan.lacking:
        remedy = f"let the owner run it: `lakeproof plan {name} | psql …`"
        raise SourceError(f"role {plan.role}", f"it may not run this: it has not {', nor '.join(plan.lacking)}", remedy)
    conn = connect(source.dsn, "lakeproof apply")
    try:
        with source_errors(f"publication {source.publication}"), conn.transaction():
            for statement in plan.statements:
                # `plan` made it from identifiers that psycopg quoted.
                conn.execute(SQL(statement))
    finally:
        close_quietly(conn)
    for statement in plan.statements:
        report(Event("apply.statement", statement, {"source": name}))
    return plan


def _draw(conn: Connection, configured: SourceConfig) -> _Draft:
    source = with_matches(conn, configured)
    existing = publications_of(conn, source)
    unread: dict[TableName, DefiniteError] = {}
    published = read_tables(conn, source, refused=unread) if existing else {}
    if not source.tables and not published and not unread:
        raise ConfigError(f"source {source.name}", "it names no tables to publish", "list them under `tables`")
    new = [table for table in source.tables if table not in published and table not in unread]
    facts = named_facts(conn, new)
    server = examine_server(conn, source)
    near = suggestions(conn, [table for table in new if table not in facts])
    mistaken = [candidate_problem(table, facts.get(table), near.get(table)) for table in new]
    refuse([*server, *(problem for problem in mistaken if problem is not None)])
    with_stored = {_home(source, facts[t]) for t in new if facts.get(t, {}).get("has_stored")}
    generated = _generated(conn, source, existing, with_stored, published)
    candidates, problems = _candidates(conn, source, new, facts, generated)
    findings = [
        *server,
        *problems,
        *(table_findings(conn, source, published.keys() | unread.keys()) if existing else ()),
    ]
    refused = refusals(findings)
    if not refused.keys() < {*source.tables, *published, *unread}:
        refuse(findings)
    new = [table for table in new if table not in refused]
    draft = _Draft(source, refused={table: str(refused[table]) for table in sorted(refused)})
    homes = {_home(source, facts[t]) for t in new}
    creates = source.publication not in existing or bool(homes.difference(existing))
    if new or creates:
        altered = homes.intersection(existing).union(generated.switched_on)
        draft.lacking = lacks_for_publishing(conn, new, sorted(altered), creates=creates)
    draft.statements += [_SEND_GENERATED.format(Identifier(name)) for name in generated.switched_on]
    keyed, others = [t for t in new if facts[t]["has_identity"]], [t for t in new if not facts[t]["has_identity"]]
    _publish(draft, source.publication, keyed, existing, generated, always=True)
    # Both are made together: for the stream, a later one would not exist until the stream has read up to it.
    second = source.publication not in existing
    _publish(draft, _inserts(source), others, existing, generated, always=second)
    _notes(conn, draft, new, published, facts)
    left_out = {t: c.left_out for t, c in {**published, **candidates}.items() if c.left_out and t not in refused}
    draft.notes += [
        f"{table}: not published, so not in the lake: {describe_left_out(c)}" for table, c in left_out.items()
    ]
    return draft


@dataclass(frozen=True, slots=True)
class _Generated:
    """The decision on stored generated columns: supported by the server, switched on by the plan, or not sent."""

    supported: bool
    switched_on: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


def _generated(
    conn: Connection,
    source: SourceConfig,
    existing: Sequence[str],
    publications: set[str],
    published: Mapping[TableName, PublishedTable],
) -> _Generated:
    """Decide on stored generated columns; `publications` are those that get a new table with some.

    An existing publication gets the option if that changes no schema of its tables: other readers of it, and the landing,
    would see columns whose older values they do not know.
    """
    with source_errors("publications"):
        without = {str(row["pubname"]) for row in rows(conn, queries.WITHOUT_GENERATED, {"names": list(existing)})}
    if conn.info.server_version < SENDS_GENERATED:
        return _Generated(False, (), frozenset([source.publication, _inserts(source)]))
    changed = {
        name
        for table in published.values()
        for name in table.publications
        if any(column.generated == "stored" for column in table.left_out)
    }
    switched_on = sorted((without & publications) - changed)
    return _Generated(True, tuple(switched_on), frozenset(without.difference(switched_on)))


def _home(source: SourceConfig, facts: Mapping[str, Any]) -> str:
    """Return the publication that a table goes into."""
    return source.publication if facts["has_identity"] else _inserts(source)


def _candidates(
    conn: Connection,
    source: SourceConfig,
    new: Sequence[TableName],
    facts: Mapping[TableName, dict[str, Any]],
    generated: _Generated,
) -> tuple[Mapping[TableName, PublishedTable], list[Finding]]:
    """Return the tables as they would be published, and what would be wrong with them then."""
    actions = {int(facts[t]["oid"]): ACTIONS if facts[t]["has_identity"] else _INSERTS.split(", ") for t in new}
    without = [int(facts[t]["oid"]) for t in new if _home(source, facts[t]) in generated.without]
    refused: dict[TableName, DefiniteError] = {}
    tables = as_if_published(conn, source, actions, refused, without)
    findings = [finding for table in tables.values() for finding in schema_findings(table, source)]
    return tables, findings + [replace(from_error(error), table=table) for table, error in refused.items()]


def _publish(
    draft: _Draft,
    publication: str,
    tables: Sequence[TableName],
    existing: Sequence[str],
    generated: _Generated,
    *,
    always: bool,
) -> None:
    """CREATE or ALTER one publication; `always` creates it even without a table."""
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
    stored = SQL(", publish_generated_columns = stored" if generated.supported else "").format()
    draft.statements.append(
        SQL("CREATE PUBLICATION {}{} WITH ({}publish_via_partition_root = true{})").format(
            Identifier(publication), which, only, stored
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
    extra = sorted(str(table) for table in published if source.tables and not source.selection.selected(table))
    if extra:
        draft.notes.append(f"published, though not configured, and left so: {', '.join(extra)}")
    if read_slot(conn, source.slot) is None:
        draft.notes.append(f"slot {source.slot} is made by `lakeproof bootstrap`, together with its snapshot")
    elif new:
        draft.notes.append(f"then copy what is new: lakeproof bootstrap {source.name} --tables …")
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
