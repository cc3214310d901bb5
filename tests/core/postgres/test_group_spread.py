"""How the changes of a group are spread over its slots, and which tables a note says to move."""

from __future__ import annotations

import random

import pytest

from lakeproof.names import TableName
from lakeproof.postgres.checks.findings import Severity
from lakeproof.postgres.checks.source import LOPSIDED, better_division, spread


def _tables(**changes: int) -> dict[TableName, int]:
    return {TableName("public", name): count for name, count in changes.items()}


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (_tables(), _tables()),
        (_tables(a=0), _tables(b=0)),
        (_tables(a=10), _tables(b=10)),
        (_tables(a=20), _tables(b=10)),
        # One table alone is not divided.
        (_tables(a=1000), _tables(b=10)),
        # Both sources have the only table that could move.
        (_tables(a=30, b=10), _tables(a=1)),
    ],
)
def test_no_table_moves_if_nothing_gets_better(one: dict[TableName, int], two: dict[TableName, int]) -> None:
    """Twice as much is even enough."""
    if TableName("public", "a") in two:
        one = {t: n for t, n in one.items() if t in two}
    assert better_division({"one": one, "two": two}) == {}
    finding = spread("shop", {"one": one, "two": two})
    assert finding.severity is Severity.NOTE
    assert finding.remedy == "nothing needs to be done"


def test_a_note_says_which_table_moves_and_what_comes_of_it() -> None:
    """The table nearest to half of the difference."""
    finding = spread("shop", {"one": _tables(a=510, b=400, c=90), "two": _tables(d=100)})
    assert finding.reason.endswith("one 1,000 changes, two 100 changes")
    assert finding.remedy.startswith("move public.b from one to two (then one 600, two 500)")


def test_moves_make_random_spreads_no_worse() -> None:
    """The slot with the most changes never gets more."""
    seed = random.SystemRandom().randrange(1 << 31)
    rng = random.Random(seed)
    for _ in range(300):
        names = iter(range(1000))
        changes = {
            source: {
                TableName("s", f"t{next(names)}"): rng.choice((0, 1, 10, rng.randrange(1000)))
                for _ in range(rng.randrange(6))
            }
            for source in ("a", "b", "c")[: rng.randrange(2, 4)]
        }
        moves = better_division(changes)
        sums = {source: sum(tables.values()) for source, tables in changes.items()}
        after = dict(sums)
        for table, (old, new) in moves.items():
            after[old] -= changes[old][table]
            after[new] += changes[old][table]
        assert sum(after.values()) == sum(sums.values())
        assert not moves or max(after.values()) < max(sums.values()) or len(changes) > 2, f"seed {seed}"
        assert max(after.values()) <= max(sums.values()), f"seed {seed}"
        assert not moves or max(sums.values()) > LOPSIDED * min(sums.values()), f"seed {seed}"
