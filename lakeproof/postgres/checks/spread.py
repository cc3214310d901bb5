"""Says how much tables write, how that is spread over a group's slots, and which to move if one slot has most of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypeAlias

from psycopg.sql import SQL

from lakeproof.events import counted
from lakeproof.names import TableName
from lakeproof.postgres.catalog.tables import PublishedTable
from lakeproof.postgres.checks.findings import Finding, note
from lakeproof.postgres.connections.connect import Connection, rows

# A slot with so many times the changes of another is worth an advice.
LOPSIDED = 2
# A longer list of tables to move is a new division, which a person makes.
MOVES_MAX = 20
_CHANGES = SQL("""
SELECT relid::bigint AS oid, (n_tup_ins + n_tup_upd + n_tup_del)::bigint AS changes
FROM pg_catalog.pg_stat_user_tables WHERE relid = ANY ({oids}::oid[])
""")


_Changes: TypeAlias = Mapping[str, Mapping[TableName, int]]


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
    listed = ", ".join(f"{table} from {old} to {new}" for table, (old, new) in moves.items())
    then = ", ".join(f"{source} {after[source]:,}" for source in sums)
    remedy = f"move {listed} (then {then}); a table that moves is copied again by its new source"
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
