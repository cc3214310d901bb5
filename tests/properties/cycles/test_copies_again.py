"""Copies of tables that the lake has enter without a JVM: random changes, some of which the stream has lost.

Entry by Spark is in `test_apply_cycles.py`, and that a table may be written by each in turn in `test_engines_take_turns.py`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.compact import compact
from lakeproof.config.model import Config
from lakeproof.events import Stop, silent
from lakeproof.lake.spark_on_demand import AnySpark
from lakeproof.proof.lake.history import prove_history
from lakeproof.proof.lake.side import LakeReader
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.lake_steps import check, make_config
from tests.support.lake.maintain_steps import newest_cut_of
from tests.support.lake.proof_steps import WITHOUT
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED, fill, make_tables, random_row, run_transactions


def _lose_changes(rng: random.Random, source: SimulatedSource) -> None:
    """Insert and delete a few rows of which the stream has nothing."""
    for table in source.tables.values():
        for _ in range(rng.randrange(3)):
            row = random_row(rng, table)
            if table.rows and rng.random() < 0.5:
                source.delete(table, rng.choice(table.rows), lost=True)
            elif table.takes(row):
                source.insert(table, row, lost=True)
    source.commit(rng)


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 10))])
def test_a_copy_puts_right_what_the_stream_lost(tmp_path: Path, number: int) -> None:
    """Each table ends as the source is, and as what its history adds up to, whatever the range around the copy has."""
    _copied_again(random.Random(SEED + number), tmp_path, make_config(tmp_path), WITHOUT)


@pytest.mark.spark
@pytest.mark.full
def test_the_same_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark alone compares the copies."""
    _copied_again(random.Random(SEED), tmp_path, make_config(tmp_path, engine="spark"), spark, rounds=2)


def _copied_again(rng: random.Random, folder: Path, config: Config, spark: AnySpark, *, rounds: int = 4) -> None:
    source = SimulatedSource(folder, make_tables())
    names = [table.name for table in source.tables]
    fill(rng, source, names)
    for _ in range(rounds):
        run_transactions(rng, source, 8)
        compact(config, SOURCE, spark, silent, Stop())
        run_transactions(rng, source, rng.choice([0, 3]))
        _lose_changes(rng, source)
        source.snapshot(names)
        run_transactions(rng, source, rng.choice([0, 3, 10]))
        (report,) = compact(config, SOURCE, spark, silent, Stop())
        assert report.held == {}, f"seed {SEED}"
        check(config, source, names)
        _histories_add_up(config)


def _histories_add_up(config: Config) -> None:
    reader = LakeReader.of(SourceLake.open(config.location, SOURCE), WITHOUT, "auto")
    proofs = {t: prove_history(reader, t, table, 8) for t, table in newest_cut_of(config).tables.items()}
    assert {t: p.reason for t, p in proofs.items() if p.status != "equal"} == {}, f"seed {SEED}"
