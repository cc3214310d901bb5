"""Measures fresh reads: the time from a commit in PostgreSQL to the end of a read at the landing's end that shows it.

Cuts do not belong here (`bench.pipeline.continuous`). A drain and a continuous compaction run as commands beside a steady
load. Reads follow one another without a pause: each opens the lake at its landing's end, then counts and adds up every
table's rows in one query. A change's latency goes from its commit to the end of the first read whose position is at or past
it. The last read is compared with PostgreSQL. With `--without-spark` the reads are `lakeproof.read`'s.

    python -m bench.pipeline.fresh_reads [--without-spark] [--tables 5] [--per-second 1000] [--seconds 60] [--flush 0.5]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TypeAlias

import numpy as np
import psycopg
import pyarrow.compute as pc
from psycopg import sql
from pyspark.sql import DataFrame, SparkSession

import lakeproof
from bench.pipeline.continuous import NAME, PASSWORD, prepare, write
from bench.pipeline.freshness import landed_commits
from demo.server import EmbeddedPostgres
from lakeproof.config.load import load
from lakeproof.lake.planning.landing.end import LakeAtLanding
from lakeproof.lake.read.arrow.open import LandedReadLake
from lakeproof.lake.read.spark.open import LandedLake
from lakeproof.storage.source_lake import SourceLake

_ROOT = Path(__file__).resolve().parents[2]
# The first reads and cycles compile what later ones run.
_WARM_UP_S = 45
_LANDED_S = 30.0
# Of each table, the number of rows and the sum of a column.
_Totals: TypeAlias = dict[str, tuple[int, int]]
_Read: TypeAlias = Callable[[Path, list[str]], tuple[_Totals, LakeAtLanding]]


@dataclass(slots=True)
class _Reads:
    """The position and the end of each read, and the seconds that it took."""

    positions: list[int] = field(default_factory=list)
    ends: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    stopped: int = 0


def main() -> int:
    """Load, read, compare; the status is 1 if the last read does not have what PostgreSQL has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--flush", type=float, default=0.5, help="the drain's flush_interval_s")
    parser.add_argument("--without-spark", action="store_true", help="read with Arrow, in a process without a JVM")
    options = parser.parse_args()
    with (
        EmbeddedPostgres() as server,
        tempfile.TemporaryDirectory(prefix="lakeproof-bench-", ignore_cleanup_errors=True) as folder,
    ):
        tables = [f"t{number}" for number in range(options.tables)]
        file = prepare(server, Path(folder), tables, f"    drain: {{flush_interval_s: {options.flush}}}\n")
        os.environ[PASSWORD] = server.password
        config = load(file)
        lakeproof_command = [sys.executable, "-m", "lakeproof", "-c", str(file)]
        for step in ("bootstrap", "compact"):
            subprocess.run([*lakeproof_command, step], cwd=_ROOT, check=True)
        lake = SourceLake.open(config.location, NAME)
        read = _without_spark if options.without_spark else partial(_with_spark, lakeproof.session(config))
        reads, stop = _Reads(), threading.Event()
        with _running(lakeproof_command, ["drain"]), _running(lakeproof_command, ["compact", "--follow"]):
            reader = threading.Thread(target=_read_on, args=(read, file, tables, reads, stop))
            reader.start()
            write(server.dsn(), tables, options.per_second, _WARM_UP_S)
            began = time.time()
            late_s = write(server.dsn(), tables, options.per_second, options.seconds)
            end = time.time()
            # What was committed last is seen by the reads that follow.
            time.sleep(_LANDED_S)
            stop.set()
            reader.join()
            expected = _source(server.dsn(), tables)
            actual, _ = read(file, tables)
        positions, times = landed_commits(lake, began, end)
    shown = np.array(reads.ends)[np.searchsorted(np.array(reads.positions), positions)]
    p50, p99 = np.percentile(shown - times, [50, 99])
    took = np.array(reads.seconds)[np.array(reads.ends) > began]
    print(
        f"{len(times):,} changes of {options.tables} tables, {len(times) / (end - began):,.0f}/s, "
        f"the writer at most {late_s:.2f} s behind\n"
        f"commit to a fresh read that shows it: p50 {p50:.2f} s, p99 {p99:.2f} s, most {(shown - times).max():.2f} s\n"
        f"a read of all tables: median {np.median(took):.2f} s, most {took.max():.2f} s, {len(took)} reads, "
        f"{reads.stopped} of all stopped before the landing's end; load average {os.getloadavg()[0]:.1f}\n"
        f"the last read {'equals' if actual == expected else 'DIFFERS FROM'} PostgreSQL",
        flush=True,
    )
    return int(actual != expected)


def _read_on(read: _Read, file: Path, tables: list[str], reads: _Reads, stop: threading.Event) -> None:
    while not stop.is_set():
        began = time.time()
        _, opened = read(file, tables)
        reads.ends.append(time.time())
        reads.seconds.append(reads.ends[-1] - began)
        reads.positions.append(int(opened.position(NAME)))
        reads.stopped += opened.stopped(NAME) is not None


def _with_spark(spark: SparkSession, file: Path, tables: list[str]) -> tuple[_Totals, LandedLake]:
    """Open the lake at its landing's end, and count the rows of each table and add up a column, in one query."""
    opened = lakeproof.open(spark, load(file), at="landing")
    frames = [opened.table(NAME, f"public.{table}").selectExpr(f"'{table}' AS t", "n") for table in tables]
    rows = reduce(DataFrame.unionAll, frames).groupBy("t").agg({"*": "count", "n": "sum"}).collect()
    return {row[0]: (int(row["count(1)"]), int(row["sum(n)"])) for row in rows}, opened


def _without_spark(file: Path, tables: list[str]) -> tuple[_Totals, LandedReadLake]:
    """Do the same with Arrow, a table after the other."""
    opened = lakeproof.read(load(file), at="landing")
    totals = {}
    for table in tables:
        column = opened.table(NAME, f"public.{table}").select("n").arrow().column("n")
        totals[table] = len(column), int(pc.sum(column).as_py() or 0)
    return totals, opened


def _source(dsn: str, tables: list[str]) -> _Totals:
    with psycopg.connect(dsn) as conn:
        query = sql.SQL("SELECT count(*), sum(n) FROM {table}")
        rows = {t: conn.execute(query.format(table=sql.Identifier(t))).fetchone() for t in tables}
    return {table: (int(row[0]), int(row[1])) for table, row in rows.items() if row is not None}


@contextmanager
def _running(command: list[str], arguments: list[str]) -> Iterator[None]:
    """Run a command in a process of its own until the block ends."""
    process = subprocess.Popen([*command, *arguments], cwd=_ROOT, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(120)


if __name__ == "__main__":
    sys.exit(main())
