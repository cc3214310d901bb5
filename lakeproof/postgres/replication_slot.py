"""A replication slot's state, its creation and removal, and the check before a stream starts from it.

Moving a slot forward does not belong here: only `lakeproof.drain.acknowledge` does that.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from psycopg.sql import SQL, Identifier, Literal

from lakeproof.errors import RECOVER, GapError, SourceError, TransientError
from lakeproof.lsn import Lsn
from lakeproof.postgres.connections.connect import Connection, rows, translate

PLUGIN = "pgoutput"
# A slot whose reader has just ended is free a moment later.
IN_USE_S = 5.0
_RETRY_S = 0.05
_NAME_LENGTH_MAX = 63
_FAILOVER_SINCE = 170000
_CAUSES = {
    "wal_removed": "it held back more WAL than max_slot_wal_keep_size, and the server removed it",
    "idle_timeout": "nobody read it for as long as idle_replication_slot_timeout says",
    "rows_removed": "rows of the catalog that it needs were removed on the primary",
    "wal_level_insufficient": "wal_level was lowered on the primary",
}

_READ = SQL("""
SELECT s.*, CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_flush_lsn() END AS end_of_wal,
       pg_catalog.clock_timestamp() AS looked_at,
       (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'idle_replication_slot_timeout') AS idle_timeout_s
FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = {name}
""")


@dataclass(frozen=True, slots=True)
class SlotState:
    """One row of pg_replication_slots.

    `retained_bytes` is the WAL that the slot keeps on the source's disk, `lag_bytes` the WAL between its confirmed position
    and the end of WAL (of the whole cluster); both are None if the slot has no position. `safe_wal_size` is the number of
    bytes that may still be written before the slot is lost, None if there is no limit. `wal_status` is reserved, extended,
    unreserved or lost. `inactive_s` is the time without a reader (PostgreSQL 17 on), `idle_timeout_s` the time after which
    the server invalidates an idle slot (18 on); None or 0 if it never does.
    """

    name: str
    plugin: str | None
    slot_type: str
    database: str | None
    two_phase: bool
    temporary: bool
    active: bool
    active_pid: int | None
    confirmed_flush_lsn: Lsn | None
    restart_lsn: Lsn | None
    wal_status: str | None
    safe_wal_size: int | None
    invalidation_reason: str | None
    retained_bytes: int | None
    lag_bytes: int | None
    inactive_s: float | None = None
    idle_timeout_s: int | None = None

    @property
    def lost(self) -> bool:
        """True if the server has removed WAL that this slot needs, or has invalidated it for another reason."""
        return self.wal_status == "lost" or self.invalidation_reason is not None


def read_slot(conn: Connection, name: str) -> SlotState | None:
    """Return the slot's state, None if there is none; works on both kinds of connection. Raises as `source_errors`."""
    slots = rows(conn, _READ, {"name": name}, about=f"slot {name}")
    if not slots:
        return None
    row = slots[0]
    end = _lsn(row["end_of_wal"])
    confirmed, restart = _lsn(row["confirmed_flush_lsn"]), _lsn(row["restart_lsn"])
    return SlotState(
        name=row["slot_name"],
        plugin=row["plugin"],
        slot_type=row["slot_type"],
        database=row["database"],
        # A column that an older server lacks has the value that such a server behaves by.
        two_phase=bool(row.get("two_phase", False)),
        temporary=row["temporary"],
        active=row["active"],
        active_pid=row["active_pid"],
        confirmed_flush_lsn=confirmed,
        restart_lsn=restart,
        wal_status=row["wal_status"],
        safe_wal_size=row["safe_wal_size"],
        invalidation_reason=row.get("invalidation_reason"),
        retained_bytes=max(0, end - restart) if end is not None and restart is not None else None,
        lag_bytes=max(0, end - confirmed) if end is not None and confirmed is not None else None,
        inactive_s=_age_s(row.get("inactive_since"), row["looked_at"]),
        idle_timeout_s=None if row["idle_timeout_s"] is None else int(row["idle_timeout_s"]),
    )


def slot_problem(state: SlotState, database: str) -> SourceError | None:
    """Return why this slot can't serve a source in `database`, None if it can. Being in use is no problem of the slot."""
    thing = f"slot {state.name}"
    another = "name another slot in the configuration, or drop this one if nobody needs it"
    if state.slot_type != "logical":
        return SourceError(thing, "it is a physical slot", another)
    if state.plugin != PLUGIN:
        return SourceError(thing, f"it uses the output plugin {state.plugin}, not {PLUGIN}", another)
    if state.database != database:
        return SourceError(thing, f"it belongs to database {state.database}, not {database}", another)
    if state.lost:
        # Servers before 17 give no reason; this is the only one that they have.
        cause = state.invalidation_reason or "wal_removed"
        why = _CAUSES.get(cause, "the server's log says why")
        return SourceError(thing, f"the server has invalidated it ({cause}: {why})", RECOVER)
    if state.two_phase:
        reason = "it was created with two_phase, which sends prepared transactions before they commit"
        return SourceError(thing, reason, another)
    if state.temporary:
        return SourceError(thing, "it is a temporary slot of another connection", another)
    return None


def check_before_start(conn: Connection, slot: str, publications: Sequence[str]) -> None:
    """Raise GapError if the slot is gone or lost, SourceError if it or a publication can't be used."""
    state = read_slot(conn, slot)
    if state is None:
        raise GapError(f"slot {slot}", "it does not exist", RECOVER)
    problem = slot_problem(state, conn.info.dbname)
    if problem is not None and state.lost:
        raise GapError(problem.thing, problem.reason, problem.remedy)
    if problem is not None:
        raise problem
    lines = rows(conn, SQL("SELECT pubname::text FROM pg_catalog.pg_publication"), about="publications")
    existing = {row["pubname"] for row in lines}
    for name in publications:
        if name not in existing:
            # From PostgreSQL 18 on the server would only warn and leave the changes out.
            raise SourceError(f"publication {name}", "it does not exist", "run `lakeproof apply`")
    if not publications:
        raise SourceError("publications", "there is none to read", "run `lakeproof apply`")


def name_problem(name: str) -> str | None:
    """Return why PostgreSQL would not take `name` unchanged for a slot, or None."""
    if not name or len(name) > _NAME_LENGTH_MAX:
        return f"a slot's name has 1 to {_NAME_LENGTH_MAX} characters"
    if not all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in name):
        return "a slot's name has lower case letters, digits and underscores only"
    return None


def create_slot(conn: Connection, name: str, *, temporary: bool) -> Lsn:
    """Create a logical pgoutput slot over a replication connection and return its consistent point.

    The connection must be in a READ ONLY REPEATABLE READ transaction that has run no query yet: it sees the snapshot then.
    Waits for every transaction that is writing at this moment, limited by the connection's lock_timeout.
    Never two_phase, which would be a lasting property of the slot. A lasting slot has `failover` from PostgreSQL 17 on: a
    standby that synchronizes slots then has it after a promotion. Raises psycopg.Error, since only the caller knows
    whom it waits for; SourceError for a name that PostgreSQL would cut or refuse.
    """
    problem = name_problem(name)
    if problem is not None:
        raise SourceError(f"slot {name[:80]}", problem, "correct the slot's name in the configuration")
    has_failover = conn.info.server_version >= _FAILOVER_SINCE and not temporary
    # Every version since 14 understands the keyword without parentheses.
    options = SQL("(SNAPSHOT 'use', FAILOVER)" if has_failover else "USE_SNAPSHOT")
    statement = SQL("CREATE_REPLICATION_SLOT {name} {temporary} LOGICAL pgoutput {options}").format(
        name=Identifier(name), temporary=SQL("TEMPORARY" if temporary else ""), options=options
    )
    row = conn.execute(statement).fetchone()
    if row is None:
        raise SourceError(f"slot {name}", "the server answered without a consistent point", "see the server's log")
    return Lsn.parse(row[1])


def read_free_slot(conn: Connection, name: str) -> SlotState | None:
    """Return the slot, as `read_slot`, when nobody reads it: the server notices a moment later that a drain has ended.

    Raises TransientError if it is read for `IN_USE_S` seconds.
    """
    deadline = time.monotonic() + IN_USE_S
    while (slot := read_slot(conn, name)) is not None and slot.active:
        if time.monotonic() >= deadline:
            raise in_use(conn, name)
        time.sleep(_RETRY_S)
    return slot


def drop_slot(conn: Connection, name: str) -> bool:
    """Drop the slot; False if there was none.

    A slot in use is tried again for `IN_USE_S` seconds, then TransientError.
    """
    deadline = time.monotonic() + IN_USE_S
    while True:
        try:
            conn.execute(SQL("SELECT pg_catalog.pg_drop_replication_slot({})").format(Literal(name)), prepare=False)
        except psycopg.errors.UndefinedObject:
            return False
        except psycopg.errors.ObjectInUse:
            if time.monotonic() >= deadline:
                raise in_use(conn, name) from None
            time.sleep(_RETRY_S)
        except psycopg.Error as error:
            raise translate(error, f"slot {name}") from None
        else:
            return True


def in_use(conn: Connection, name: str) -> TransientError:
    """Return the error that names the slot's reader."""
    state = read_slot(conn, name)
    reader = f" by process {state.active_pid}" if state is not None and state.active_pid is not None else ""
    return TransientError(
        f"slot {name}", f"it was in use{reader}", "end the other drain, or wait for it, then try again"
    )


def _age_s(since: Any, now: Any) -> float | None:
    """Return the seconds between two of the server's times, which a replication connection gives as text."""
    if since is None:
        return None
    then, then_now = (datetime.fromisoformat(t) if isinstance(t, str) else t for t in (since, now))
    return max(0.0, float((then_now - then).total_seconds()))


def _lsn(text: str | None) -> Lsn | None:
    return None if text is None else Lsn.parse(text)
