"""Values of many megabytes and a small driver: compaction of one, of many and beside a counter killed Spark's driver.

The drain's and the copy's side of it is in `test_snapshot_memory.py` and in `bench.ingest.bounds`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages.manual_blocks import ROOT
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.full]
SOME = {"memory": "768m", "value_mb": 12, "documents": 60, "document_mb": 4, "updates": 150, "unchanged_mb": 2}
# As they were found: with the default memory.
ALL = {"memory": "2g", "value_mb": 27, "documents": 150, "document_mb": 5, "updates": 200, "unchanged_mb": 3}


@pytest.mark.parametrize("sizes", [SOME, ALL], ids=["some", "all"])
def test_large_values_go_through_a_small_driver(database: Database, tmp_path: Path, sizes: dict[str, Any]) -> None:
    """A value updated a few times, documents copied, a counter beside a value that does not change; then a kill."""
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES")
    given = {**sizes, "dsn": database.dsn, "lake": str(tmp_path), "slot": database.name}
    command = [sys.executable, "-m", "tests.support.spark.large_values_process", json.dumps(given)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    message = json.loads(done.stdout.strip().rpartition("\n")[2])
    (killed,) = message.pop("killed")
    assert message == {table: ["equal", None] for table in ("value", "documents", "counter")}
    assert "Spark's driver: its process was killed, by signal 9" in killed
    assert f"spark.driver_memory is {sizes['memory']}" in killed
