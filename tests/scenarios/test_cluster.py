"""Executors of another user on a standalone cluster write a lake on S3; some are killed, and the lake is the source.

Driver and executors share no folder: what went past the store would be missing on the other side.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.drain.until import Until
from tests.support.servers.fix_postgres import Database
from tests.support.spark.cluster_pipeline import TABLES, Done, Pipeline, new_pipeline
from tests.support.spark.fix_cluster import Cluster
from tests.support.stores.fix_object_store import S3Server

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ["LAKEPROOF_SEED"])
ROOT = Path(__file__).resolve().parents[2]
# A worker is killed once it has begun fewer tasks than this: in the look at the lake, in the try of Delta, in what follows.
TASKS_MAX = 20
# Rows of a change whose landed file is large enough to be linked.
MANY = 40_000


@pytest.fixture
def pipeline(database: Database, cluster: Cluster, s3_server: S3Server, bucket: str, tmp_path: Path) -> Pipeline:
    """The pipeline before its first copy."""
    return new_pipeline(database, cluster, s3_server, bucket, tmp_path)


def land(pipeline: Pipeline) -> None:
    """Drain what is there now."""
    drain(pipeline.config, "shop", Until.caught_up())


def events(done: Done, kind: str) -> list[dict[str, object]]:
    """What a command has reported, of one kind."""
    lines = [json.loads(line) for line in done.err.splitlines() if line.startswith("{")]
    return [line["fields"] for line in lines if line["event"] == kind]


@pytest.mark.full
def test_a_cycle_by_executors_that_share_nothing_with_the_driver(pipeline: Pipeline) -> None:
    """A copy and changes since; they are committed with deletion vectors, as on one machine."""
    bootstrap(pipeline.config, "shop")
    pipeline.change(3000)
    land(pipeline)
    done = pipeline.run("compact", "shop", "--json")
    assert done.status == 0, done.err
    assert pipeline.is_the_source()
    (written,) = events(done, "compact.cluster")
    assert str(written["master"]).startswith("spark://")
    cut = events(done, "compact.cut")[-1]
    written_by = json.dumps(cut["written_by"])
    assert '"engine": "spark"' in written_by, written_by
    for name in pipeline.cluster.processes:
        assert pipeline.cluster.secret not in pipeline.cluster.log(name)


@pytest.mark.full
def test_a_worker_is_killed_in_the_middle_of_each_command(pipeline: Pipeline) -> None:
    """Copy, cycles by vectors and links, a new column, a view, maintenance and a proof: each loses a worker and goes on."""
    chance, lost = random.Random(SEED), list[tuple[str, str, int, bool, int]]()

    def lose_a_worker(*words: str) -> Done:
        """Run the command; what ends with "try again" is tried again."""
        kill = (chance.choice(["worker0", "worker1"]), chance.randrange(1, TASKS_MAX))
        done = pipeline.run(*words, kill=kill)
        lost.append((words[0], *kill, done.killed, done.status))
        if done.status == 3:
            done = pipeline.run(*words)
        assert done.status == 0, (lost, done.err, done.out)
        return done

    bootstrap(pipeline.config, "shop")
    pipeline.change(3000)
    land(pipeline)
    lose_a_worker("compact", "shop", "--json")
    assert pipeline.is_the_source()
    pipeline.change(100_000, MANY)
    land(pipeline)
    lose_a_worker("compact", "shop", "--json")
    assert pipeline.is_the_source()
    pipeline.database.execute("ALTER TABLE items ADD more int DEFAULT 5", "UPDATE items SET more = id WHERE id < 50")
    pipeline.change(6000)
    land(pipeline)
    lose_a_worker("compact", "shop", "--json")
    lose_a_worker("refresh", "--json")
    lose_a_worker("maintain", "shop", "--json")
    pipeline.change(9000)
    land(pipeline)
    lose_a_worker("compact", "shop", "--json")
    assert pipeline.is_the_source()
    done = lose_a_worker("prove", "shop", "--json", "--history")
    tables = json.loads(done.out)["tables"]
    assert {name: table["status"] for name, table in tables.items()} == {str(table): "equal" for table in TABLES}
    # A command may have ended before its worker had that many tasks.
    assert sum(killed for *_, killed, _ in lost) >= len(lost) - 2, lost


@pytest.mark.full
def test_what_is_lost_comes_back_the_same_and_what_is_not_reached_is_refused(pipeline: Pipeline) -> None:
    """Rows that are computed again keep their numbers; the driver's own folder and a cluster without workers are refused."""
    cluster, folder = pipeline.cluster, pipeline.file.parent / "alone"
    folder.mkdir(mode=0o700)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.spark.cluster_process", str(pipeline.file), str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def answer() -> str:
        """The next line, after which the process waits."""
        line = process.stdout.readline().strip()  # type: ignore[union-attr]  # a pipe, as asserted
        assert line, process.poll()
        return line

    def go_on() -> None:
        process.stdin.write("\n")  # type: ignore[union-attr]  # as above
        process.stdin.flush()  # type: ignore[union-attr]  # as above

    try:
        before = answer()
        for name in ("worker0", "worker1"):
            cluster.kill(name)
        for name in ("worker0", "worker1"):
            cluster.start_worker(name)
        go_on()
        assert answer() == before
        go_on()
        refused = answer()
        assert refused.startswith(f"LakeError: lake {folder}: an executor of the cluster does not reach it")
        assert "mount the same folder at the same path on each machine" in refused
        assert not [path for path in folder.rglob("*") if path.is_file()]
        for name in ("worker0", "worker1"):
            cluster.kill(name)
        go_on()
        assert "TransientError: Spark's cluster" in (lost := answer())
        assert "it has given no executor within 5 s" in lost
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
