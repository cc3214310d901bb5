"""A standby of a server of the tests, to be promoted: a physical copy that follows it by a physical slot.

Servers come from `fix_postgres.py`. With `sync` the primary's failover slots are kept on the standby too (PostgreSQL 17 on).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg

from demo.server import EmbeddedPostgres, free_port, unprivileged_user
from tests.support.ingest.fix_drain import wait_until

PHYSICAL = "standby"
PRIMARY_CONF = {"fsync": "off", "wal_level": "logical", "hot_standby": "on"}


def make_standby(primary: EmbeddedPostgres, result: Callable[..., EmbeddedPostgres], *, sync: bool) -> EmbeddedPostgres:
    """A running standby of `primary`; the caller stops it. `made` makes a server that is not started."""
    with psycopg.connect(primary.dsn(), autocommit=True) as conn:
        conn.execute("SELECT pg_create_physical_replication_slot(%s, true)", (PHYSICAL,))
        if sync:
            conn.execute("ALTER SYSTEM SET synchronized_standby_slots = 'standby'")
            conn.execute("SELECT pg_reload_conf()")
    conf = {
        **PRIMARY_CONF,
        "primary_conninfo": f"host=127.0.0.1 port={primary.port} user=postgres password={primary.password} dbname=postgres",
        "primary_slot_name": PHYSICAL,
        "hot_standby_feedback": "on",
        # The copied ALTER SYSTEM would make the promoted one wait for its own standby.
        **({"sync_replication_slots": "on", "synchronized_standby_slots": ""} if sync else {}),
    }
    # Its roles are copies of the primary's.
    standby = result(conf=conf, port=free_port(), password=primary.password)
    primary.run("pg_basebackup", "-D", str(standby.data), "-X", "stream", "--checkpoint=fast")
    (standby.data / "standby.signal").touch()
    _give_all(standby.data)
    standby.data.chmod(0o700)
    standby.start()
    return standby


def caught_up(primary: EmbeddedPostgres, standby: EmbeddedPostgres) -> None:
    """Wait until the standby has replayed what the primary has now."""
    with (
        psycopg.connect(primary.dsn(), autocommit=True) as one,
        psycopg.connect(standby.dsn(), autocommit=True) as other,
    ):
        row = one.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: bool((other.execute(query, row).fetchone() or [False])[0]))


def sync_slot(primary: EmbeddedPostgres, standby: EmbeddedPostgres, slot: str) -> None:
    """Bring the failover slot's state to the standby now, and wait until it would survive a promotion."""
    query = "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = %s"

    def synced() -> bool:
        with psycopg.connect(primary.dsn(), autocommit=True) as conn:
            conn.execute("SELECT pg_log_standby_snapshot()")
        with psycopg.connect(standby.dsn(), autocommit=True) as conn:
            row = conn.execute(query, (slot,)).fetchone()
        return row is not None and bool(row[0])

    # Its worker looks every half a minute if nothing has changed, and may have to look twice.
    wait_until(synced, 240)


def promote(standby: EmbeddedPostgres) -> None:
    """Make it a primary, on its next timeline."""
    with psycopg.connect(standby.dsn(), autocommit=True) as conn:
        conn.execute("SELECT pg_promote(true, 60)")
        wait_until(lambda: (conn.execute("SELECT pg_is_in_recovery()").fetchone() or [True])[0] is False)


def _give_all(folder: Path) -> None:
    user = unprivileged_user()
    if user is not None:
        for path in [folder, *folder.rglob("*")]:
            os.chown(path, user.pw_uid, user.pw_gid)
