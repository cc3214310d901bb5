"""The publication that a source needs, as SQL that is shown before it is run.

Running it does not belong here (`lakeproof.commands.publish`). The slot is made by `lakeproof bootstrap`, together with its
snapshot.

One source has one publication in its configuration. A table without replica identity can't be in it: publishing its updates
would make the *application's* UPDATE and DELETE fail. The published actions are a property of the publication, so such
tables go into a second one, `<publication>_inserts`, which publishes insert and truncate only; the drain then
reads both. Truncate is among them because it needs no identity, and pgbench, for one, truncates its history table.

Patterns of the configuration become the tables that they match now, by name: a publication of a whole schema takes a
superuser, and would publish the updates of tables without identity. Both publications publish a partitioned table under its
own name (`publish_via_partition_root`), and from PostgreSQL 18 on stored generated columns (`publish_generated_columns`). A
publication without that option gets it with a new table, unless it would change the schema of a table that is published.

What is in a publication that `plan` made follows the configuration, in both directions. In any other one tables are added
and nothing else is done (docs/decisions/0052-publications-by-configuration.md).
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from psycopg.sql import Composed, Identifier

from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import EVERY_SCHEMA, table_text
from lakeproof.errors import ConfigError, SourceError
from lakeproof.names import TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.published import INSERTS_SUFFIX
from lakeproof.postgres.catalog.selection import with_matches
from lakeproof.postgres.catalog.tables import SENDS_GENERATED
from lakeproof.postgres.checks.findings import Finding, Severity, refuse, refused_tables
from lakeproof.postgres.checks.privileges import lacks_for_publishing, lacks_superuser, missing_grants
from lakeproof.postgres.checks.source import examine_server
from lakeproof.postgres.checks.tables import (
    candidate_problem,
    named_facts,
    schema_findings,
    suggestions,
    table_findings,
)
from lakeproof.postgres.connections.connect import Connection, Row, rows
from lakeproof.postgres.publications import MARK, Publication
from lakeproof.postgres.replication_slot import read_slot
from lakeproof.publication.statements import SEND_GENERATED, Alterations, alterations, creation
from lakeproof.publication.wishes import (
    CHANGING,
    Present,
    Wishes,
    as_candidates,
    inserts_name,
    inserts_of,
    read_present,
    read_wishes,
)
from lakeproof.schema import describe_left_out
from lakeproof.snapshot.paused import PausedTable

# Of hundreds of tables a note names none.
_NAMES_MAX = 20


@dataclass(slots=True)
class Draft:
    """A plan that is being drawn.

    It alters the publications `altered`, `creates` one or more, and publishes `schemas` whole or not.
    """

    source: SourceConfig
    statements: list[Composed] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: dict[TableName, str] = field(default_factory=dict)
    lacking: Sequence[str] = ()
    added: list[TableName] = field(default_factory=list)
    removed: list[TableName] = field(default_factory=list)
    altered: set[str] = field(default_factory=set)
    creates: bool = False
    schemas: bool = False
    grants: list[Composed] = field(default_factory=list)

    def take(self, name: str, done: Alterations) -> None:
        self.altered |= {name} if done.statements else set()
        self.schemas = self.schemas or bool(done.schemas)
        self.statements += done.statements
        self.notes += done.notes
        self.added += done.added
        self.removed += done.removed


def check_follows(source: SourceConfig, publications: Iterable[Publication]) -> None:
    """Raise SourceError for a publication of another source: each would take out the tables of the other."""
    others = [publication for publication in publications if publication.follows not in {None, source.name}]
    if others:
        names, other = ", ".join(publication.name for publication in others), others[0].follows
        marks = "; ".join(f"COMMENT ON PUBLICATION {publication.name} IS '{MARK}…'" for publication in others)
        reason = f"what is in it follows the configuration of source {other}, not of {source.name}"
        remedy = f"configure another publication; or, if that source has got another name, mark it anew: {marks}"
        raise SourceError(f"publication {names}", reason, remedy)


def draw(
    conn: Connection,
    configured: SourceConfig,
    paused: Mapping[TableName, PausedTable],
    only: Collection[TableName] | None,
) -> Draft:
    """Draw the plan of a source, or of the tables `only`. Raises as `plan`."""
    source = with_matches(conn, configured)
    present = read_present(conn, source)
    check_follows(source, present.publications.values())
    if not source.tables and not present.tables and not source.schemas:
        raise ConfigError(f"source {source.name}", "it names no tables to publish", "list them under `tables`")
    facts = named_facts(conn, source.tables)
    server = examine_server(conn, source, role=False)
    new = [table for table in source.tables if table not in present.tables]
    near = suggestions(conn, [table for table in new if table not in facts])
    mistaken = [candidate_problem(table, facts.get(table), near.get(table)) for table in new]
    refuse([*server, *(problem for problem in mistaken if problem is not None)])
    wishes = read_wishes(conn, source, facts, paused, only=only is not None)
    planned = {name: _changes(wishes, present, name) for name in present.publications}
    touched = {t for done in planned.values() for t in done.added}
    touched |= {t for t in wishes.parts if t not in present.tables}
    whole = _newly_whole(source, present)
    leaving = {t for done in planned.values() for t in done.removed} - touched - whole
    generated = _generated(conn, source, present, {wishes.homes[t] for t in touched if facts[t]["has_stored"]})
    candidates, refused_ones = as_candidates(conn, wishes, {t: facts[t] for t in touched | whole}, generated.without)
    problems = [finding for table in candidates.values() for finding in schema_findings(table, source)] + refused_ones
    judged = {t for t in present.tables - touched - leaving - whole if only is None or t in only}
    findings = [
        *server,
        *wishes.mistakes,
        *(_of_all(finding, whole) for finding in problems),
        *(table_findings(conn, source, judged, readable=False) if present.tables else ()),
    ]
    refused = refused_tables(findings)
    if not refused.keys() < {*source.tables, *judged}:
        refuse(findings)
    draft = Draft(source, refused={table: str(refused[table]) for table in sorted(refused)})
    draft.statements += [SEND_GENERATED.format(Identifier(name)) for name in generated.switched_on]
    _publish(draft, wishes, present, generated)
    draft.lacking = _lacking(conn, draft, generated)
    draft.grants = _grants(
        conn, source, present, {t: facts[t] for t in wishes.parts.keys() | whole if t not in refused}
    )
    _notes(conn, draft, wishes, present, facts)
    left_out = {t: c.left_out for t, c in {**present.published, **candidates}.items() if c.left_out}
    draft.notes += [
        f"{table}: not published, so not in the lake: {describe_left_out(columns)}"
        for table, columns in left_out.items()
        if table not in refused and table not in leaving
    ]
    return draft


def _changes(wishes: Wishes, present: Present, name: str, *, without: Collection[TableName] = ()) -> Alterations:
    """Return what alters an existing publication; the tables `without` can't be published, and stay as they are."""
    actual = present.publications[name]
    stays = {t: entry for t, entry in actual.entries.items() if t not in without}
    return alterations(
        wishes.publication(name, without=without), replace(actual, entries=stays), present.elsewhere(name)
    )


def _newly_whole(source: SourceConfig, present: Present) -> set[TableName]:
    """Return the tables of whole schemas that are published anew, or with updates and deletes from now on."""
    main = present.publications.get(source.publication)
    before = (
        () if main is None or CHANGING.intersection(source.publish or ()).difference(main.operations) else main.schemas
    )
    whole = {t for t in source.tables if t.schema in source.schemas}
    return {t for t in whole if t.schema not in before or t not in present.tables}


def _of_all(finding: Finding, whole: Collection[TableName]) -> Finding:
    """Return a finding about a table of a schema that is published whole as one about all: nothing leaves it out."""
    if finding.table not in whole or finding.severity is not Severity.ERROR:
        return finding
    remedy = f"{finding.remedy}; or name the schema's tables under `tables` instead of `schemas`"
    return replace(finding, table=None, remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Generated:
    """The decision on stored generated columns: supported by the server, switched on by the plan, or not sent."""

    supported: bool
    switched_on: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()


def _generated(conn: Connection, source: SourceConfig, present: Present, publications: set[str]) -> _Generated:
    """Decide on stored generated columns; `publications` are those that get a new table with some.

    An existing publication gets the option if that changes no schema of its tables: other readers of it, and the landing,
    would see columns whose older values they do not know.
    """
    names = list(present.publications)
    without = {
        str(row["pubname"]) for row in rows(conn, queries.WITHOUT_GENERATED, {"names": names}, about="publications")
    }
    if conn.info.server_version < SENDS_GENERATED:
        return _Generated(False, (), frozenset([source.publication, source.publication + INSERTS_SUFFIX]))
    changed = {
        name
        for table in present.published.values()
        for name in table.publications
        if any(column.generated == "stored" for column in table.left_out)
    }
    switched_on = sorted((without & publications) - changed)
    return _Generated(True, tuple(switched_on), frozenset(without.difference(switched_on)))


def _publish(draft: Draft, wishes: Wishes, present: Present, generated: _Generated) -> None:
    """Add the statements that create or alter the two publications."""
    source, refused = draft.source, draft.refused.keys()
    # Both are made together: for the stream, a later one would not exist until the stream has read up to it.
    both = source.publication not in present.publications
    inserts = inserts_name(source) if both else source.publication + INSERTS_SUFFIX
    for name in (source.publication, inserts):
        if name in present.publications:
            draft.take(name, _changes(wishes, present, name, without=refused))
            continue
        goal = wishes.publication(name, without=refused | present.elsewhere(name))
        if both or goal.tables:
            main = name == source.publication
            operations: tuple[str, ...] = source.publish or ()
            operations = operations if main else inserts_of(operations)
            draft.statements += creation(goal, source.name, operations, generated=generated.supported)
            draft.added += goal.tables
            draft.creates, draft.schemas = True, draft.schemas or bool(goal.schemas)


def _lacking(conn: Connection, draft: Draft, generated: _Generated) -> list[str]:
    """Return the privileges that the role lacks to run the plan."""
    if not draft.statements:
        return []
    lacking = lacks_for_publishing(
        conn, draft.added, sorted(draft.altered.union(generated.switched_on)), creates=draft.creates
    )
    return [*lacking, *(lacks_superuser(conn) if draft.schemas else [])]


def _grants(conn: Connection, source: SourceConfig, present: Present, facts: Mapping[TableName, Row]) -> list[Composed]:
    """Return what the role lacks to read the tables that are selected, and those that patterns will match."""
    oids = {int(about["oid"]) for about in facts.values()}
    selection = source.selection
    followed = {t: p for t, p in present.published.items() if not selection or selection.selected(t)}
    oids |= {int(published.version.oid) for published in followed.values()}
    schemas = {pattern.schema for pattern in source.patterns}
    if EVERY_SCHEMA in schemas:
        schemas |= {table.schema for table in source.tables}
    return missing_grants(conn, oids, schemas - {EVERY_SCHEMA})


def _notes(
    conn: Connection,
    draft: Draft,
    wishes: Wishes,
    present: Present,
    facts: Mapping[TableName, Row],
) -> None:
    source, selection = draft.source, draft.source.selection
    new = [t for t in draft.added if t not in present.tables]
    for table in new:
        if not facts[table]["has_identity"]:
            draft.notes.append(
                f"{table} has no replica identity: only its inserts and truncates are published; "
                "an UPDATE or DELETE on it will not reach the lake"
            )
    draft.notes += _leaving(draft, wishes)
    left = set[TableName]() if wishes.only else present.tables - set(draft.removed) - wishes.paused
    extra = sorted(str(table) for table in left if selection and not selection.selected(table))
    if extra:
        draft.notes.append(f"published, though not configured, and left so: {', '.join(extra)}")
    if read_slot(conn, source.slot) is None:
        draft.notes.append(f"slot {source.slot} is made by `lakeproof bootstrap`, together with its snapshot")
    elif draft.added:
        names = shlex.quote(",".join(map(table_text, draft.added))) if len(draft.added) <= _NAMES_MAX else "…"
        draft.notes.append(f"then copy what is new: lakeproof bootstrap {source.name} --tables {names}")
    all_tables = rows(conn, queries.FOR_ALL_TABLES, about="publications")
    if all_tables:
        names = ", ".join(str(row["pubname"]) for row in all_tables)
        draft.notes.append(
            f"beware of publications FOR ALL TABLES ({names}): UPDATE and DELETE on any table without identity fail"
        )


def _leaving(draft: Draft, wishes: Wishes) -> Iterator[str]:
    """Yield what becomes of tables that leave a publication, and of those whose part of it changes."""
    schemas = draft.source.schemas
    stay = {t for t in draft.removed if t in draft.added or (t.schema in schemas and t not in wishes.paused)}
    again = sorted(map(str, stay))
    if again:
        yield f"published anew, with other rows or columns or at another place, and to be copied again: {', '.join(again)}"
    gone = sorted(set(draft.removed) - stay)
    paused = [str(table) for table in gone if table in wishes.paused]
    left = [str(table) for table in gone if table not in wishes.paused]
    if paused:
        yield f"paused: {', '.join(paused)}; `lakeproof resume {draft.source.name}` brings back what it names"
    if left:
        yield (
            f"taken out, since the configuration does not select it: {', '.join(left)}; the lake keeps what it has of"
            " it, and `status` shows it as left"
        )
