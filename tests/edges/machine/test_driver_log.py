"""The driver's log, as it comes to a person's terminal: nothing of what is in order, nor of what is raised as an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_ROOT = Path(__file__).resolve().parents[3]
_WORK = """
import sys
from pyspark.sql import functions as F
from lakeproof.lake.spark.session import build_session
from tests.support.spark.fix_lake import SPARK

place = sys.argv[1]
spark = build_session(SPARK, "log")
spark.sql(
    f"CREATE TABLE delta.`{place}/t` (a int, b string, c int) USING delta TBLPROPERTIES"
    " ('delta.enableDeletionVectors' = 'true', 'delta.columnMapping.mode' = 'name')"
)
rows = spark.range(100).selectExpr("cast(id as int) a", "'x' b", "cast(id as int) c")
rows.coalesce(1).write.format("delta").mode("append").save(f"{place}/t")
for statement in ("DELETE FROM {} WHERE a % 7 = 0", "ALTER TABLE {} RENAME COLUMN b TO bb", "ALTER TABLE {} DROP COLUMN c"):
    spark.sql(statement.format(f"delta.`{place}/t`"))
read = spark.read.format("delta").load(f"{place}/t")
assert read.where("a > 5").count() == 80
assert read.where("bb = 'x'").select("a").distinct().count() == 85
refused = spark.range(10).selectExpr("if(id = 3, raise_error('a value'), id) a")
works = (
    refused.collect,
    lambda: refused.write.parquet(f"{place}/p"),
    lambda: refused.selectExpr("cast(a as int) a", "'x' bb").write.format("delta").mode("append").save(f"{place}/t"),
    spark.range(10).select(F.udf(lambda v: 1 / 0)("id")).collect,
    spark.range(10).join(F.broadcast(refused.withColumnRenamed("a", "id")), "id").count,
)
failed = 0
for work in works:
    try:
        work()
    except Exception:
        failed += 1
assert failed == len(works)
spark.stop()
"""


@pytest.mark.full
def test_the_log_has_no_line_of_what_is_in_order_or_is_raised_as_an_error(tmp_path: Path) -> None:
    """Reads of a table with dropped and renamed columns, and checks of ours that refuse rows in the middle of a job.

    Both wrote lines with Java's stack into the terminal, where lines of JSON were expected, and some with values.
    """
    command = [sys.executable, "-c", _WORK, str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": "."},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
