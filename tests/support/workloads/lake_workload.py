"""Random changes of the simulated source's tables of each kind.

What is checked of the lake that they end up in does not belong here; the steps of a cycle are in `lake_steps.py`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from decimal import Decimal

from lakeproof.schema import Identity
from tests.support.lake.simulated_rows import Cell, Exact, Row, schema
from tests.support.lake.simulated_source import SimulatedSource, SimulatedTable

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ODD = ["", "~", "a'b", "x\\y", "日本", "tab\tnew\nline", "`q`", '"', "NULL", " "]
FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.5, 5e-324]


def make_tables() -> list[SimulatedTable]:
    """A composite key, a key that Spark does not compare exactly, a bag, a configured key under FULL, an insert-only bag."""
    items = {
        "region": "text",
        "id": "int4",
        "doc": "exact_text",
        "price": "numeric:10,2",
        "note": "text",
        "x": "float8",
    }
    return [
        SimulatedTable(schema("order lines", items, ("region", "id"), Identity.DEFAULT, 1001), large=(2, 3, 4)),
        SimulatedTable(
            schema("rates", {"at": "numeric:6,2", "Odd, name": "text"}, ("at",), Identity.INDEX, 1002), large=(1,)
        ),
        SimulatedTable(schema("bag", {"a": "text", "x": "float8"}, (), Identity.FULL, 1003)),
        SimulatedTable(schema("full", {"id": "int8", "v": "text"}, ("id",), Identity.FULL, 1004)),
        SimulatedTable(schema("log", {"line": "text"}, (), Identity.NOTHING, 1005)),
    ]


def random_row(rng: random.Random, table: SimulatedTable) -> Row:
    """Values with NULLs, odd strings and texts that their type can't hold; few keys, so that they come back."""
    cells: list[Cell] = []
    for i, column in enumerate(table.version.columns):
        key = i in table.key
        match column.kind:
            case "int4" | "int8":
                cells.append(rng.randrange(6))
            case "numeric":
                wild = None if not key else Exact("Infinity")
                number: Cell = Decimal(rng.randrange(0, 900) if not key else 100 * rng.randrange(8)).scaleb(-2)
                cells.append(rng.choice([number, number, Exact("NaN"), wild]))
            case "float8":
                cells.append(rng.choice(FLOATS))
            case _:
                value = rng.choice(ODD if rng.random() < 0.5 else [f"v{rng.randrange(50)}"])
                cells.append(rng.choice(["eu", "us"]) if key else None if rng.random() < 0.15 else value)
    return tuple(cells)


def fill(rng: random.Random, source: SimulatedSource, names: Sequence[str]) -> None:
    """Give tables up to 20 rows from before the stream, and copy them."""
    for name in names:
        table = source.table(name)
        for _ in range(20):
            row = random_row(rng, table)
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    source.snapshot(names)


def insert_random_row(rng: random.Random, source: SimulatedSource, table: SimulatedTable) -> None:
    """Insert a row whose key no other row has: PostgreSQL would send no other one."""
    row = random_row(rng, table)
    while not table.takes(row):
        row = random_row(rng, table)
    source.insert(table, row)


def random_transaction(rng: random.Random, source: SimulatedSource) -> None:
    """A handful of changes over all tables; moves, swaps and re-use of keys among them."""
    for _ in range(rng.randrange(1, 14)):
        table = rng.choice(list(source.tables.values()))
        insert_only = table.version.identity is Identity.NOTHING
        if not insert_only and table.rows and rng.random() < 0.02:
            source.truncate(table)
            continue
        row = random_row(rng, table)
        free = table.takes(row)
        if insert_only or not table.rows or (free and rng.random() < 0.4):
            if free:
                source.insert(table, row)
            continue
        old = rng.choice(table.rows)
        match rng.choice(["delete", "update", "update", "move", "swap"]):
            case "delete":
                source.delete(table, old)
            case "move" if free:
                source.update(table, old, _mixed(rng, table, old, row, keep_key=False))
            case "swap" if len(table.rows) > 1 and not table.version.is_bag:
                _swap(rng, source, table, old)
            case _:
                keep = not table.version.is_bag
                source.update(table, old, _mixed(rng, table, old, row, keep_key=keep))


def _mixed(rng: random.Random, table: SimulatedTable, old: Row, new: Row, *, keep_key: bool) -> Row:
    """The new key (or the old one), and each other value new or as it was."""
    return tuple(
        (o if keep_key else n) if i in table.key else rng.choice([o, o, n])
        for i, (o, n) in enumerate(zip(old, new, strict=True))
    )


def _swap(rng: random.Random, source: SimulatedSource, table: SimulatedTable, one: Row) -> None:
    """Two rows change keys: by way of a third key, or at once if uniqueness is looked at only at the end (FULL)."""
    other = rng.choice([r for r in table.rows if r is not one])
    a, b = table.key_of(one), table.key_of(other)
    moved = with_key(table, one, b)
    if table.version.identity is Identity.FULL:
        source.update(table, one, moved)
        source.update(table, other, with_key(table, other, a))
        return
    aside = tuple(Decimal("77.00") if isinstance(c, Decimal | Exact) else 77 if isinstance(c, int) else c for c in a)
    parked = with_key(table, one, aside)
    source.update(table, one, parked)
    source.update(table, other, with_key(table, other, a))
    source.update(table, parked, moved)


def with_key(table: SimulatedTable, row: Row, key: Row) -> Row:
    """Return the row under another key."""
    cells = list(row)
    for i, cell in zip(table.key, key, strict=True):
        cells[i] = cell
    return tuple(cells)


def run_transactions(rng: random.Random, source: SimulatedSource, count: int) -> None:
    """Commit some, in segments of a few."""
    for _ in range(count):
        random_transaction(rng, source)
        source.commit(rng)
        if rng.random() < 0.2:
            source.flush()
    source.flush()
