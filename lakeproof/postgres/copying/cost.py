"""The cost of a running snapshot to its source: dead rows and WAL that it must keep, locks, waiting sessions."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from psycopg.sql import SQL

from lakeproof.postgres.connections.connect import Connection, rows

_COST = SQL("""
SELECT (SELECT pg_catalog.max(pg_catalog.age(a.backend_xmin))
        FROM pg_catalog.pg_stat_activity a WHERE a.pid = ANY ({pids}::int[]))::bigint AS xmin_age,
       (SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), s.restart_lsn)
        FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = {slot})::bigint AS retained,
       held.locks, held.waiting
FROM (
  SELECT pg_catalog.count(DISTINCT h.relation) AS locks, pg_catalog.count(DISTINCT w.pid) AS waiting
  FROM pg_catalog.pg_locks h
  LEFT JOIN pg_catalog.pg_locks w
         ON w.database = h.database AND w.relation = h.relation AND NOT w.granted AND w.pid <> ALL ({pids}::int[])
  WHERE h.pid = ANY ({pids}::int[]) AND h.granted AND h.locktype = 'relation' AND h.relation >= 16384
) held
""")


@dataclass(frozen=True, slots=True)
class SnapshotCost:
    """`xmin_age` transactions whose dead rows VACUUM must keep, WAL that the slot keeps, tables locked (ACCESS SHARE).

    `waiting` sessions wait for a lock on one of these tables. A value is None if the server does not report it.
    """

    xmin_age: int | None
    retained_wal_bytes: int | None
    locks: int
    waiting: int


def snapshot_cost(conn: Connection, slot: str, pids: Collection[int]) -> SnapshotCost:
    """Return the cost of the snapshot that `slot` made and these backends hold. Raises as `source_errors`."""
    [row] = rows(conn, _COST, {"slot": slot, "pids": sorted(pids)}, about="the cost of the snapshot")
    return SnapshotCost(row["xmin_age"], row["retained"], int(row["locks"]), int(row["waiting"]))
