"""Bootstrapping one table to durable Parquet against a bare `COPY … TO STDOUT` to nowhere, in one run.

Goals and their history belong to docs, not here. The same rows (8 mixed columns) are copied in turns by one COPY on one
connection, and by `bootstrap` with its default connections into a new lake.

    python -m bench.bootstrap [--rows N] [--rounds N]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import psycopg
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from wal2delta.config.model import Config, SourceConfig
from wal2delta.pipeline.bootstrap import bootstrap
from wal2delta.report import Stop, silent

_TABLE = """
CREATE TABLE rows (id bigint PRIMARY KEY, account int, amount numeric(12, 2), rate float8, paid bool,
                   at timestamptz, day date, note text)
"""
_FILL = """
INSERT INTO rows SELECT g, g %% 1000, g * 1.25, g / 3.0, g %% 2 = 0, now(), now()::date, md5(g::text)
FROM generate_series(1, %s) g
"""


def main() -> None:
    """Print one line per contender and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    bare: list[float] = []
    ours: list[float] = []
    cpu: list[float] = []
    with EmbeddedPostgres() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute(_TABLE)
            admin.execute(_FILL, (arguments.rows,))
            admin.execute("VACUUM ANALYZE rows")
            admin.execute("CREATE PUBLICATION bench FOR TABLE rows")
        for number in range(arguments.rounds):
            bare.append(_bare(server))
            seconds, used = _ours(server, number, arguments.rows)
            ours.append(seconds)
            cpu.append(used)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    wall, base = statistics.median(ours), statistics.median(bare)
    print(f"{arguments.rows} rows, median of {arguments.rounds}")
    print(f"bare COPY  {base:6.2f} s  {arguments.rows / base / 1e3:7.0f} k rows/s")
    print(
        f"bootstrap  {wall:6.2f} s  {arguments.rows / wall / 1e3:7.0f} k rows/s  client CPU {statistics.median(cpu):.2f} s"
    )
    print(f"speed of bootstrap against bare COPY {base / wall:.2f}, peak RSS {peak_mb} MB")


def _bare(server: EmbeddedPostgres) -> float:
    started = time.perf_counter()
    with (
        psycopg.connect(server.dsn()) as connection,
        connection.cursor() as cursor,
        cursor.copy("COPY rows TO STDOUT") as copy,
    ):
        for _ in copy:
            pass
    return time.perf_counter() - started


def _ours(server: EmbeddedPostgres, number: int, rows: int) -> tuple[float, float]:
    slot = f"bench_{number}"
    source = SourceConfig(name="bench", dsn=SecretStr(server.dsn()), publication="bench", slot=slot)
    with tempfile.TemporaryDirectory() as lake:
        config = Config(path=Path(lake) / "wal2delta.yaml", lake=lake, sources={"bench": source})
        started, before = time.perf_counter(), time.process_time()
        made = bootstrap(config, "bench", None, silent, Stop())
        seconds, used = time.perf_counter() - started, time.process_time() - before
    copied = sum(table.rows for table in made.tables.values())
    if copied != rows:
        raise SystemExit(f"bootstrap copied {copied} of {rows} rows")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
    return seconds, used


if __name__ == "__main__":
    main()
