"""Views of many shapes, refreshed from what has changed: after each refresh they are what the whole query gives.

The tables are a simulated lake's, changed at random. PostgreSQL answers the same SQL over the same rows, if it understands
it. Queries of TPC-H through the whole pipeline are in `test_tpch_views.py`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.views.incremental import strategies
from tests.support.servers.fix_postgres import Database
from tests.support.views.view_lake import SEED, TABLES, ShapeLake
from tests.support.views.view_shapes import ADDED, FULL, KEYS, LINEAR, SHAPES

# Those in which a table's columns, or the table, are read by a part of the query alone.
_HIDDEN = [
    "count_alone",
    "unused_side",
    "subquery_in_a_join",
    "subquery_in_explode",
    "order_by_a_subquery",
    "in_a_table",
]
_PAIR, _ALL = 2, len(TABLES)
pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]


def _run(spark: SparkSession, database: Database, folder: Path, shapes: list[str], rounds: Sequence[str | int]) -> None:
    lake = ShapeLake(spark, database, folder, shapes)
    lake.change(*TABLES, rows=30)
    assert {cut.strategy for cut in lake.refresh().values()} == {FULL}
    lake.check("at first")
    for number, what in enumerate(("items", *rounds)):
        changed = [what] if isinstance(what, str) else lake.chance.sample(sorted(TABLES), what)
        lake.change(*changed)
        cuts = lake.refresh()
        lake.check(f"after {changed} changed, round {number}")
        if number == 0:
            assert {
                name: (cut.strategy, cut.reason)
                for name, cut in cuts.items()
                if cut.strategy not in SHAPES[name][0].split(" or ")
            } == {}


def test_some_shapes_are_what_their_query_gives(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """One each of two strategies, drawn at random."""
    chance = random.Random(SEED)
    two = chance.sample((LINEAR, ADDED, KEYS, FULL), 2)
    chosen = [chance.choice([name for name in SHAPES if SHAPES[name][0] == strategy]) for strategy in two]
    _run(spark, database, tmp_path, sorted(chosen), [])


@pytest.mark.full
def test_what_a_part_of_the_query_reads_counts(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """A table of which no column is used, or that only a subquery reads, and that alone has changed; half of them."""
    _run(spark, database, tmp_path, random.Random(SEED).sample(_HIDDEN, len(_HIDDEN) // 2), ["kinds"])


@pytest.fixture(autouse=True)
def _from_changes_whatever_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few changes are a large part of tables as small as these."""
    # inside: with tables so large that a few changes are few, each shape would take minutes
    monkeypatch.setattr(strategies, "CHANGED_SHARE_MAX", 100.0)


@pytest.mark.full
def test_all_shapes_are_what_their_query_gives(spark: SparkSession, database: Database, tmp_path: Path) -> None:
    """Tables change by themselves, two at a time, and all together."""
    _run(spark, database, tmp_path, sorted(SHAPES), [_PAIR, _ALL])
