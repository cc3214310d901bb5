"""Whole cycles over a simulated source: at every cut the lake is what the source was, in each kind of table.

PostgreSQL itself is the source in `test_pipeline.py`. `make test` takes the table of a composite key and another one by
chance through all steps, `make test-all` all five.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact
from lakeproof.config.model import CompactionConfig, Config, SourceConfig
from lakeproof.events import Stop, silent
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.delta.commit import Make
from lakeproof.lake.read.open import OpenedLake, open_lake
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.schema import Identity
from tests.simulated_rows import Cell, Exact, Row, images_of, rows_of, shape
from tests.simulated_source import SOURCE, SimulatedSource, SimulatedTable

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
ODD = ["", "~", "a'b", "x\\y", "日本", "tab\tnew\nline", "`q`", '"', "NULL", " "]
FLOATS = [0.0, -0.0, float("nan"), float("inf"), 1.5, 5e-324]
pytestmark = pytest.mark.spark


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
        SimulatedTable(shape("order lines", items, ("region", "id"), Identity.DEFAULT, 1001), large=(2, 3, 4)),
        SimulatedTable(
            shape("rates", {"at": "numeric:6,2", "Odd, name": "text"}, ("at",), Identity.INDEX, 1002), large=(1,)
        ),
        SimulatedTable(shape("bag", {"a": "text", "x": "float8"}, (), Identity.FULL, 1003)),
        SimulatedTable(shape("full", {"id": "int8", "v": "text"}, ("id",), Identity.FULL, 1004)),
        SimulatedTable(shape("log", {"line": "text"}, (), Identity.NOTHING, 1005)),
    ]


def make_config(lake: Path, cycle_rows: int = 2_000_000, make: Make = "auto") -> Config:
    """One source, whose server is never asked."""
    source = SourceConfig(
        name=SOURCE,
        dsn=SecretStr("host=nowhere"),
        publication="shop",
        slot="shop",
        compaction=CompactionConfig(cycle_rows=cycle_rows, apply=make),
    )
    return Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={SOURCE: source})


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
    """Two rows change keys: by way of a third key, or at once where uniqueness is looked at only at the end (FULL)."""
    other = rng.choice([r for r in table.rows if r is not one])
    a, b = table.key_of(one), table.key_of(other)
    moved = _with_key(table, one, b)
    if table.version.identity is Identity.FULL:
        source.update(table, one, moved)
        source.update(table, other, _with_key(table, other, a))
        return
    aside = tuple(Decimal("77.00") if isinstance(c, Decimal | Exact) else 77 if isinstance(c, int) else c for c in a)
    parked = _with_key(table, one, aside)
    source.update(table, one, parked)
    source.update(table, other, _with_key(table, other, a))
    source.update(table, parked, moved)


def _with_key(table: SimulatedTable, row: Row, key: Row) -> Row:
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


def check(spark: SparkSession, config: Config, source: SimulatedSource, names: list[str]) -> None:
    """Every table at the newest cut equals the source's state at the cut's position."""
    lake = open_lake(spark, config)
    cut = lake.cuts[SOURCE]
    state = source.state_at(cut.position)
    for name in names:
        table = TableName("app", name)
        version = source.tables[table].version
        found = rows_of(lake.table(SOURCE, table, hidden=True), version)
        assert found == state[table], f"{name} at cut {cut.number}, {cut.position}, seed {SEED}"


def run_compact(spark: SparkSession, config: Config, end: Lsn | None = None) -> list[CutReport]:
    """Compact without telling anyone."""
    return compact(config, SOURCE, spark, silent, Stop(), end)


@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.full)])
def test_at_every_cut_each_table_is_what_the_source_was(spark: SparkSession, tmp_path: Path, count: int) -> None:
    """Snapshots, a late one, re-snapshots that heal, an end inside a segment: all equal, and history has every image."""
    rng = random.Random(SEED)
    first, *others = make_tables()
    tables = [first, *rng.sample(others, count - 1)]
    source = SimulatedSource(tmp_path, tables)
    config = make_config(tmp_path)
    names = [table.version.table.name for table in tables]
    early = [name for name in names if name != "log"]
    for name in early:
        table = source.table(name)
        for _ in range(20):
            row = random_row(rng, table)
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    source.snapshot(early)
    run_transactions(rng, source, 25)
    middle = sorted(source.states)[len(source.states) // 2]
    assert run_compact(spark, config, Lsn(middle + 3))[-1].position == Lsn(middle + 3)
    check(spark, config, source, early)

    run_transactions(rng, source, 25)
    run_compact(spark, config)
    check(spark, config, source, early)
    _check_history(spark, config, source, early)

    # What the stream loses, the next snapshot brings; changes go on around it.
    healed = [name for name in ("order lines", "bag") if name in names]
    for name in healed:
        table = source.table(name)
        source.insert(table, _with_key(table, random_row(rng, table), ("lost", 99)[: len(table.key)]), lost=True)
        source.delete(table, table.rows[0], lost=True)
    source.commit(rng)
    source.snapshot([name for name in names if name in ("log", *healed)])
    run_transactions(rng, source, 25)
    run_compact(spark, config)
    check(spark, config, source, names)
    assert run_compact(spark, config) == []


def _check_history(spark: SparkSession, config: Config, source: SimulatedSource, names: list[str]) -> None:
    lake = open_lake(spark, config)
    for name in names:
        table = source.table(name)
        history = lake.table(SOURCE, table.version.table, layer="history", hidden=True)
        assert images_of(history, table.version) == table.images, f"history of {name}, seed {SEED}"
        ordinals = [r[0] for r in history.select("_lp_ord").collect()]
        assert len(ordinals) == len(set(ordinals)), f"ordinals of {name}"
    table = source.table("order lines")
    current = Counter(repr(tuple(r)) for r in lake.table(SOURCE, table.version.table).collect())
    assert _folded(lake, table) == current, f"history of order lines in its order, seed {SEED}"


def _folded(lake: OpenedLake, table: SimulatedTable) -> Counter[str]:
    """The table that its history makes, read row by row in the order of `_lp_ord`."""
    history = lake.table(SOURCE, table.version.table, layer="history", hidden=True)
    names = [c.name for c in table.version.columns]
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for change in history.orderBy("_lp_ord").collect():
        values = tuple(change[n] for n in names)
        key = tuple(change[k] for k in table.version.key)
        match change["_lp_op"]:
            case "insert" | "update" | "snapshot" | "correct_insert":
                rows[key] = values
            case "delete" | "before" | "correct_delete":
                rows.pop(key, None)
            case "truncate":
                rows.clear()
    return Counter(repr(values) for values in rows.values())
