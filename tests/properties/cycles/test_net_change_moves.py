"""Chains of key moves find their roots, on the driver and in Spark alike, in rounds that grow with the logarithm."""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from lakeproof.hidden_columns import ORD
from lakeproof.lake.fold.toast import _with_epoch, root_runs

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
pytestmark = pytest.mark.spark


def test_both_makes_find_the_same_roots(spark: SparkSession) -> None:
    """Random chains, one of them long; the expected roots by walking each chain."""
    rng = random.Random(SEED)
    parents: dict[int, int] = {}
    tips = [0]
    for run in range(1, 300):
        if rng.random() < 0.2:
            tips.append(run)
            continue
        position = 0 if rng.random() < 0.5 else rng.randrange(len(tips))
        parents[run] = tips[position]
        tips[position] = run
    expected = {}
    for run in parents:
        root = run
        while root in parents:
            root = parents[root]
        expected[run] = root
    links = spark.createDataFrame(list(parents.items()), "__lp_child bigint, __lp_parent bigint")
    for driver_max in (1000, 0):
        actual = {int(r[0]): int(r[1]) for r in root_runs(spark, links, driver_max).collect()}
        assert actual == expected, f"seed {SEED}, at most {driver_max} on the driver"


def test_truncates_in_blocks_are_counted_as_in_one_list(spark: SparkSession) -> None:
    """Rows before, between and after them, at each edge of a block; only a block's truncates are looked at for each row."""
    truncates = [10, 11, 20, 30, 31, 32, 40]
    events = spark.range(45).withColumnRenamed("id", ORD)
    for block in (1, 2, 3, 7):
        actual = {row[0]: row[1] for row in _with_epoch(spark, events, truncates, block).collect()}
        assert actual == {n: sum(t < n for t in truncates) for n in range(45)}, f"blocks of {block}"
