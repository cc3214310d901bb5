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
from resources.fixed import location_resources

@dg.op(required_resource_keys={"pyspark"})
def idle(context) -> None:
    assert SparkSession.getActiveSession() is None

@dg.op(required_resource_keys={"pyspark"})
def partitions(context) -> str:
    return f"parallelism {context.resources.pyspark.spark_session.sparkContext.defaultParallelism}"

def run(op, path):
    @dg.job(resource_defs={"pyspark": location_resources(path, elsewhere=False)["pyspark"]})
    def job():
        op()
    result = job.execute_in_process()
    assert SparkSession.getActiveSession() is None
    return result

run(idle, sys.argv[1])
for path in sys.argv[1:]:
    print(run(partitions, path).output_for_node("partitions"))
"""


@pytest.mark.jvm
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
