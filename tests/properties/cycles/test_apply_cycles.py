"""Whole cycles over a simulated source: at every cut the lake is what the source was, in each kind of table.

PostgreSQL itself is the source in `test_pipeline.py`. `make test` takes the table of a composite key on S3 through all steps
but one, since cycles that end inside a segment are in `test_readers.py` too; `make test-all` takes all five through all.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.location import LakeLocation
from lakeproof.config.model import Config
from lakeproof.lake.read.spark.open import OpenedLake, open_lake
from lakeproof.lsn import Lsn
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import images_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable
from tests.support.workloads.lake_workload import SEED, fill, make_tables, random_row, run_transactions, with_key

pytestmark = pytest.mark.spark


@pytest.mark.full
@pytest.mark.parametrize(
    ("count", "inside", "lake_place"),
    [
        pytest.param(2, False, "folder", marks=pytest.mark.full),
        pytest.param(5, True, "folder", marks=pytest.mark.full),
        (1, False, "s3"),
        pytest.param(2, True, "versitygw", marks=pytest.mark.full),
    ],
    indirect=["lake_place"],
)
def test_at_every_cut_each_table_is_what_the_source_was(
    spark: SparkSession, lake_place: LakeLocation, count: int, *, inside: bool
) -> None:
    """Snapshots, a late one, re-snapshots that heal, an end inside a segment: all equal, and history has every image."""
    rng = random.Random(SEED)
    first, *others = make_tables()
    tables = [first, *rng.sample(others, count - 1)]
    source = SimulatedSource(lake_place, tables)
    config = make_config(lake_place)
    names = [table.version.table.name for table in tables]
    early = [name for name in names if name != "log"]
    fill(rng, source, early)
    run_transactions(rng, source, 25)
    if inside:
        middle = sorted(source.states)[len(source.states) // 2]
        assert run_compact(spark, config, Lsn(middle + 3))[-1].position == Lsn(middle + 3)
        check(config, source, early)
        run_transactions(rng, source, 25)
    run_compact(spark, config)
    check(config, source, early)
    _check_history(spark, config, source, early)

    # What the stream loses, the next snapshot brings; changes go on around it.
    healed = [name for name in ("order lines", "bag") if name in names]
    for name in healed:
        table = source.table(name)
        source.insert(table, with_key(table, random_row(rng, table), ("lost", 99)[: len(table.key)]), lost=True)
        source.delete(table, table.rows[0], lost=True)
    source.commit(rng)
    source.snapshot([name for name in names if name in ("log", *healed)])
    run_transactions(rng, source, 25)
    run_compact(spark, config)
    check(config, source, names)
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
