"""Spark's driver on a host with other users: it asks for a secret, keeps its files to itself, and knows no password."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.spark.driver import filtered_stderr

_PROGRAM = """
import os, sys
from pathlib import Path
from lakeproof.lake.spark.session import session
spark = session(Path(sys.argv[1]))
print(repr(spark._jvm.java.lang.System.getenv("LP_DRIVER_PASSWORD")), os.environ["LP_DRIVER_PASSWORD"])
print(spark.range(3).count())
spark.stop()
"""


def test_nobody_without_the_secret_talks_to_the_driver(spark: SparkSession) -> None:
    """A process that reaches the port could otherwise read blocks, and make the driver deserialize objects."""
    assert spark.conf.get("spark.authenticate") == "true"
    assert spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"


@pytest.mark.full
def test_its_scratch_files_are_in_a_folder_of_this_users(spark: SparkSession) -> None:
    """Kept rows and shuffles are files that everybody may read."""
    folder = Path(str(spark.conf.get("spark.local.dir")))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert spark.range(1000).repartition(2).count() == 1000
    assert any(folder.rglob("*"))


@pytest.mark.jvm
@pytest.mark.slow
def test_a_start_is_quiet_and_its_environment_has_no_secret(tmp_path: Path) -> None:
    """The start hides Ivy's 90 lines and the JVM's warnings; a view's SQL could read an environment variable."""
    config = tmp_path / "w.yaml"
    config.write_text(
        "lake: lake\nsources: {s: {dsn: dbname=a, password: {env: LP_DRIVER_PASSWORD}}}\n"
        "spark: {master: 'local[1]', driver_memory: 512m}\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "LP_DRIVER_PASSWORD": "hunter2"}
    environment.pop("SPARK_CONF_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(config)], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stderr, done.stdout) == ("", "None hunter2\n3\n")


def test_only_noise_is_kept_from_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """The driver's words about a failure are passed on, and kept for the error's reason."""
    program = "import sys; sys.stderr.write('WARNING: Using incubator modules\\nError: no heap\\n')"
    with filtered_stderr() as lines:
        subprocess.run([sys.executable, "-c", program], check=True)
    while not lines:
        pass
    assert list(lines) == ["Error: no heap"]
    assert capfd.readouterr().err == "Error: no heap\n"
