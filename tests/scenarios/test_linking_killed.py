"""A process that links a landed file is killed: what it leaves is enough for the next one to make the commit once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.failpoints import VARIABLE
from lakeproof.lake.delta.link_commit import linked_name, prepare_links
from lakeproof.lake.delta.log import NO_VERSION, newest_version
from tests.link_process import link_request
from tests.linkable_rows import as_numbers, land, random_rows

ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = [pytest.mark.spark, pytest.mark.slow]


# The try on a scratch table, which comes first, makes two commits.
@pytest.mark.parametrize("place", ["apply.after_links", "apply.before_commit:3"])
def test_a_killed_link_is_made_once_by_the_next_process(spark: SparkSession, tmp_path: Path, place: str) -> None:
    """The name is there and no commit has it; the same file goes under the same name again."""
    rows = random_rows(random.Random(8), 100)
    file = land(tmp_path / "landing", "a.parquet", rows).place
    table = tmp_path / "t"
    command = [sys.executable, "-m", "tests.link_process", str(table), str(file)]
    environment = {**os.environ, VARIABLE: place}
    killed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=600, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    request = link_request(table, file)
    name = linked_name(request.info, request.links[0].landed)
    assert (newest_version(str(table)), (table / name).samefile(file)) == (NO_VERSION, True)
    assert prepare_links(spark, request).commit().version == 0
    assert as_numbers(spark.read.format("delta").load(str(table)).toArrow()) == as_numbers(rows)
    assert [path.name for path in table.glob("*.parquet")] == [name]
