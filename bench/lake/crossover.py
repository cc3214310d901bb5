"""Times cycles of one table, of more and more changes, once by Arrow and once by Spark, whose session is warm.

    python -m bench.lake.crossover [--rows 2000000] [--changes 30000 100000 300000 1000000]

The changes are updates of random rows, in equal numbers for both. It shows if this process is the quicker one for fewer
changes than `compaction.spark_rows`. The memory is this process's most while Arrow writes, above what it has before. No
test belongs here.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Literal
from pydantic import SecretStr

from bench.lake.resnapshot import wal_end
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.session import build_session
from lakeproof.lake.spark_on_demand import SparkOnDemand

NAME = "crossover"
_TABLE = SQL("CREATE TABLE t (id bigint PRIMARY KEY, account int, amount numeric(12, 2), at timestamptz, note text)")
_INSERT = SQL("INSERT INTO t SELECT g, g % 1000, g * 1.25, now(), md5(g::text) FROM generate_series(1, {}) g")
_UPDATE = SQL(
    "UPDATE t SET amount = amount + 1, note = md5(note)"
    " WHERE id IN (SELECT 1 + (g * 7919::bigint + {}) % {} FROM generate_series(1, {}) g)"
)


def main() -> None:
    """Print a line for each number of changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, nargs="*", default=[30_000, 100_000, 300_000, 1_000_000])
    options = parser.parse_args()
    session = build_session(SparkConfig(master="local[2]", driver_memory="3g"), "bench crossover")
    spark = SparkOnDemand.of(session)
    conf = {"max_wal_size": "8GB", "fsync": "off"}
    try:
        with EmbeddedPostgres(conf=conf) as server, tempfile.TemporaryDirectory() as lake:
            with psycopg.connect(server.dsn(), autocommit=True) as conn:
                conn.execute(_TABLE)
                conn.execute(_INSERT.format(Literal(options.rows)))
                conn.execute("CREATE PUBLICATION crossover FOR ALL TABLES")
            _measure(server, lake, spark, options.rows, options.changes)
    finally:
        session.stop()


def _measure(server: EmbeddedPostgres, lake: str, spark: SparkOnDemand, rows: int, sizes: list[int]) -> None:
    configs = {}
    for engine in ("auto", "spark"):
        compaction = CompactionConfig(engine=engine, cycle_rows=10_000_000)
        source = SourceConfig(
            name=NAME, dsn=SecretStr(server.dsn()), publication=NAME, slot=NAME, compaction=compaction
        )
        configs[engine] = Config(path=Path(lake) / "lakeproof.yaml", lake=lake, sources={NAME: source})
    bootstrap(configs["auto"], NAME, None, silent, Stop())
    compact(configs["auto"], NAME, spark, silent, Stop())
    # The first is to warm both up.
    for number, changes in enumerate([1_000, *sizes]):
        line = f"{changes:>10,} changes into {rows:,} rows"
        for engine, config in configs.items():
            with psycopg.connect(server.dsn(), autocommit=True) as conn:
                conn.execute(_UPDATE.format(Literal(number * 31 + len(engine)), Literal(rows), Literal(changes)))
            drain(config, NAME, Until.lsn(wal_end(server)))
            Path("/proc/self/clear_refs").write_text("5")
            before, cpu, began = _peak(), sum(os.times()[:2]), time.monotonic()
            cuts = compact(config, NAME, spark, silent, Stop())
            seconds = time.monotonic() - began
            line += f"; {engine}: {seconds:6.2f} s, {sum(os.times()[:2]) - cpu:6.2f} s of CPU here"
            line += f", {(_peak() - before) >> 10:,} MiB more ({len(cuts)} cuts)"
        print(line, flush=True)


def _peak() -> int:
    """Return the most resident memory since it was last cleared, in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
