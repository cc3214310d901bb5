"""Spark's driver on a host with other users: it asks for a secret, and keeps its files to itself.

That it knows no password is seen where a command starts it (`edges/lake/test_cli_lake.py`).
"""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.spark.driver import filtered_stderr


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


def test_only_noise_is_kept_from_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """The driver's words about a failure are passed on, and kept for the error's reason."""
    program = "import sys; sys.stderr.write('WARNING: Using incubator modules\\nError: no heap\\n')"
    with filtered_stderr() as lines:
        subprocess.run([sys.executable, "-c", program], check=True)
    while not lines:
        pass
    assert list(lines) == ["Error: no heap"]
    assert capfd.readouterr().err == "Error: no heap\n"
