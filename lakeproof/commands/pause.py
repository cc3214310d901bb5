"""Pauses tables for a mass migration, and resumes them with a new copy.

The record of paused tables does not belong here (`lakeproof.snapshot.paused`), nor the statements, which are those of `plan`
for these tables alone.

    pause    the record names the tables ─ they leave the publication: the server sends nothing of them
    resume   the record says so ─ they are published as before ─ they are copied ─ the record names them no more

`bootstrap` removes each table that it has copied from the record, so a `resume` that fails for one table is done for the
rest. A command that is killed between two of these steps is run again. All other tables go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.publish import PublicationPlan, apply, plan
from lakeproof.config.mistakes import nearest_table
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import ConfigError, SourceError
from lakeproof.events import Event, Report, Stop
from lakeproof.failpoints import failpoint
from lakeproof.names import TableName
from lakeproof.postgres.catalog_published import publications_of
from lakeproof.postgres.catalog_tables import Way
from lakeproof.postgres.connection import close_quietly, connect
from lakeproof.postgres.publication_lines import Publication, read_publications
from lakeproof.postgres.publication_ways import out_of
from lakeproof.snapshot.paused import PausedEntry, PausedTable, add_paused, read_paused, set_resuming
from lakeproof.snapshot.run import SnapshotReport
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text


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
    publications = _publications(source)
    # What is in the record has left its publication, or may have: one that was to be resumed is paused anew.
    return {t: already[t] if t in already else _paused(source, publications, t) for t in tables}


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
    return bootstrap(config, name, chosen, report, stop)


def _publications(source: SourceConfig) -> Mapping[str, Publication]:
    conn = connect(source.dsn, "lakeproof pause")
    try:
        return read_publications(conn, publications_of(conn, source))
    finally:
        close_quietly(conn)


def _paused(source: SourceConfig, publications: Mapping[str, Publication], table: TableName) -> PausedTable:
    """Return the record of a table that is paused now; raises if it can't be."""
    whole = [p.name for p in publications.values() if p.all_tables or table.schema in p.schemas]
    if whole:
        reason = f"publication {whole[0]} has it with all tables of its database or schema, and leaves none of them out"
        way = Way.ALL if publications[whole[0]].all_tables else Way.SCHEMA
        raise SourceError(f"table {table}", reason, f"{out_of(whole[0], way, [table], source.name)}; then pause it")
    entries = tuple(
        PausedEntry(p.name, p.entries[table].rows, p.entries[table].columns)
        for p in publications.values()
        if table in p.entries
    )
    if not entries:
        near = nearest_table(table, {t for p in publications.values() for t in p.entries})
        remedy = "name a published table" if near is None else f"did you mean {near}?"
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
