"""Changes what is published of a source: `plan` and `apply`, and `pause` and `resume` of tables for a mass migration.

Drawing the plan does not belong here (`lakeproof.publication`), nor the record of paused tables (`snapshot.paused`).
The statements of `pause` and `resume` are those of `plan` for these tables alone.

    pause    the record names the tables ─ they leave the publication: the server sends nothing of them
    resume   the record says so ─ they are published as before ─ they are copied ─ the record names them no more

Each table that was copied leaves the record, so a `resume` that fails for one table is done for the rest. A command that is
killed between two of these steps is run again. All other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from psycopg.sql import SQL

from lakeproof.config.mistakes import table_hint
from lakeproof.config.model import Config, SourceConfig
from lakeproof.descriptions import describe_quietly
from lakeproof.errors import ConfigError, DefiniteError, LakeError, SourceError
from lakeproof.events import Event, Report, Stop, silent
from lakeproof.failpoints import failpoint
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import publications_of, read_tables
from lakeproof.postgres.catalog.tables import PublicationWay
from lakeproof.postgres.checks.privileges import role_name
from lakeproof.postgres.connections.connect import connect, source_errors
from lakeproof.postgres.publications import Publication, out_of, read_publications
from lakeproof.publication.draft import draw
from lakeproof.snapshot.paused import PausedEntry, PausedTable, add_paused, read_paused, set_resuming
from lakeproof.snapshot.run import SnapshotReport, copy_tables
from lakeproof.state.absent import absence
from lakeproof.state.source_state import SourceState
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text


@dataclass(frozen=True, slots=True)
class PublicationPlan:
    """The statements that `apply` would run, in order, in one transaction; `notes` are for people.

    `refused` are the tables that can't go on, published or not, each with the reason and the remedy. `lacking` are the
    privileges that the connection's `role` lacks to run it: then somebody else must. `added` and `removed` are the tables
    that come into a publication and leave one; a table whose part changes does both. `grants` come first, and somebody else
    runs them: the role can't give itself what it lacks to read the tables.
    """

    source: str
    statements: tuple[str, ...]
    notes: tuple[str, ...]
    refused: Mapping[TableName, str] = field(default_factory=dict)
    role: str = ""
    lacking: tuple[str, ...] = ()
    added: tuple[TableName, ...] = ()
    removed: tuple[TableName, ...] = ()
    grants: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True if there is nothing to do."""
        return not self.statements and not self.grants


def plan(config: Config, name: str, *, only: Collection[TableName] | None = None) -> PublicationPlan:
    """Return the statements that make the publications of the source `name` what its configuration asks for.

    With `only`, nothing but these tables is looked at: they come into a publication, or leave it if they are paused.
    Raises ConfigError if neither configuration nor publication names tables; SourceError, naming every fault, if no table
    can go on, or the server can't replicate; TransientError if it can't be reached.
    """
    source = _only(config.source(name), only)
    paused = read_paused(SourceLake.open(config.location, name))
    with connect(source.dsn, "lakeproof plan") as conn:
        drawn = draw(conn, source, {t: entry for t, entry in paused.items() if only is None or t in only}, only)
        return PublicationPlan(
            name,
            tuple(statement.as_string(conn) for statement in drawn.statements),
            (*drawn.notes, *_absent(config, name)),
            drawn.refused,
            role_name(conn),
            tuple(drawn.lacking),
            tuple(sorted(drawn.added)),
            tuple(sorted(drawn.removed)),
            tuple(statement.as_string(conn) for statement in drawn.grants),
        )


def _absent(config: Config, name: str) -> list[str]:
    """Return a note for each table that is published and in no lake; nothing of a lake that can't be read."""
    try:
        return [f"{table}: {why}" for table, why in absence(SourceState.of(config, name)).tables.items()]
    except LakeError:
        return []


def apply(config: Config, name: str, plan: PublicationPlan, report: Report = silent) -> PublicationPlan:
    """Run the statements of `plan` in one transaction and return it.

    Raises SourceError if the role may not run them, or the server refuses one (nothing is then changed), TransientError
    if it can't be reached.
    """
    source = config.source(name)
    if plan.source != name:
        raise ConfigError(f"source {name}", f"the plan is one for {plan.source}", "make it again")
    if not plan.statements:
        return plan
    if plan.lacking:
        remedy = f"let the owner run it: `lakeproof plan {name} | psql …`"
        raise SourceError(f"role {plan.role}", f"it may not run this: it has not {', nor '.join(plan.lacking)}", remedy)
    thing = f"publication {source.publication}"
    with connect(source.dsn, "lakeproof apply") as conn, source_errors(thing), conn.transaction():
        for statement in plan.statements:
            # `plan` made it from identifiers that psycopg quoted.
            conn.execute(SQL(statement))
    for statement in plan.statements:
        report(Event("apply.statement", statement, {"source": name}))
    return plan


def _only(source: SourceConfig, only: Collection[TableName] | None) -> SourceConfig:
    """Return the source with these tables alone."""
    if only is None:
        return source
    return source.model_copy(update={"tables": tuple(only), "patterns": (), "exclude": (), "schemas": ()})


def pause(config: Config, name: str, tables: Sequence[TableName], report: Report) -> PublicationPlan:
    """Take `tables` of the source `name` out of its publications until `resume`, and return the statements that did it.

    Raises ConfigError for a table that is not published, SourceError for one that its publication has with all others, or if
    the role may not alter the publication: the tables are paused then as soon as the owner has run what `plan` shows.
    """
    add_paused(SourceLake.open(config.location, name), plan_pause(config, name, tables))
    failpoint("pause.after_record")
    done = apply(config, name, plan(config, name, only=tables), report)
    report(Event("pause.done", f"paused {', '.join(map(str, tables))}", {"source": name}))
    return done


def plan_pause(config: Config, name: str, tables: Sequence[TableName]) -> dict[TableName, PausedTable]:
    """Return what `pause` would take out of publications, and change nothing; raises ConfigError, SourceError as `pause`."""
    source = config.source(name)
    already = read_paused(SourceLake.open(config.location, name))
    with connect(source.dsn, "lakeproof pause") as conn:
        publications = read_publications(conn, publications_of(conn, source))
        published = {t for publication in publications.values() for t in publication.entries}
        if any(publication.is_whole for publication in publications.values()):
            refused: dict[TableName, DefiniteError] = {}
            published.update(read_tables(conn, source, refused=refused), refused)
    # What is in the record has left its publication, or may have: one that was to be resumed is paused anew.
    return {t: already[t] if t in already else _paused(source, publications, published, t) for t in tables}


def resume(
    config: Config, name: str, tables: Sequence[TableName] | None, report: Report, stop: Stop | None = None
) -> SnapshotReport:
    """Publish paused `tables` (None: all of them) as they were, and copy them again.

    Raises ConfigError for a table that is not paused, else as `apply` and `bootstrap`; it is then run again.
    """
    lake = SourceLake.open(config.location, name)
    chosen = _chosen(name, read_paused(lake), tables)
    set_resuming(lake, chosen)
    failpoint("resume.after_record")
    apply(config, name, plan(config, name, only=chosen), report)
    failpoint("resume.after_publish")
    result = copy_tables(config, name, chosen, report, stop)
    describe_quietly(config, name, report)
    return result


def _paused(
    source: SourceConfig, publications: Mapping[str, Publication], published: Collection[TableName], table: TableName
) -> PausedTable:
    """Return the record of a table that is paused now; raises if it can't be. `published` are all that may be named."""
    whole = [p.name for p in publications.values() if p.all_tables or table.schema in p.schemas]
    if whole and table in published:
        reason = f"publication {whole[0]} has it with all tables of its database or schema, and leaves none of them out"
        way = PublicationWay.ALL if publications[whole[0]].all_tables else PublicationWay.SCHEMA
        raise SourceError(f"table {table}", reason, f"{out_of(whole[0], way, [table], source.name)}; then pause it")
    entries = tuple(
        PausedEntry(p.name, p.entries[table].rows, p.entries[table].columns)
        for p in publications.values()
        if table in p.entries
    )
    if not entries:
        remedy = table_hint(table, published, "name a published table")
        raise ConfigError(f"table {table}", f"publication {source.publication} does not have it", remedy)
    return PausedTable(now_text(), entries)


def _chosen(
    name: str, paused: Mapping[TableName, PausedTable], tables: Sequence[TableName] | None
) -> Sequence[TableName]:
    for table in tables or ():
        if table not in paused:
            names = ", ".join(map(str, sorted(paused))) or "none is"
            raise ConfigError(f"table {table}", "it is not paused", f"name paused tables of {name}: {names}")
    if not paused:
        raise ConfigError(f"source {name}", "no table of it is paused", "pause one with `lakeproof pause`")
    return sorted(paused) if tables is None else list(tables)
