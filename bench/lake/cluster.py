"""Times one compaction of many changes by 1, 2 and 4 executors of a core each on a standalone cluster, in one run.

    python -m bench.lake.cluster [--rows 10000000] [--changes 10000000] [--executors 1 2 4]

The landing is made once and copied for each number of executors. Master, workers, and a driver of its own for each number
are processes on this machine, which shares its cores among them: more executors than cores show what they cost, and no
speed-up. Before the measured cycle a small lake is compacted, so that no side starts cold. No test belongs here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pydantic import SecretStr
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from bench.lake.cycle import KINDS, SOURCE, VERSION, Bench
from lakeproof.commands.compact import compact
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.events import Event, Stop
from lakeproof.lake.spark.session import build_session
from lakeproof.storage.source_lake import SourceLake

_SPARK = Path(pyspark.__file__).parent
_START_S = 60.0
_WARM_ROWS = 100_000
_PER_SEGMENT = 1_000_000
_EXECUTOR_MEMORY = "2g"


def main() -> None:
    """Make the lakes, then run a driver for each number of executors; with `--lake`, be such a driver."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=10_000_000)
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--lake", type=Path, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--master", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.lake:
        drive(options.master, options.executors[0], *options.lake)
        return
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as name:
        folder = Path(name)
        _make(folder, options.rows, options.changes)
        digests, first = set[tuple[str, ...]](), 0.0
        for number in options.executors:
            result = _measure(folder, number)
            first = first or result["wall"]
            digests.add(tuple(result["digest"]))
            rate, speed_up = options.changes / result["wall"] / 1000, first / result["wall"]
            print(
                f"{number} executors: {result['wall']:.1f} s, {rate:.0f} k changes/s, speed-up {speed_up:.2f}; ", end=""
            )
            print(f"in tasks {result['tasks']:.0f} s, peak of the driver {result['rss']} MB", flush=True)
        print(f"  equal: {len(digests) == 1}")


def _make(folder: Path, rows: int, changes: int) -> None:
    """Land `changes` updates and deletes of `rows` rows, and as many of a small table as warm a session up."""
    spark = build_session(SparkConfig(master="local[2]"), "lakeproof bench")
    for name, count, landed in (("warm", _WARM_ROWS, _WARM_ROWS // 2), ("large", rows, changes)):
        (folder / name).mkdir()
        bench = Bench(spark, folder / name, count)
        # A segment changes a row once; the next one may change it again.
        for number, first in enumerate(range(0, landed, _PER_SEGMENT)):
            bench.land(min(_PER_SEGMENT, landed - first), number)
        shutil.rmtree(bench.copy)
    spark.stop()


def _measure(folder: Path, executors: int) -> dict[str, Any]:
    lakes = []
    for name in ("warm", "large"):
        (kept,) = (folder / name).glob("lake*")
        lake = folder / f"{name}{executors}"
        shutil.copytree(kept, lake)
        lakes.append(str(lake))
    os.sync()
    with _cluster(folder / f"cluster{executors}", executors) as master:
        command = [
            sys.executable,
            "-m",
            "bench.lake.cluster",
            "--lake",
            *lakes,
            "--master",
            master,
            "--executors",
            str(executors),
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    for written in lakes:
        shutil.rmtree(written)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[str]:
    """Run a master and workers of one core; yields the master's URL once every worker has registered."""
    folder.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    master, processes = f"spark://127.0.0.1:{port}", []
    try:
        processes.append(_start(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port)))
        for number in range(workers):
            limits = ("--cores", "1", "--memory", _EXECUTOR_MEMORY)
            processes.append(_start(folder, f"worker{number}", "worker.Worker", "--host", "127.0.0.1", *limits, master))
        deadline = time.monotonic() + _START_S
        while (
            sum("Successfully registered" in log.read_text(errors="replace") for log in folder.glob("*/log")) < workers
        ):
            if time.monotonic() > deadline:
                raise SystemExit(f"the workers did not register with {master}")
            time.sleep(0.2)
        yield master
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _start(folder: Path, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
    home = folder / name
    home.mkdir()
    environment = os.environ | {
        "SPARK_HOME": str(_SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(home / "local"),
        "SPARK_WORKER_DIR": str(home / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [
        str(_SPARK / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{program}",
        "--webui-port",
        "0",
        *arguments,
    ]
    with (home / "log").open("wb") as log:
        return subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)


def drive(master: str, executors: int, warm: Path, large: Path) -> None:
    """Compact both lakes by the cluster, and print what the second took."""
    conf = {
        "spark.cores.max": str(executors),
        "spark.executor.memory": _EXECUTOR_MEMORY,
        "spark.driver.host": "127.0.0.1",
    }
    spark = build_session(SparkConfig(master=master, driver_memory="2g", conf=conf), "lakeproof bench")
    _compact(spark, warm)
    before = _task_s(spark)
    started = time.perf_counter()
    _compact(spark, large)
    wall = time.perf_counter() - started
    result = {"wall": wall, "tasks": _task_s(spark) - before, "rss": _peak_mb(spark), "digest": _digest(spark, large)}
    print(json.dumps(result), flush=True)
    spark.stop()


def _compact(spark: SparkSession, lake: Path) -> None:
    source = SourceConfig(name=SOURCE, dsn=SecretStr("host=nowhere"), publication="p", slot="s")
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={SOURCE: source})

    def told(event: Event) -> None:
        print(event, file=sys.stderr, flush=True)

    compact(config, SOURCE, spark, told, Stop())


def _task_s(spark: SparkSession) -> float:
    """Return the seconds that executors have spent in tasks so far, all of them added up."""
    context: Any = spark.sparkContext
    executors = context._jsc.sc().statusStore().executorList(False)  # noqa: SLF001  PySpark has no public way to it
    return sum(float(executors.apply(i).totalDuration()) for i in range(executors.size())) / 1000


def _peak_mb(spark: SparkSession) -> int:
    context: Any = spark.sparkContext
    pid = context._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001  as above
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))


def _digest(spark: SparkSession, lake: Path) -> list[str]:
    place = SourceLake.open(str(lake), SOURCE)
    current = spark.read.format("delta").load(place.url(place.paths.current(VERSION.table)))
    row = current.select(F.xxhash64(*KINDS).cast("decimal(20,0)").alias("h")).agg(F.count("*"), F.sum("h")).first()
    return [] if row is None else [str(value) for value in row]


if __name__ == "__main__":
    main()
