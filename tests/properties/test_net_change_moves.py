"""Chains of key moves find their roots, on the driver and in Spark alike, in rounds that grow with the logarithm."""

from __future__ import annotations

import os
import random

import pytest
from pyspark.sql import SparkSession

from wal2delta.lake.lineage import root_runs

SEED = int(os.environ.get("WAL2DELTA_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
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
        at = 0 if rng.random() < 0.5 else rng.randrange(len(tips))
        parents[run] = tips[at]
        tips[at] = run
    expected = {}
    for run in parents:
        root = run
        while root in parents:
            root = parents[root]
        expected[run] = root
    links = spark.createDataFrame(list(parents.items()), "_w2d_child bigint, _w2d_parent bigint")
    for driver_max in (1000, 0):
        found = {int(r[0]): int(r[1]) for r in root_runs(spark, links, driver_max).collect()}
        assert found == expected, f"seed {SEED}, at most {driver_max} on the driver"
