"""The wishes of a configuration about its publications in a database, table by table, and what there is of them.

The difference does not belong here (`statements.py`), nor judging tables (`lakeproof.postgres.checks.tables`). Before there
is a publication, tables are judged as they would be published, so that nothing is changed before all mistakes are named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakeproof.config.mistakes import nearest
from lakeproof.config.model import SourceConfig
from lakeproof.errors import ConfigError, DefiniteError, SourceError
from lakeproof.names import TableName
from lakeproof.postgres.catalog import queries
from lakeproof.postgres.catalog.published import (
    INSERTS_SUFFIX,
    Candidate,
    as_if_published,
    publications_of,
    read_tables,
)
from lakeproof.postgres.catalog.selection import with_matches
from lakeproof.postgres.catalog.tables import ACTIONS, SENDS_GENERATED, PublishedTable
from lakeproof.postgres.checks.findings import Finding, error, from_error
from lakeproof.postgres.checks.tables import candidate_problem, findings_of, named_facts
from lakeproof.postgres.connections.connect import Connection, Row, rows, source_errors
from lakeproof.postgres.publications import (
    Condition,
    ConditionRefusedError,
    Entry,
    Publication,
    read_conditions,
    read_publications,
)
from lakeproof.publication.statements import WantedEntry, WantedPublication
from lakeproof.snapshot.paused import PausedEntry, PausedTable

_INSERTS = ("insert", "truncate")
CHANGING = frozenset({"update", "delete"})
_NAME_BYTES_MAX = 63


@dataclass(frozen=True, slots=True)
class Wishes:
    """The part of each table (by name) that is to be published, and the publication that it goes into.

    With `only`, nothing but these tables is asked for. `conditions` are those of the parts; `mistakes` are findings about
    tables whose part can't be published.
    """

    source: SourceConfig
    parts: Mapping[TableName, WantedEntry]
    homes: Mapping[TableName, str]
    paused: frozenset[TableName]
    conditions: Mapping[TableName, Condition] = field(default_factory=dict)
    mistakes: tuple[Finding, ...] = ()
    only: bool = False

    def publication(self, name: str, *, without: Collection[TableName] = ()) -> WantedPublication:
        """Return the publication `name` as it is to be, if the tables `without` can't be in it."""
        main = name == self.source.publication
        tables = {t: part for t, part in self.parts.items() if self.homes[t] == name and t not in without}
        if self.only:
            return WantedPublication(name, None, tables, (), self.paused, complete=False)
        configured = self.source.publish
        operations = configured if main or configured is None else inserts_of(configured)
        schemas = self.source.schemas if main else ()
        return WantedPublication(name, operations, tables, schemas, self.paused, bool(self.source.selection))

    def candidate(self, table: TableName, actions: Sequence[str], *, generated: bool) -> Candidate:
        """Return how a table would be published with these actions."""
        part, condition = self.parts.get(table, WantedEntry()).entry, self.conditions.get(table)
        return Candidate(actions, part.columns, part.rows, () if condition is None else condition.columns, generated)


def inserts_of(operations: Sequence[str] | None) -> tuple[str, ...]:
    """Return the operations of the publication for tables without identity."""
    return tuple(operation for operation in operations or ACTIONS if operation in _INSERTS)


def inserts_name(source: SourceConfig) -> str:
    """Return the name of that publication; raises ConfigError if it would be too long."""
    name = source.publication + INSERTS_SUFFIX
    if len(name.encode()) > _NAME_BYTES_MAX:
        reason = f"its name and {INSERTS_SUFFIX} take more than {_NAME_BYTES_MAX} bytes together"
        raise ConfigError(f"publication {source.publication}", reason, "choose a shorter name")
    return name


def read_wishes(
    conn: Connection,
    source: SourceConfig,
    facts: Mapping[TableName, Row],
    paused: Mapping[TableName, PausedTable],
    *,
    only: bool,
) -> Wishes:
    """Return what the configuration asks for of the tables with these `facts`; `source` names what its patterns match.

    Raises SourceError if the server refuses a condition, else as `source_errors`.
    """
    out = frozenset(table for table, entry in paused.items() if not entry.resuming)
    named = [t for t in source.tables if t in facts and t.schema not in source.schemas and t not in out]
    texts = {int(facts[t]["oid"]): (t, rows) for t in named if (rows := source.table_config(t).rows) is not None}
    conditions = {texts[oid][0]: c for oid, c in read_conditions(conn, texts).items()}
    before = {t: paused[t].entries[0] for t in named if _is_as_before(source, t, paused)}
    listing = [t for t in named if source.table_config(t).lists_columns or t in before]
    columns = _columns(conn, [int(facts[t]["oid"]) for t in listing])
    parts, mistakes = dict[TableName, WantedEntry](), list[Finding]()
    for table in named:
        part = source.table_config(table)
        if table in before:
            oid = int(facts[table]["oid"])
            mistakes += _outdated(conn, (table, oid), before[table], columns[oid])
            parts[table] = _as_before(before[table], columns[oid])
            continue
        listed = None
        if part.lists_columns:
            names = columns[int(facts[table]["oid"])]
            remedy = "Correct its `columns` or `without` in the configuration"
            mistakes += _unknown(table, [*part.columns, *part.without], names, remedy)
            listed = tuple(n for n in names if (n in part.columns if part.columns else n not in part.without))
        condition = conditions.get(table)
        forms = () if condition is None else condition.forms
        parts[table] = WantedEntry(Entry(forms[0] if forms else None, listed), forms)
    changing = bool(CHANGING & set(source.publish or ACTIONS))
    homes = {t: source.publication if facts[t]["has_identity"] or not changing else inserts_name(source) for t in parts}
    return Wishes(source, parts, homes, out, conditions, tuple(mistakes), only)


def _is_as_before(source: SourceConfig, table: TableName, paused: Mapping[TableName, PausedTable]) -> bool:
    """True if the record says which part of a table to publish, since the configuration does not."""
    return table in paused and bool(paused[table].entries) and not source.table_config(table).is_part


def _as_before(entry: PausedEntry, names: Sequence[str]) -> WantedEntry:
    """Return the part that a table had before it was paused, without columns that it has no more."""
    columns = None if entry.columns is None else tuple(name for name in entry.columns if name in names)
    return WantedEntry(Entry(entry.rows, columns), () if entry.rows is None else (entry.rows,))


def _outdated(
    conn: Connection, table: tuple[TableName, int], entry: PausedEntry, names: Sequence[str]
) -> list[Finding]:
    """Return what a migration has left of neither columns nor condition: the table can't be published as before."""
    name, oid = table
    remedy = "Set its `columns`, `without` or `rows` in the configuration, which then count instead"
    findings = _unknown(name, entry.columns or (), names, remedy)
    if entry.rows is not None:
        try:
            read_conditions(conn, {oid: (name, entry.rows)})
        except ConditionRefusedError as error:
            reason = f"PostgreSQL refuses the condition that it was published with: {error.says}"
            findings.append(from_error(SourceError(f"table {name}", reason, remedy[0].lower() + remedy[1:])))
    return [replace(finding, table=name) for finding in findings]


def _columns(conn: Connection, oids: Sequence[int]) -> dict[int, list[str]]:
    """Return the columns of tables that a publication can send, in order."""
    sent = {"", "s"} if conn.info.server_version >= SENDS_GENERATED else {""}
    result: dict[int, list[str]] = {oid: [] for oid in oids}
    with source_errors("columns"):
        for row in rows(conn, queries.COLUMNS, {"oids": list(oids)}):
            if row["attgenerated"] in sent:
                result[int(row["attrelid"])].append(str(row["attname"]))
    return result


def _unknown(table: TableName, asked: Sequence[str], names: Sequence[str], way_out: str) -> list[Finding]:
    findings = []
    for column in asked:
        if column not in names:
            near = nearest(column, names)
            hint = "" if near is None else f"did you mean {near}? "
            remedy = f"{hint}{way_out}"
            findings.append(error(table, f"it has no column {column} that can be published", remedy))
    return findings


@dataclass(frozen=True, slots=True)
class Present:
    """The publications, the tables that they have, and those whose schema can't be read."""

    publications: Mapping[str, Publication]
    published: Mapping[TableName, PublishedTable]
    unread: Mapping[TableName, DefiniteError]
    # All published tables.
    tables: frozenset[TableName] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", frozenset({*self.published, *self.unread}))

    def elsewhere(self, name: str) -> frozenset[TableName]:
        """Return the tables that are published by no line of publication `name`, nor by one that may be taken out."""
        lines = {t for p in self.publications.values() if p.ours or p.name == name for t in p.entries}
        return self.tables - lines


def read_present(conn: Connection, source: SourceConfig) -> Present:
    """Return what there is of the source's publications. Raises as `read_tables`."""
    existing = publications_of(conn, source)
    unread: dict[TableName, DefiniteError] = {}
    published = read_tables(conn, source, refused=unread) if existing else {}
    return Present(read_publications(conn, existing), published, unread)


def as_candidates(
    conn: Connection,
    wishes: Wishes,
    facts: Mapping[TableName, Row],
    without_generated: Collection[str] = (),
) -> tuple[Mapping[TableName, PublishedTable], list[Finding]]:
    """Return the tables with these `facts` as they would be published, and why others can't be. Raises as `source_errors`.

    The publications `without_generated` send no generated column.
    """
    source = wishes.source
    candidates = {}
    for table, about in facts.items():
        home = wishes.homes.get(table, source.publication)
        actions: tuple[str, ...] = source.publish or ACTIONS
        actions = actions if home == source.publication else inserts_of(actions)
        candidates[int(about["oid"])] = wishes.candidate(table, actions, generated=home not in without_generated)
    refused: dict[TableName, DefiniteError] = {}
    tables = as_if_published(conn, source, candidates, refused)
    return tables, [replace(from_error(error), table=table) for table, error in refused.items()]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tables that the first `apply` would publish, and the findings about them; none once there is a publication."""

    tables: Sequence[PublishedTable] = ()
    findings: Sequence[Finding] = field(default=())


def read_candidates(conn: Connection, configured: SourceConfig) -> Candidates:
    """Return the candidates of a source without a publication; raises TransientError if the connection is lost.

    Names that are no table's are findings of `table_findings`.
    """
    try:
        if publications_of(conn, configured):
            return Candidates()
        source = with_matches(conn, configured)
        facts = {t: f for t, f in named_facts(conn, source.tables).items() if not candidate_problem(t, f)}
        wishes = read_wishes(conn, source, facts, {}, only=False)
        # Those of a schema that is published whole are no wishes of their own.
        tables, refused = as_candidates(conn, wishes, facts)
        about = findings_of(conn, source, list(tables.values()), readable=True)
        return Candidates(tuple(tables.values()), (*wishes.mistakes, *refused, *about))
    except DefiniteError as refusal:
        return Candidates(findings=[from_error(refusal)])
