"""A compaction that follows the landing: changes are soon in a cut, everybody gets a turn at the lease, kills lose nothing.

One cycle does not belong here, nor Dagster's run that follows (`tests/shell/runs/test_job_end_to_end.py`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.compact import follow
from lakeproof.config.model import Config
from lakeproof.errors import TransientError
from lakeproof.events import Event, RunControl, Stop
from lakeproof.failpoints import VARIABLE
from lakeproof.follow import follower as following
from lakeproof.follow.follower import FollowOptions, FollowReport
from lakeproof.lake.records.lease import hold_lease, newest_epoch
from lakeproof.lake.records.store import newest_cut, newest_number
from tests.support.ingest.fix_drain import wait_until
from tests.support.lake.lake_steps import check, make_config, run_compact
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.workloads.lake_workload import SEED, make_tables, run_transactions

TABLES = ("order lines", "bag")
pytestmark = [pytest.mark.spark, pytest.mark.slow]


@dataclass
class Following:
    """A follower in a thread of this process: its report when it has ended, and its events."""

    stop: Stop = field(default_factory=Stop)
    report: FollowReport | None = None
    events: list[Event] = field(default_factory=list)


@contextmanager
def followed_by_thread(
    spark: SparkSession, config: Config, options: FollowOptions | None = None
) -> Iterator[Following]:
    """Follow while the block runs."""
    state = Following()

    def work() -> None:
        state.report = follow(config, SOURCE, spark, RunControl(state.events.append, state.stop), options)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield state
    finally:
        state.stop.request()
        thread.join()


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """Two tables with a snapshot; nothing is in the lake."""
    source = SimulatedSource(tmp_path, [t for t in make_tables() if t.version.table.name in TABLES])
    source._remember()
    source.snapshot(TABLES)
    return source


def _is_in(source: SimulatedSource) -> Callable[[], bool]:
    def at_the_end() -> bool:
        cut = newest_cut(source.lake)
        return cut is not None and cut.position >= source.chain.end

    return at_the_end


def test_what_lands_is_in_a_cut_soon_and_others_get_their_turn(
    spark: SparkSession, tmp_path: Path, source: SimulatedSource
) -> None:
    """One lease for many cycles; a writer that comes meanwhile has it after the cycle, and the follower goes on then."""
    rng, config = random.Random(SEED), make_config(tmp_path)
    with followed_by_thread(spark, config) as state:
        wait_until(_is_in(source))
        for _ in range(2):
            run_transactions(rng, source, 6)
            wait_until(_is_in(source))
        assert newest_epoch(source.lake) == 1
        with hold_lease(source.lake, spark):
            run_transactions(rng, source, 6)
            time.sleep(1)
            assert not _is_in(source)()
        wait_until(_is_in(source))
        assert newest_epoch(source.lake) == 3
    assert state.report is not None
    assert state.report.reason_for_end == "asked"
    assert state.report.cycles[SOURCE] == newest_number(source.lake.store, source.lake.paths.cuts) >= 4
    assert run_compact(spark, config) == []
    check(config, source, list(TABLES))


def test_a_second_writer_is_still_refused_if_nobody_follows(tmp_path: Path, source: SimulatedSource) -> None:
    """Waiting would be for as long as the other's work takes, which nobody knows."""
    del tmp_path
    with (
        hold_lease(source.lake),
        pytest.raises(TransientError, match="another process is writing"),
        hold_lease(source.lake),
    ):
        pass


@pytest.mark.full
def test_a_follower_near_its_end_leaves_the_rest_to_whoever_takes_the_lease(
    spark: SparkSession, tmp_path: Path, source: SimulatedSource
) -> None:
    """The successor of an hour's run comes a minute before its end: the first one does not ask for the lease again."""
    rng, config = random.Random(SEED + 1), make_config(tmp_path)
    run_transactions(rng, source, 3)
    with followed_by_thread(spark, config, FollowOptions(max_seconds=following.LAST_S - 1)) as first:
        wait_until(_is_in(source))
        with followed_by_thread(spark, config) as second:
            wait_until(lambda: first.report is not None)
            run_transactions(rng, source, 6)
            wait_until(_is_in(source))
        assert second.report is not None
    assert first.report is not None
    assert first.report.reason_for_end == "followed by another process"
    check(config, source, list(TABLES))


@pytest.mark.full
@pytest.mark.parametrize(
    "place", ["follow.before_cycle", "cycle.after_history", "cycle.after_current", "cycle.after_cut"]
)
def test_a_follower_that_is_killed_is_followed_by_the_next_one(
    spark: SparkSession, tmp_path: Path, source: SimulatedSource, place: str
) -> None:
    """At any step of a cycle, with a JVM that outlives its process for a while."""
    rng, config = random.Random(f"{SEED} {place}"), make_config(tmp_path)
    run_compact(spark, config)
    killed = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark.follow_process", str(tmp_path)],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, VARIABLE: place},
    )
    with killed:
        while killed.poll() is None:
            run_transactions(rng, source, 2)
            time.sleep(0.2)
    assert killed.returncode == -signal.SIGKILL, f"{place} was not passed, seed {SEED}"
    with followed_by_thread(spark, config) as state:
        run_transactions(rng, source, 6)
        wait_until(_is_in(source))
    assert state.report is not None
    assert json.loads(source.lake.store.get(source.lake.paths.lease(newest_epoch(source.lake))))["writer"]
    check(config, source, list(TABLES))
