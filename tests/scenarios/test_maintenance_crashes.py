"""Maintenance is interrupted between any two of its steps; whoever comes next goes on, and nothing is lost.

A crash here is an exception that nobody may catch. Links of the landing alone are in
`tests/core/landing/test_landing_retention.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.config.model import Config
from lakeproof.events import silent
from lakeproof.failpoints import watched
from lakeproof.lake.records.store import newest_number
from lakeproof.landing.chain import Chain, verify_chain
from lakeproof.lsn import Lsn
from tests.support.faults.crashes import Crash
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.maintain_steps import BAG, LINES, MUCH_LATER, TABLES, begun, policy
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE
from tests.support.workloads.lake_workload import SEED, run_transactions

STEPS = (
    "apply.before_commit",
    "cycle.after_intent",
    "maintenance.after_archive",
    "maintenance.after_trim",
    "maintenance.after_history",
    "cycle.after_tables",
    "cycle.after_cut",
    "maintain.after_cuts",
    "maintain.after_tables",
    "maintain.after_start",
    "maintain.amid_manifests",
    "maintain.after_landing",
)
# Not each round leaves a table with files to put together: cycles do that, too.
_ROUNDS_MAX = 8
# A quarter of an hour for all; which steps a run of few passes depends on its seed.
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.full]


class Armed:
    """Crashes once at the step that is set."""

    def __init__(self) -> None:
        self.step = ""

    def __call__(self, name: str) -> None:
        if name == self.step:
            self.step = ""
            raise Crash(name)


@pytest.mark.parametrize("count", [2, pytest.param(len(STEPS), marks=pytest.mark.full)])
def test_an_interrupted_maintenance_is_made_good(tmp_path: Path, spark: SparkSession, count: int) -> None:
    """Steps by chance, or all of them, on one lake whose history is trimmed and archived, whose files are put together."""
    armed = Armed()
    rng, source = begun(tmp_path)
    config = policy(tmp_path, cuts_s=0, landing_s=0, small_files=2, history_s=1.0, archive=str(tmp_path / "archive"))
    run_transactions(rng, source, 4)
    run_compact(spark, config)
    for step in rng.sample(STEPS, count):
        armed.step = step
        for _ in range(_ROUNDS_MAX):
            run_transactions(rng, source, 6)
            if _is_interrupted(armed, spark, config):
                break
        assert not armed.step, f"{step} was not reached, seed {SEED}"
        if rng.random() < 0.5:
            run_transactions(rng, source, 2)
            run_compact(spark, config)
        maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
        _compact_and_maintain(spark, config)
        place = f"after {step}, seed {SEED}"
        assert newest_number(source.lake.store, source.lake.paths.intents) == newest_number(
            source.lake.store, source.lake.paths.cuts
        ), place
        verify_chain(Chain.open(source.lake, source.chain.incarnation))
        check(config, source, list(TABLES))
        position = Lsn(source.lsn)
        actual = lakeproof.as_of(spark, config, position)
        for table in (LINES, BAG):
            rows = rows_of(actual.table(table, hidden=True), source.tables[table].version)
            assert rows == source.state_at(position)[table], place


def _is_interrupted(armed: Armed, spark: SparkSession, config: Config) -> bool:
    """True if a compaction and a maintenance came to the step."""
    with watched(armed):
        try:
            _compact_and_maintain(spark, config)
        except Crash:
            return True
    return False


def _compact_and_maintain(spark: SparkSession, config: Config) -> None:
    run_compact(spark, config)
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
