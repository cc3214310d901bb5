"""The server's identity: its system identifier, timeline, version and place in the WAL.

Comparing it with a landing's does not belong here (`lakeproof.continuity`).
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL
from pydantic import SecretStr

from lakeproof.lsn import Lsn
from lakeproof.postgres.connections.connect import Connection, connect_replication, rows, source_errors
from lakeproof.postgres.connections.security import is_exposed

# The timeline is the first eight digits of a WAL file's name; pg_control's is late until the next checkpoint, but it is all
# that a standby has.
_IDENTIFY = SQL("""
SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())::text AS system_id,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN (SELECT timeline_id::text FROM pg_catalog.pg_control_checkpoint())
            ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_flush_lsn()), 1, 8)
                 )::bit(32)::int::text
       END AS timeline,
       pg_catalog.current_database()::text AS database,
       (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())::text AS database_oid,
       pg_catalog.current_setting('server_version_num') AS version,
       CASE WHEN pg_catalog.pg_is_in_recovery()
            THEN pg_catalog.pg_last_wal_replay_lsn()
            ELSE pg_catalog.pg_current_wal_flush_lsn()
       END::text AS lsn,
       pg_catalog.pg_is_in_recovery()::text AS recovering
""")


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """A server at one moment; `version` is `server_version_num` (180006), `current_lsn` the end of its flushed WAL.

    Its OID identifies the database, since the name may change. `exposed`: it is another machine, and rows travel to this
    one in the clear.
    """

    system_id: str
    timeline: int
    database: str
    database_oid: int
    version: int
    current_lsn: Lsn
    in_recovery: bool
    exposed: bool = False

    @property
    def major(self) -> int:
        return self.version // 10000


def other_database(thing: str, name: str, oid: int, server: ServerIdentity) -> str:
    """Return a sentence: `thing` belongs to another database than the server's. A recreated database has the same name."""
    return f"{thing} belongs to database {name!r} (OID {oid}), the source is {server.database!r} (OID {server.database_oid})"


def timeline_history(dsn: SecretStr, timeline: int) -> list[tuple[int, Lsn]]:
    """Return the switches on the way to `timeline`, oldest first: each timeline left, and its last position.

    Costs a replication connection. Raises as `source_errors`.
    """
    if timeline <= 1:
        return []
    with connect_replication(dsn, "lakeproof timeline") as conn, source_errors("the source's server"):
        row = conn.execute(SQL("TIMELINE_HISTORY {}").format(SQL(str(timeline)))).fetchone()
    content = "" if row is None else row[1]
    text = content if isinstance(content, str) else bytes(content).decode()
    switches = []
    # Number, switch point and reason, separated by blanks; comments begin with #.
    for line in text.splitlines():
        parts = line.split("#")[0].split()
        if len(parts) >= 2:
            switches.append((int(parts[0]), Lsn.parse(parts[1])))
    return switches


def identify(conn: Connection) -> ServerIdentity:
    """Ask the server for its identity; works on ordinary and on replication connections. Raises as `source_errors`."""
    row = rows(conn, _IDENTIFY, about="the source's server")[0]
    return ServerIdentity(
        system_id=row["system_id"],
        timeline=int(row["timeline"]),
        database=row["database"],
        database_oid=int(row["database_oid"]),
        version=int(row["version"]),
        current_lsn=Lsn.parse(row["lsn"]),
        in_recovery=row["recovering"] == "true",
        exposed=is_exposed(conn),
    )
