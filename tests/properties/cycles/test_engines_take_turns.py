"""The two engines write the same tables in turn: what one has written, the other finds, and rows are the source's."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact
from lakeproof.events import Stop, silent
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.proof_steps import WITHOUT
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED, fill, make_tables, run_transactions

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("entered_by", ["auto", pytest.param("spark", marks=pytest.mark.full)])
@pytest.mark.parametrize(("rounds", "tables"), [(3, 1), pytest.param(8, 5, marks=pytest.mark.full)])
def test_what_one_engine_writes_the_other_goes_on_with(
    spark: SparkSession, tmp_path: Path, rounds: int, tables: int, entered_by: str
) -> None:
    """Copies with changes since, then cycles by each in turn: composite, computed and configured keys, bags."""
    rng = random.Random(SEED)
    source, config = SimulatedSource(tmp_path, rng.sample(make_tables(), tables)), make_config(tmp_path)
    names = [table.name for table in source.tables]
    fill(rng, source, names)
    engines = ["auto", "spark"] if entered_by == "auto" else ["spark", "auto"]
    for number in range(rounds):
        run_transactions(rng, source, 12)
        if engines[number % 2] == "auto":
            compact(config, SOURCE, WITHOUT, silent, Stop())
        else:
            run_compact(spark, make_config(tmp_path, engine="spark"))
        check(config, source, names)
