"""A compaction is killed with SIGKILL between any two of its steps; whoever comes next finishes the cycle.

One cycle is killed at every step in turn, each time by the process that resumes it: so every step is also reached by way
of a resumed intent.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.failpoints import VARIABLE
from lakeproof.lake.delta.log.commits import read_commit
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.documents import CycleKind
from lakeproof.lake.records.store import newest_number, read_cut
from lakeproof.lake.spark.driver import DriverLostError
from lakeproof.names import LAYERS, CycleNumber, Oid
from tests.support.ingest.fix_drain import wait_until
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_rows import images_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.spark.compact_process import ENGINE
from tests.support.workloads.lake_workload import SEED, insert_random_row, make_tables, random_row, run_transactions

ROOT = Path(__file__).resolve().parents[2]
STEPS = (
    "cycle.after_intent",
    "cycle.after_history",
    "cycle.after_current:2",
    "cycle.after_tables",
    "cycle.after_sync",
    "cycle.after_cut",
)
# Each is a JVM more: the one that leaves most behind. Crashes at each step without a process of their own are in
# test_cycle_crashes.py.
SOME_STEPS = ("cycle.after_current:2",)
TABLES = ("order lines", "bag", "log")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def killed_at(step: str, lake: Path) -> int:
    """The exit status of a compaction that meets the failpoint."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.spark.compact_process", str(lake)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: step},
        capture_output=True,
        timeout=600,
        check=False,
    )
    return done.returncode


@pytest.mark.full
@pytest.mark.parametrize("steps", [SOME_STEPS, pytest.param(STEPS, marks=pytest.mark.full)], ids=["some", "all"])
def test_a_cycle_killed_at_every_step_ends_equal(spark: SparkSession, tmp_path: Path, steps: tuple[str, ...]) -> None:
    """Changes to tables that are there, and a table that enters: no row is missing and none is there twice."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, [t for t in make_tables() if t.version.table.name in TABLES])
    config = make_config(tmp_path)
    for name in TABLES[:2]:
        table = source.table(name)
        for _ in range(10):
            row = random_row(rng, table)
            if table.takes(row):
                table.rows.append(row)
    source._remember()
    source.snapshot(TABLES[:2])
    run_transactions(rng, source, 3)
    run_compact(spark, config)
    source.snapshot(["log"])
    run_transactions(rng, source, 12)

    for step in steps:
        assert killed_at(step, tmp_path) == -signal.SIGKILL, f"{step} was not passed, seed {SEED}"
    assert (run_compact(spark, config) == []) is (steps[-1] == "cycle.after_cut")

    assert (
        newest_number(source.lake.store, source.lake.paths.intents)
        == newest_number(source.lake.store, source.lake.paths.cuts)
        == 2
    )
    check(config, source, list(TABLES))
    lake = open_lake(spark, config)
    assert lake.position(SOURCE) == source.chain.end
    for name in TABLES[:2]:
        version = source.table(name).version
        history = lake.table(SOURCE, version.table, layer="history", hidden=True)
        assert images_of(history, version) == source.table(name).images, f"{name}, seed {SEED}"


@pytest.mark.full
def test_a_change_of_schema_that_is_killed_stands_once(spark: SparkSession, tmp_path: Path) -> None:
    """Each of two tables renames a column and widens a key in one cycle; what a kill leaves is restored over.

    A kill leaves at most one commit of the change in each Delta table, and the next run at most one RESTORE over it.
    """
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, [t for t in make_tables() if t.version.table.name in TABLES[:2]])
    config = make_config(tmp_path)
    source.snapshot(TABLES[:2])
    run_transactions(rng, source, 12)
    run_compact(spark, config)
    before = read_lake(config).cuts[SOURCE]
    for name, column in (("order lines", "note"), ("bag", "a")):
        table = source.table(name)
        columns = [replace(c, name="re named") if c.name == column else c for c in table.version.columns]
        columns = [replace(c, kind="int8", type_oid=Oid(20)) if c.kind == "int4" else c for c in columns]
        table.version = replace(table.version, columns=tuple(columns))
        insert_random_row(rng, source, table)
    run_transactions(rng, source, 5)

    kills = ("cycle.after_history", "cycle.after_current:2", "cycle.after_tables")
    for step in kills:
        assert killed_at(step, tmp_path) == -signal.SIGKILL, f"{step} was not passed, seed {SEED}"
    run_compact(spark, config)
    check(config, source, list(TABLES[:2]))
    cut = read_lake(config).cuts[SOURCE]
    kinds = [read_cut(source.lake, CycleNumber(n)).kind for n in range(before.number, cut.number + 1)]
    assert kinds.count(CycleKind.SCHEMA) == 1
    altered = read_cut(source.lake, CycleNumber(before.number + kinds.index(CycleKind.SCHEMA)))
    for table_name, position in altered.tables.items():
        for layer in LAYERS:
            first, last = before.tables[table_name].version_of(layer), position.version_of(layer)
            path = source.lake.url(source.lake.paths.layer(table_name, layer))
            operations = [commit.operation for n in range(first, last) if (commit := read_commit(path, n + 1))]
            assert len(operations) == last - first <= 1 + 2 * len(kills), operations
            # The change and its RESTORE in turn; the last one stands.
            assert [operation == "RESTORE" for operation in operations] == [n % 2 == 1 for n in range(len(operations))]
            assert len(operations) % 2 == 1, operations
    changes = spark.read.format("delta").load(source.lake.url(source.lake.paths.schema_history))
    assert changes.count() == 2


@pytest.mark.full
def test_a_compaction_whose_jvm_is_killed_says_so_and_the_next_one_ends_its_cycle(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The kill is like the system's when memory runs out; the message has nothing of Java's."""
    rng = random.Random(SEED)
    source = SimulatedSource(tmp_path, make_tables())
    config = make_config(tmp_path)
    source.snapshot(TABLES)
    run_transactions(rng, source, 10)
    here = tmp_path / "here"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark.compact_process", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: f"cycle.after_history@hold:{here}", ENGINE: "spark"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        wait_until(here.exists, 600)
        lease = json.loads(source.lake.store.get(source.lake.paths.lease(1)))
        os.kill(lease["jvm"]["pid"], signal.SIGKILL)
        here.unlink()
        message, log = process.communicate(timeout=600)
    assert process.returncode == DriverLostError.exit_status, log
    assert message.startswith("Spark's driver: its process was killed, by signal 9 (SIGKILL)"), message
    assert "spark.driver_memory" in message
    assert "Traceback" not in log
    assert source.lake.store.list(source.lake.paths.attempts)
    run_compact(spark, config)
    assert read_lake(config).cuts[SOURCE].held == {}
    assert source.lake.store.list(source.lake.paths.attempts) == []
    check(config, source, list(TABLES))
