"""Spark's process is given back while nothing needs it, and starts again for whoever does.

When a compaction does so is not asked here (`lakeproof.follow.follower`). It is tried in a process of its own, since the
other tests share one JVM.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_PROGRAM = """
import sys
from pathlib import Path
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.records.lease import jvm_of
from lakeproof.lake.spark.session import build_session, end_driver
from lakeproof.lake.spark_on_demand import SparkOnDemand

heard = []
spark = SparkOnDemand(lambda: build_session(SparkConfig(master="local[1]"), "given back"), end=end_driver)
with spark.heard_by(lambda session: heard.append(jvm_of(session).pid)):
    for turn in range(2):
        session = spark.get()
        path = f"{sys.argv[1]}/{turn}"
        session.range(5).write.format("delta").save(path)
        assert session.read.format("delta").load(path).count() == 5
        assert not spark.give_back(3600), "somebody has just asked for it"
        with spark.in_use():
            assert not spark.give_back(0), "somebody uses it"
        assert spark.give_back(0)
        assert not spark.give_back(0), "once"
        assert not Path(f"/proc/{heard[turn]}").exists()
assert len(set(heard)) == 2
"""
_KILLED = """
import os, signal, sys
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.records.lease import jvm_of
from lakeproof.lake.spark.driver import how_ended
from lakeproof.lake.spark.session import build_session, end_driver
from lakeproof.lake.spark_on_demand import SparkOnDemand

spark = SparkOnDemand(lambda: build_session(SparkConfig(master="local[1]"), "killed"), end=end_driver)
for seen in (True, False):
    session = spark.get()
    assert session.range(5).count() == 5
    os.kill(jvm_of(session).pid, signal.SIGKILL)
    assert how_ended(session, 60) is not None
    if seen:
        try:
            session.range(5).count()
        except Exception:
            pass
        else:
            sys.exit("the JVM lives")
    assert spark.give_back(0)
assert spark.get().range(5).count() == 5
assert spark.give_back(0)
"""


@pytest.mark.full
def test_a_session_starts_again_after_it_was_given_back(tmp_path: object) -> None:
    """Two JVMs, one after the other; each is gone once it was given back, and each reads and writes tables."""
    done = subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.full
def test_a_session_starts_again_after_its_process_was_killed() -> None:
    """Killed while nobody used it, noticed by a call or not: the session that was given back is not given out again."""
    done = subprocess.run([sys.executable, "-c", _KILLED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
