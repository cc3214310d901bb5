"""Says how the changes of a group are spread over its slots, and which tables to move if one slot has most of them.

Counting changes does not belong here (`lakeproof.postgres.checks.write_rates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from lakeproof.events import counted
from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Finding, note

# A slot with so many times the changes of another is worth an advice.
LOPSIDED = 2
# A longer list of tables to move is a new division, which a person makes.
MOVES_MAX = 20

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
