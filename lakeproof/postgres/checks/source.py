"""Checks everything that can be wrong with a source before a pipeline runs, without stopping at the first finding.

Single tables are in `tables.py`; `lakeproof.continuity.gap` compares slot and landing. Nothing here changes anything on the
source.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from psycopg.sql import SQL

from lakeproof.config.model import SourceConfig
from lakeproof.config.table_names import table_text
from lakeproof.errors import DefiniteError, SourceError, manual
from lakeproof.events import counted, listed
from lakeproof.names import TableName
from lakeproof.postgres.catalog.published import publications_of, read_tables
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.checks.findings import Finding, error, from_error, note, warning
from lakeproof.postgres.checks.privileges import as_identifier, lacks_for_publishing, role_name
from lakeproof.postgres.checks.tables import table_findings
from lakeproof.postgres.connections.connect import Connection, Row, rows, source_errors
from lakeproof.postgres.connections.pooler import is_pooled, server_of
from lakeproof.postgres.connections.security import is_exposed
from lakeproof.postgres.replication_slot import SlotState, name_problem, read_slot, slot_problem
from lakeproof.postgres.server import identify

_OUR_NAME = "lakeproof"
# Row filters, column lists and publications of whole schemas.
PARTS_SINCE = 150_000

_SETTINGS = SQL("""
SELECT name, setting, unit FROM pg_catalog.pg_settings
WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders', 'max_slot_wal_keep_size', 'wal_sender_timeout',
               'idle_replication_slot_timeout', 'server_encoding')
""")

_ROLE = SQL("""
SELECT current_user::text AS name,
       r.rolsuper OR r.rolreplication OR EXISTS (
         SELECT FROM pg_catalog.pg_roles h
         WHERE h.rolname = 'rds_replication' AND pg_catalog.pg_has_role(h.oid, 'USAGE')
       ) AS may_replicate,
       (SELECT count(*) FROM pg_catalog.pg_replication_slots) AS slots,
       (SELECT count(*) FROM pg_catalog.pg_stat_replication) AS senders,
       pg_catalog.pg_is_in_recovery() AS recovering
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
""")

_PUBLICATION = SQL("""
SELECT pubname::text, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate
FROM pg_catalog.pg_publication WHERE pubname = ANY ({names}::name[])
""")

_HOLDER = SQL("SELECT application_name FROM pg_catalog.pg_stat_replication WHERE pid = {pid}")
_CATALOG_TABLES = SQL("""
SELECT n.nspname::text AS schema, c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'm') AND c.relpersistence = 'p' AND EXISTS (
  SELECT FROM unnest(c.reloptions) o WHERE split_part(o, '=', 1) = 'user_catalog_table'
    AND lower(split_part(o, '=', 2)) IN ('true', 'on', 'yes', '1', 't', 'y')
)
ORDER BY 1, 2
""")
# A slot with so many times the changes of another is worth an advice.
LOPSIDED = 2
# A longer list of tables to move is a new division, which a person makes.
MOVES_MAX = 20
_CHANGES = SQL("""
SELECT relid::bigint AS oid, (n_tup_ins + n_tup_upd + n_tup_del)::bigint AS changes
FROM pg_catalog.pg_stat_user_tables WHERE relid = ANY ({oids}::oid[])
""")

_Changes: TypeAlias = Mapping[str, Mapping[TableName, int]]


def examine(
    conn: Connection,
    source: SourceConfig,
    only: Iterable[TableName] | None = None,
    *,
    paused: Collection[TableName] = (),
    in_lake: Collection[TableName] = (),
) -> list[Finding]:
    """Return all findings about the source: server, role, slot, publication and published tables (of `only`, if given).

    The tables `paused` are not published, as a person wants it; those `in_lake` existed once.
    Raises TransientError if the connection is lost meanwhile.
    """
    chosen = None if only is None else frozenset(only)
    return [
        *examine_server(conn, source),
        *_gather(lambda: _publication(conn, source)),
        *_gather(lambda: _catalog_tables(conn)),
        *_gather(lambda: table_findings(conn, source, chosen, paused=paused, in_lake=in_lake)),
        *_gather(lambda: _may_publish(conn, source, chosen, paused)),
    ]


def examine_server(conn: Connection, source: SourceConfig, *, role: bool = True) -> list[Finding]:
    """Return the findings that do not depend on the publication: server, slot and, with `role`, the role's attributes."""
    about_slot = [replace(finding, about_slot=True) for finding in _gather(lambda: _slot(conn, source))]
    about_role = _gather(lambda: _role(conn)) if role else []
    return [*_gather(lambda: _server(conn, source)), *about_role, *about_slot]


def _gather(check: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """Return the findings of a check; one that ends with an error has found that, too."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except DefiniteError as refusal:
        findings.append(from_error(refusal))
    return findings


def _server(conn: Connection, source: SourceConfig) -> Iterator[Finding]:
    with source_errors("the source's server"):
        settings = {row["name"]: row["setting"] for row in rows(conn, _SETTINGS)}
        role = rows(conn, _ROLE)[0]
    if settings["wal_level"] != "logical":
        remedy = "ALTER SYSTEM SET wal_level = logical, then restart the server (on RDS: rds.logical_replication = 1)"
        yield error("server", f"wal_level is {settings['wal_level']}, not logical", remedy)
    if role["recovering"]:
        yield error("server", "it is a standby", "name the primary in the DSN")
    yield from _pooler(conn)
    if is_exposed(conn):
        reason = "it is another machine, and the connection is not encrypted: rows travel in the clear"
        yield warning(
            "server", reason, f"add sslmode=verify-full to the DSN ({manual('Running it', 'Over a network')})"
        )
    yield from _too_old(conn.info.server_version, source)
    needed = 1 if _exists(conn, source) else 2
    yield from _room(
        "replication slot", "max_replication_slots", int(settings["max_replication_slots"]) - role["slots"], needed
    )
    yield from _room("walsender", "max_wal_senders", int(settings["max_wal_senders"]) - role["senders"], 2)
    yield from _limits(settings, source)


def _pooler(conn: Connection) -> Iterator[Finding]:
    """Yield the finding that a pooler, or a proxy, answers in the server's place."""
    with source_errors("the source's server"):
        pooled = is_pooled(conn)
    if pooled:
        reason = (
            "the process that answers is not the one that was named when the connection began: a pooler of connections, "
            "through which nobody can read the log, or a provider's proxy, which passes all on"
        )
        yield warning("server", reason, f"if it is a pooler, {server_of(conn.info.get_parameters())}")


def _role(conn: Connection) -> Iterator[Finding]:
    role = rows(conn, _ROLE, about="the role")[0]
    if not role["may_replicate"]:
        name = as_identifier(role["name"])
        remedy = f"ALTER ROLE {name} REPLICATION (on RDS: GRANT rds_replication TO {name})"
        yield error(f"role {role['name']}", "it does not have the attribute REPLICATION", remedy)


def _too_old(server_version: int, source: SourceConfig) -> Iterator[Finding]:
    """Yield the finding that PostgreSQL 14 publishes neither parts of tables nor whole schemas."""
    parts = [table_text(table) for table, part in sorted(source.table.items()) if part.is_part]
    if server_version >= PARTS_SINCE or not (parts or source.schemas):
        return
    asked = [f"rows or columns of {', '.join(parts)}"] if parts else []
    asked += [f"the whole of schema {', '.join(source.schemas)}"] if source.schemas else []
    reason = f"it is PostgreSQL {server_version // 10_000}, which can't publish {' nor '.join(asked)}: 15 and later can"
    yield error(
        "server", reason, "upgrade it, or take `rows`, `columns`, `without` and `schemas` out of the configuration"
    )


def _exists(conn: Connection, source: SourceConfig) -> bool:
    return name_problem(source.slot) is None and read_slot(conn, source.slot) is not None


def _room(resource: str, setting: str, free: int, needed: int) -> Iterator[Finding]:
    remedy = f"raise {setting} and restart the server, or end what is not needed"
    if free < 1:
        yield error("server", f"there is no free {resource}: {setting} is reached", remedy)
    elif free < needed:
        reason = f"there is one free {resource}: a snapshot or a proof needs another beside the drain's"
        yield warning("server", reason, remedy)


def _limits(settings: Row, source: SourceConfig) -> Iterator[Finding]:
    if settings["max_slot_wal_keep_size"] != "-1":
        reason = f"max_slot_wal_keep_size is {settings['max_slot_wal_keep_size']} MB: a slot further behind is lost"
        yield note("server", reason, "watch `lakeproof status`; raise it if the disk allows")
    else:
        reason = "max_slot_wal_keep_size is unlimited: while nobody drains, the slot keeps WAL until the disk is full"
        yield warning(
            "server", reason, "set it to what the disk can spare (ALTER SYSTEM, no restart), and watch the slot"
        )
    idle_s = int(settings.get("idle_replication_slot_timeout") or 0)
    if idle_s > 0:
        reason = f"idle_replication_slot_timeout is {idle_s} s: a drain stopped for longer loses its slot"
        yield warning("server", reason, "set it to 0, or keep the drain running")
    timeout_s = int(settings["wal_sender_timeout"]) / 1000
    if 0 < timeout_s < 2 * source.drain.status_interval_s:
        reason = f"wal_sender_timeout is {timeout_s:g} s, a status is sent every {source.drain.status_interval_s:g} s"
        yield warning("server", reason, f"set drain.status_interval_s to {timeout_s / 6:g} or less")
    if settings["server_encoding"] == "SQL_ASCII":
        reason = "its encoding is SQL_ASCII: a table with a text that is not UTF-8 is not copied, or held"
        yield warning("database", reason, "convert such texts, or the database")


def _slot(conn: Connection, source: SourceConfig) -> Iterator[Finding]:
    thing = f"slot {source.slot}"
    problem = name_problem(source.slot)
    if problem is not None:
        yield error(thing, problem, "correct the slot's name in the configuration")
        return
    state = read_slot(conn, source.slot)
    if state is None:
        # The lake decides if it is yet to be made, or lost.
        return
    trouble = slot_problem(state, identify(conn).database)
    if trouble is not None:
        yield from_error(trouble)
    if state.active:
        yield _holder(conn, state)


def _holder(conn: Connection, state: SlotState) -> Finding:
    senders = rows(conn, _HOLDER, {"pid": state.active_pid}, about=f"slot {state.name}")
    name = (senders[0]["application_name"] or "") if senders else ""
    if name.startswith(_OUR_NAME):
        return note(f"slot {state.name}", f"it is in use by {name!r}, process {state.active_pid}", "that is a drain")
    application = f" ({name})" if name else ""
    reason = f"it is in use by process {state.active_pid}{application}, which is no drain"
    return error(f"slot {state.name}", reason, "end that process, or name another slot in the configuration")


def _may_publish(
    conn: Connection, source: SourceConfig, only: frozenset[TableName] | None, paused: Collection[TableName]
) -> Iterator[Finding]:
    """Yield a note if something is still to be published and the role may not do it."""
    existing = publications_of(conn, source)
    published = read_tables(conn, source, refused={}) if existing else {}
    chosen = [t for t in source.tables if t not in paused and (only is None or t in only)]
    new = [t for t in chosen if t not in published]
    if existing and not new:
        return
    lacking = lacks_for_publishing(conn, new, existing, creates=source.publication not in existing)
    if lacking:
        reason = f"it can't run what `lakeproof apply` runs: it lacks {' and '.join(lacking)}"
        remedy = f"let the owner run `lakeproof plan {source.name} | psql …`"
        yield note(f"role {role_name(conn)}", reason, remedy)


def _publication(conn: Connection, source: SourceConfig) -> Iterator[Finding]:
    names = publications_of(conn, source)
    if not names:
        raise SourceError(f"publication {source.publication}", "it does not exist", "run `lakeproof apply`")
    publications = rows(conn, _PUBLICATION, {"names": names}, about=f"publication {source.publication}")
    for row in publications:
        thing = f"publication {row['pubname']}"
        name = as_identifier(row["pubname"])
        if row["puballtables"] and (row["pubupdate"] or row["pubdelete"]):
            reason = (
                "it is FOR ALL TABLES: a table created later without a primary key or identity is published at once, "
                "and the application's own UPDATE and DELETE on it then fail"
            )
            yield warning(thing, reason, "publish named tables, as `lakeproof plan` does")
        if not row["pubinsert"]:
            yield error(thing, "it does not publish inserts", f"ALTER PUBLICATION {name} SET (publish = …)")


def _catalog_tables(conn: Connection) -> Iterator[Finding]:
    """Yield one warning that names the database's user catalog tables, if it has any.

    A table WITH (user_catalog_table = true) is for an output plugin that looks into it: the server reads it while it
    decodes, like its own catalog. Where it is dropped before a slot has read the changes of its rows, the server fails at
    them, whether a publication has the table or not (`lakeproof.landing.stuck`).
    """
    lines = rows(conn, _CATALOG_TABLES, about="the database's user catalog tables")
    names = [table_text(TableName(row["schema"], row["name"])) for row in lines]
    if not names:
        return
    yield warning(
        "server",
        f"{listed(names)}: with user_catalog_table = true; if such a table is dropped before the slot has read the changes"
        " of its rows, published or not, the server can't send the stream any further",
        f"ALTER TABLE {names[0]} RESET (user_catalog_table), unless an output plugin needs it; before a DROP TABLE let the "
        "drain catch up",
    )


def spread(group: str, changes: _Changes) -> Finding:
    """Return the note: the changes of each slot, and a better division if they differ by more than `LOPSIDED` times."""
    sums = {source: sum(tables.values()) for source, tables in changes.items()}
    each = ", ".join(f"{source} {counted(total, 'change')}" for source, total in sums.items())
    moves = better_division(changes)
    if not moves:
        return note(
            f"group {group}", f"changes since the server's statistics began: {each}", "nothing needs to be done"
        )
    after = dict(sums)
    for table, (old, new) in moves.items():
        after[old] -= changes[old][table]
        after[new] += changes[old][table]
    moving = ", ".join(f"{table} from {old} to {new}" for table, (old, new) in moves.items())
    then = ", ".join(f"{source} {after[source]:,}" for source in sums)
    remedy = f"move {moving} (then {then}); a table that moves is copied again by its new source"
    return note(
        f"group {group}", f"one slot has most of the changes since the server's statistics began: {each}", remedy
    )


def better_division(changes: _Changes) -> dict[TableName, tuple[str, str]]:
    """Return the tables to move, each from which source to which, as few as make the slots even; empty if they are.

    A table that a source would have twice stays.
    """
    now = {source: dict(tables) for source, tables in changes.items()}
    moves: dict[TableName, tuple[str, str]] = {}
    while len(moves) < MOVES_MAX:
        sums = {source: sum(tables.values()) for source, tables in now.items()}
        high, low = max(sums, key=lambda s: sums[s]), min(sums, key=lambda s: sums[s])
        gap = sums[high] - sums[low]
        if sums[high] <= LOPSIDED * sums[low]:
            break
        # What has moved stays; a move of less than the whole gap lessens the greater of the two.
        fit = {t: n for t, n in now[high].items() if 0 < n < gap and t not in moves and t not in now[low]}
        if not fit:
            break
        table = min(fit, key=lambda t: (abs(2 * fit[t] - gap), t))
        now[low][table] = now[high].pop(table)
        moves[table] = (high, low)
    return moves


def changes_of(conn: Connection, tables: Collection[PublishedTable]) -> dict[TableName, int]:
    """Return the rows that were inserted, updated and deleted in each table; those of a partitioned one are its leaves'."""
    oids = sorted({int(leaf.oid) for table in tables for leaf in table.leaves})
    lines = rows(conn, _CHANGES, {"oids": oids}, about="the statistics of the published tables")
    changes = {int(row["oid"]): int(row["changes"]) for row in lines}
    return {table.table: sum(changes.get(int(leaf.oid), 0) for leaf in table.leaves) for table in tables}
