"""Times the whole pipeline: from a commit in PostgreSQL to a cut that shows it, a backlog into the lake, and reading.

    python -m bench.pipeline.whole visible  [--per-second 1000] [--seconds 60]
    python -m bench.pipeline.whole catch-up [--changes 10000000]
    python -m bench.pipeline.whole reading  [--rows 10000000]

`visible`: five tables are written at a steady rate while a drain and cycles run without a pause between them, in one
process as in `make demo`. A change's latency is the time at which the first cut at or past it was written, minus its commit
time as PostgreSQL recorded it, on the clock of one machine. `catch-up`: this many changes of five tables wait in the slot;
they are drained, then compacted. `reading`: all of current, a sum over it and one of its rows, against the same from history
with the usual window.
Measuring single parts does not belong here; they have benchmarks of their own.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psycopg
from psycopg.sql import SQL, Identifier, Literal
from pydantic import SecretStr
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from bench.lake.resnapshot import wal_end
from bench.pipeline.freshness import freshness
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.spark.session import build_session
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake

NAME = "lake"
_TABLES = 5
# Cycles on cold code take several times as long; a pipeline in production is warm.
_WARM_UP_S = 45
_TABLE = SQL("CREATE TABLE {} (id bigint PRIMARY KEY, account int, amount numeric(12, 2), at timestamptz, note text)")
_INSERT = SQL("INSERT INTO {} SELECT g, g % 1000, g * 1.25, now(), md5(g::text) FROM generate_series({}::bigint, {}) g")
_UPDATE = SQL("UPDATE {} SET amount = amount + 1 WHERE id BETWEEN {} AND {}")


def main() -> None:
    """Run one of the three benchmarks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    visible = commands.add_parser("visible")
    visible.add_argument("--per-second", type=int, default=1000)
    visible.add_argument("--seconds", type=int, default=60)
    commands.add_parser("catch-up").add_argument("--changes", type=int, default=10_000_000)
    commands.add_parser("reading").add_argument("--rows", type=int, default=10_000_000)
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]", driver_memory="4g"), "bench lake")
    try:
        with EmbeddedPostgres(conf={"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as lake:
            _prepare(server)
            source = SourceConfig(
                name=NAME, dsn=SecretStr(server.dsn()), publication=NAME, slot=NAME, compaction=CompactionConfig()
            )
            config = Config(path=Path(lake) / "lakeproof.yaml", lake=lake, sources={NAME: source})
            bootstrap(config, NAME, None, silent, Stop())
            drain(config, NAME, Until.lsn(wal_end(server)))
            compact(config, NAME, spark, silent, Stop())
            if options.command == "visible":
                _visible(config, server, spark, options.per_second, options.seconds)
            elif options.command == "catch-up":
                _catch_up(config, server, spark, options.changes)
            else:
                _reading(config, server, spark, options.rows)
    finally:
        spark.stop()


def _prepare(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for table in _tables():
            conn.execute(_TABLE.format(Identifier(table.name)))
            conn.execute(_INSERT.format(Identifier(table.name), Literal(1), Literal(1000)))
        conn.execute(SQL("CREATE PUBLICATION {} FOR ALL TABLES").format(Identifier(NAME)))


def _tables() -> list[TableName]:
    return [TableName("public", f"t{n}") for n in range(_TABLES)]


def _visible(config: Config, server: EmbeddedPostgres, spark: SparkSession, per_second: int, seconds: int) -> None:
    stop = Stop()
    cycles: list[float] = []

    def keep_compacting() -> None:
        while not stop.requested:
            started = time.monotonic()
            if compact(config, NAME, spark, silent, Stop()):
                cycles.append(time.monotonic() - started)
            else:
                time.sleep(0.2)

    threads = [
        threading.Thread(target=drain, args=(config, NAME, Until.stopped()), kwargs={"stop": stop}),
        threading.Thread(target=keep_compacting),
    ]
    for thread in threads:
        thread.start()
    started = time.time() + _WARM_UP_S
    try:
        late_s = _write(server, per_second, seconds + _WARM_UP_S)
        end = time.time()
        time.sleep(20)
    finally:
        stop.request()
        for thread in threads:
            thread.join()
    _, latencies = freshness(SourceLake.open(config.location, NAME), started, end)
    p50, p99 = np.percentile(latencies, [50, 99])
    print(
        f"{len(latencies):,} changes at {per_second:,}/s over {_TABLES} tables, the writer at most {late_s:.2f} s behind"
    )
    print(f"commit to a cut that shows it: p50 {p50:.2f} s, p99 {p99:.2f} s, most {latencies.max():.2f} s")
    print(f"{len(cycles)} cycles, each {statistics.median(cycles):.2f} s (median)")


def _write(server: EmbeddedPostgres, per_second: int, seconds: int, each: int = 10) -> float:
    """Write transactions of `each` changes by the clock, half of them updates; return their greatest delay in seconds."""
    late_s, started = 0.0, time.monotonic()
    next_id = dict.fromkeys(_tables(), 1001)
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for number, table in zip(range(per_second * seconds // each), itertools.cycle(_tables()), strict=False):
            early_s = started + number * each / per_second - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)
            late_s = max(late_s, -early_s)
            if number // _TABLES % 2:
                conn.execute(
                    _UPDATE.format(Identifier(table.name), Literal(next_id[table] - each), Literal(next_id[table] - 1))
                )
            else:
                conn.execute(
                    _INSERT.format(Identifier(table.name), Literal(next_id[table]), Literal(next_id[table] + each - 1))
                )
                next_id[table] += each
    return late_s


def _catch_up(config: Config, server: EmbeddedPostgres, spark: SparkSession, changes: int) -> None:
    each = changes // _TABLES
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for table in _tables():
            name = Identifier(table.name)
            # Transactions of 10,000 changes: three fifths inserts, the rest updates of inserted rows.
            for first in range(1001, 1001 + each * 3 // 5, 10_000):
                conn.execute(_INSERT.format(name, Literal(first), Literal(first + 9_999)))
            for first in range(1001, 1001 + each * 2 // 5, 10_000):
                conn.execute(_UPDATE.format(name, Literal(first), Literal(first + 9_999)))
    started = time.monotonic()
    drain(config, NAME, Until.lsn(wal_end(server)))
    drained = time.monotonic()
    cuts = compact(config, NAME, spark, silent, Stop())
    ended = time.monotonic()
    counted = sum(table.changes for cut in cuts for table in cut.tables.values())
    print(
        f"{counted:,} changes over {_TABLES} tables in {ended - started:.1f} s: {counted / (ended - started):,.0f}/s; "
        f"draining {drained - started:.1f} s ({(drained - started) / (ended - started):.0%}), "
        f"compaction {ended - drained:.1f} s in {len(cuts)} cycles"
    )


def _reading(config: Config, server: EmbeddedPostgres, spark: SparkSession, rows: int) -> None:
    """Compare reading current with reading history; a tenth of the rows of history are in current."""
    table = _tables()[0]
    keys = rows // 10
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(_INSERT.format(Identifier(table.name), Literal(1001), Literal(keys)))
        for _ in range(9):
            conn.execute(_UPDATE.format(Identifier(table.name), Literal(1), Literal(keys)))
    drain(config, NAME, Until.lsn(wal_end(server)))
    compact(config, NAME, spark, silent, Stop())
    lake = open_lake(spark, config)
    current = lake.table(NAME, table)
    history = lake.table(NAME, table, layer="history", hidden=True)
    newest = Window.partitionBy("id").orderBy(F.col("_lp_ord").desc())
    view = history.withColumn("_lp_n", F.row_number().over(newest)).where("_lp_n = 1 AND _lp_op <> 'delete'")
    view = view.select(*current.columns)
    sums = [F.count(F.lit(1)), F.sum("amount"), F.max("note")]
    if current.agg(*sums).collect() != view.agg(*sums).collect():
        raise SystemExit("current and history differ; report it")
    reads: dict[str, Callable[[DataFrame], object]] = {
        "every row, all columns": lambda frame: frame.write.format("noop").mode("overwrite").save(),
        "a sum over every row": lambda frame: frame.agg(*sums).collect(),
        "one row by its key": lambda frame: frame.where(F.col("id") == keys // 2).collect(),
    }
    print(f"{history.count():,} rows of history, {current.count():,} of current")
    for reading, read in reads.items():
        seconds = {name: _best(frame, read) for name, frame in (("current", current), ("window", view))}
        print(
            f"{reading}: current {seconds['current']:.2f} s, the window over history {seconds['window']:.2f} s:"
            f" {seconds['window'] / seconds['current']:.1f} times",
            flush=True,
        )


def _best(frame: DataFrame, read: Callable[[DataFrame], object]) -> float:
    """Return the least of three times, in seconds."""
    times = []
    for _ in range(3):
        started = time.monotonic()
        read(frame)
        times.append(time.monotonic() - started)
    return min(times)


if __name__ == "__main__":
    main()
