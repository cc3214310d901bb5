"""The Spark resource: no JVM until a session is asked for, and none of the first run's settings in the second."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]

_TWO_RUNS = """
import sys
import dagster as dg
from pyspark.sql import SparkSession
from resources import LakeSpark

@dg.op
def idle(lake_spark: LakeSpark) -> None:
    assert SparkSession.getActiveSession() is None

@dg.op
def partitions(lake_spark: LakeSpark) -> str:
    return f"parallelism {lake_spark.session.sparkContext.defaultParallelism}"

def run(op, path):
    @dg.job(resource_defs={"lake_spark": LakeSpark(config_path=path)})
    def job():
        op()
    result = job.execute_in_process()
    assert SparkSession.getActiveSession() is None
    return result

run(idle, sys.argv[1])
for path in sys.argv[1:]:
    print(run(partitions, path).output_for_node("partitions"))
"""


@pytest.mark.spark
def test_each_run_has_its_own_session_and_only_if_it_needs_one(tmp_path: Path) -> None:
    """The stock resource would give the second run the first one's session."""
    paths = []
    for which in (3, 5):
        path = tmp_path / f"{which}.yaml"
        path.write_text(
            f"lake: lake\nsources:\n  shop: {{dsn: dbname=x}}\n"
            f"spark: {{master: 'local[1]', driver_memory: 512m, conf: {{spark.default.parallelism: '{which}'}}}}\n",
            encoding="utf-8",
        )
        paths.append(str(path))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TWO_RUNS, *paths],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-2:] == ["parallelism 3", "parallelism 5"]
