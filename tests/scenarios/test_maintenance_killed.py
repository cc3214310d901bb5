"""`lakeproof maintain` is killed with SIGKILL between its steps, or at any moment; the next one ends what it began.

In-process crashes at every step, with changes and an archive in between, are in `test_maintenance_crashes.py`.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import maintain, maintenance_plan
from lakeproof.commands.refresh import refresh
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.events import silent
from lakeproof.failpoints import VARIABLE
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.store import cut_numbers, newest_number, read_cut
from lakeproof.lake.records.views.cuts import newest_view_cut
from lakeproof.landing.chain import Chain, verify_chain
from lakeproof.names import CycleNumber
from lakeproof.storage.document import canonical
from lakeproof.storage.paths import LakePaths
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.maintain_steps import BAG, LINES, TABLES, begun
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.spark.fix_lake import SPARK
from tests.support.workloads.lake_workload import SEED, run_transactions

ROOT = Path(__file__).resolve().parents[2]
# In this order each is passed by the process that resumes what the one before left.
STEPS = (
    "cycle.after_intent",
    "maintenance.after_history",
    "cycle.after_tables",
    "cycle.after_cut",
    "maintain.after_cuts",
    "maintain.after_tables",
    "maintain.after_start",
    "maintain.amid_manifests",
    "maintain.after_landing",
    # The view's own cycle: no other is left by then.
    "cycle.after_sync",
)
# Each is a JVM more. Without the view, whose refreshes take as long as all else.
ONE_STEP = (random.Random(SEED).choice(STEPS[:-1]),)
LONG_AGO = datetime.now(timezone.utc) - timedelta(days=9)
VIEW = "notes"
CONFIGURATION = f"""
lake: lake
sources:
  {SOURCE}:
    dsn: host=nowhere dbname=shop
    publication: shop
    slot: shop
    retention: {{cuts_s: 3600, landing_s: 0, small_files: 2}}
views:
  {VIEW}:
    sql: notes.sql
    reads: {{lines: '{SOURCE}/app."order lines"'}}
spark:
  master: "local[2]"
  driver_memory: 1g
  conf: {json.dumps(SPARK.conf)}
"""
pytestmark = [pytest.mark.spark, pytest.mark.slow]


def configured(folder: Path) -> Config:
    """A configuration file with one view over the lake's table, as the command reads it."""
    (folder / "lakeproof.yaml").write_text(CONFIGURATION, encoding="utf-8")
    (folder / "notes.sql").write_text("SELECT note, count(*) AS n FROM lines GROUP BY note", encoding="utf-8")
    return load(folder / "lakeproof.yaml")


def command(config: Config, step: str = "") -> subprocess.Popen[bytes]:
    """`lakeproof maintain` in its own process, killed at a step."""
    return subprocess.Popen(
        [sys.executable, "-m", "lakeproof", "-c", str(config.path), "maintain", SOURCE],
        cwd=ROOT,
        env={**os.environ, VARIABLE: step},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Kept:
    """A lake with cuts that are too old, one that is pinned and still within the policy, and the newest."""

    def __init__(self, spark: SparkSession, folder: Path, *, view: bool = True) -> None:
        self.spark, self.config, self.view = spark, configured(folder), view
        self.rng, self.source = begun(folder / "lake")
        run_transactions(self.rng, self.source, 3)
        run_compact(spark, self.config)
        for _ in range(2 if view else 1):
            self.go_on(8)
        while not self.has_work():
            # Chance left a table, a view or the landing almost as it was.
            self.go_on(4)
        numbers = cut_numbers(self.source.lake)
        # The last of these is followed by the newest one now.
        for number in numbers[:-1]:
            _backdate(self.source.lake.store.url(self.source.lake.paths.cut(number)))
        self.pinned = numbers[-2]
        self.rows = self.rows_at(self.pinned)

    def has_work(self) -> bool:
        """True if each step has something to do."""
        plan = maintenance_plan(self.config, SOURCE)
        return len(plan.optimized) == len(TABLES) and bool(
            plan.freed["landing"].files and (plan.views or not self.view)
        )

    def go_on(self, transactions: int) -> None:
        """Change the source, and bring lake and view after it."""
        run_transactions(self.rng, self.source, transactions)
        run_compact(self.spark, self.config)
        if not self.view:
            return
        (result,) = refresh(self.config, VIEW, self.spark)
        assert result.stands_still is None

    def rows_at(self, number: CycleNumber) -> list[Counter[Any]]:
        """The tables' rows at a cut."""
        lake = open_lake(self.spark.newSession(), self.config, int(number))
        return [rows_of(lake.table(SOURCE, t, hidden=True), self.source.tables[t].version) for t in (LINES, BAG)]

    def check(self) -> None:
        """The lake is the source's, the pinned cut and the view are what they were, nothing is left to do."""
        source: SimulatedSource = self.source
        assert newest_number(source.lake.store, source.lake.paths.intents) == newest_number(
            source.lake.store, source.lake.paths.cuts
        )
        check(self.config, source, list(TABLES))
        assert self.rows_at(self.pinned) == self.rows
        assert cut_numbers(source.lake)[0] == self.pinned
        verify_chain(Chain.open(source.lake, source.chain.incarnation))
        again = maintenance_plan(self.config, SOURCE)
        # The lease of a run that has ended goes with the next one's cuts.
        left = {of for of, freed in again.freed.items() if freed.files} - {"cuts"}
        assert (again.optimized, again.views, left) == ((), (), set())
        if self.view:
            self.check_view()

    def check_view(self) -> None:
        """The view is its query's answer."""
        view = newest_view_cut(self.source.lake.store, VIEW)
        assert view is not None
        path = self.source.lake.store.url(LakePaths.view(VIEW))
        stored = self.spark.read.format("delta").option("versionAsOf", view.delta_version).load(path)
        lines = open_lake(self.spark, self.config).table(SOURCE, LINES)
        expected = Counter(row[0] for row in lines.select("note").collect())
        assert {row["note"]: row["n"] for row in stored.collect()} == expected


def _backdate(path: str) -> None:
    document = json.loads(Path(path).read_bytes())
    Path(path).write_bytes(canonical({**document, "created_at": LONG_AGO.isoformat().replace("+00:00", "Z")}))


@pytest.mark.parametrize("steps", [ONE_STEP, STEPS], ids=["one", "all"])
@pytest.mark.full
def test_maintenance_killed_between_its_steps_ends_equal(
    spark: SparkSession, tmp_path: Path, steps: tuple[str, ...]
) -> None:
    """Old cuts, landing and files go, small files become large ones, and a pinned cut within the policy is readable."""
    lake = Kept(spark, tmp_path, view=len(steps) > 1)
    planned = maintenance_plan(lake.config, SOURCE)
    assert set(planned.optimized) == {LINES, BAG}
    assert planned.views == ((VIEW,) if lake.view else ())
    assert all(planned.freed[of].files for of in ("cuts", "landing", "snapshots"))
    for step in steps:
        assert command(lake.config, step).wait(600) == -signal.SIGKILL, f"{step} was not passed, seed {SEED}"
        assert lake.rows_at(lake.pinned) == lake.rows, f"after {step}, seed {SEED}"
    maintain(lake.config, SOURCE, spark, silent)
    run_compact(spark, lake.config)
    lake.check()


@pytest.mark.full
def test_maintenance_killed_at_any_moment_ends_equal(spark: SparkSession, tmp_path: Path) -> None:
    """Several kills follow one another, with changes in between."""
    lake = Kept(spark, tmp_path)
    begun_at = time.monotonic()
    assert command(lake.config).wait(600) == 0
    whole_s = time.monotonic() - begun_at
    lake.check()
    for _ in range(6):
        lake.go_on(4)
        lake.go_on(4)
        process = command(lake.config)
        time.sleep(whole_s * lake.rng.uniform(0.4, 1.0))
        process.kill()
        process.wait(60)
        assert lake.rows_at(lake.pinned) == lake.rows, f"seed {SEED}"
        if lake.rng.random() < 0.5:
            run_compact(spark, lake.config)
    maintain(lake.config, SOURCE, spark, silent)
    run_compact(spark, lake.config)
    lake.check()
    assert read_cut(lake.source.lake, lake.pinned).number == lake.pinned
