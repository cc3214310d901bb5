"""Measures copying a large table, then copying it again when a few of its rows differ: time, and rows written to Delta.

The copy is compared with the lake's rows by this process, and another one by Spark.

The table leaves its publication, some rows change, and it is published again: the server has not sent these changes, so the
table is held until it is copied again (docs/schema-changes.md). Both times measure a bootstrap and the compaction after it.
A proof at the end compares lake and source. The cost of a chunk does not belong here (`bench.ingest.bootstrap`).

    python -m bench.lake.resnapshot [--rows N] [--differing N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Literal

import psycopg
from delta.tables import DeltaTable
from psycopg import sql
from psycopg.sql import SQL, Composed
from pydantic import SecretStr
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from bench.ingest.bootstrap import FILL, TABLE
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.config.section.upkeep import CompactionConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.session import build_session
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake

ROWS = TableName("public", "rows")
ENGINES: tuple[Literal["auto", "spark"], ...] = ("auto", "spark")


def main() -> None:
    """Print all times, and the rows that the further copies wrote."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--differing", type=int, default=1_000)
    parser.add_argument("--memory", default="4g", help="memory of the JVM")
    options = parser.parse_args()
    spark = build_session(SparkConfig(master="local[2]", driver_memory=options.memory), "resnapshot")
    try:
        with EmbeddedPostgres(conf={"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as lake:
            _run(server, Path(lake), spark, options.rows, options.differing)
    finally:
        spark.stop()


def _run(server: EmbeddedPostgres, lake: Path, spark: SparkSession, rows: int, differing: int) -> None:
    execute(
        server,
        TABLE,
        SQL(FILL).format(sql.Literal(rows)),
        "VACUUM ANALYZE rows",
        "CREATE PUBLICATION bench FOR TABLE rows",
    )
    source = SourceConfig(name="bench", dsn=SecretStr(server.dsn()), publication="bench", slot="bench")
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"bench": source})
    first = _copy(config, server, spark)
    print(f"{rows:,} rows; first: bootstrap {first[0]:.1f} s, compaction {first[1]:.1f} s", flush=True)
    seconds = {}
    for engine in ENGINES:
        change = SQL("UPDATE rows SET note = {} WHERE id % {} = 0")
        _differ(server, config, spark, change.format(sql.Literal(engine), sql.Literal(rows // differing)))
        chosen = source.model_copy(update={"compaction": CompactionConfig(engine=engine)})
        written, now = _written(config, spark), config.model_copy(update={"sources": {"bench": chosen}})
        again = _copy(now, server, spark, [ROWS])
        seconds[engine] = again[1]
        written = {name: count - written[name] for name, count in _written(config, spark).items()}
        print(
            f"{differing:,} differ, {engine}: bootstrap {again[0]:.1f} s, compaction {again[1]:.1f} s; rows written to"
            f" Delta: {written} ({sum(written.values()) / differing:.2f} per row that differs)",
            flush=True,
        )
    proof = prove(config, "bench", None, spark)
    print(f"{seconds['auto'] / seconds['spark']:.2f} of Spark's compaction; proof: {proof.tables[ROWS].status}")


def _differ(server: EmbeddedPostgres, config: Config, spark: SparkSession, change: Composed) -> None:
    """Change rows that the server does not send, and let the table be held for it."""
    execute(
        server,
        "ALTER PUBLICATION bench DROP TABLE rows",
        change,
        "ALTER PUBLICATION bench ADD TABLE rows",
    )
    drain(config, "bench", Until.lsn(wal_end(server)))
    compact(config, "bench", spark, silent, Stop())


def _copy(
    config: Config, server: EmbeddedPostgres, spark: SparkSession, tables: list[TableName] | None = None
) -> tuple[float, float]:
    started = time.monotonic()
    bootstrap(config, "bench", tables, silent, Stop())
    copied = time.monotonic()
    # The snapshot is applied once the stream has reached its consistent point.
    drain(config, "bench", Until.lsn(wal_end(server)))
    compact(config, "bench", spark, silent, Stop())
    return copied - started, time.monotonic() - copied


def _written(config: Config, spark: SparkSession) -> dict[str, int]:
    """Return the rows that all commits of history and current have written, according to Delta's metrics."""
    lake = SourceLake.open(config.location, "bench")
    written = {}
    for name, key in (("history", lake.paths.history(ROWS)), ("current", lake.paths.current(ROWS))):
        commits = DeltaTable.forPath(spark, lake.url(key)).history().select("operationMetrics").collect()
        written[name] = sum(_rows_of(dict(commit[0] or {})) for commit in commits)
    return written


def _rows_of(metrics: dict[str, str]) -> int:
    names = "numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsCopied"
    merged = sum(int(metrics.get(name, 0)) for name in names)
    return merged or int(metrics.get("numOutputRows", 0))


def wal_end(server: EmbeddedPostgres) -> Lsn:
    """Return a position at or after the end of everything committed so far."""
    with psycopg.connect(server.dsn()) as conn:
        row = conn.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
    if row is None:
        raise SystemExit("the server returned no position; run it again")
    return Lsn.parse(row[0])


def execute(server: EmbeddedPostgres, *statements: LiteralString | Composed) -> None:
    """Run the statements, each in its own transaction."""
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for statement in statements:
            conn.execute(statement)


if __name__ == "__main__":
    main()
