"""Measures the bytes that PostgreSQL and history write when a counter is updated in a row with a large value.

    python -m bench.ingest.unchanged [--megabytes 3] [--updates 200]

Checking the rows does not belong here (`tests`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg import sql
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.session import build_session
from lakeproof.names import TableName
from lakeproof.storage.paths import LakePaths

NAME = "unchanged"
# A text that doesn't compress, so the value is as large in the lake.
_VALUE = "SELECT string_agg(md5(g::text), '') FROM generate_series(1, %s) g"


def main() -> None:
    """Copy the row, update it, compact; print bytes and seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=3)
    parser.add_argument("--updates", type=int, default=200)
    options = parser.parse_args()
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as lake:
        source = SourceConfig(name=NAME, dsn=SecretStr(server.dsn()), publication=NAME, slot=NAME)
        config = Config(path=Path(lake) / "lakeproof.yaml", lake=lake, sources={NAME: source})
        spark = build_session(config.spark, "lakeproof bench")
        history = Path(lake) / LakePaths(NAME).history(TableName("public", "docs"))
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("CREATE TABLE docs (id int PRIMARY KEY, n int, doc text STORAGE EXTERNAL)")
            conn.execute("INSERT INTO docs SELECT 1, 0, (" + _VALUE + ")", [(options.megabytes << 20) // 32])
            conn.execute("CREATE PUBLICATION unchanged FOR TABLE docs")
            bootstrap(config, NAME, None, silent, Stop())
            compact(config, NAME, spark, silent, Stop())
            before = _bytes(history)
            written = _updates(conn, options.updates)
            drain(config, NAME, Until.caught_up(), silent, Stop())
            started = time.monotonic()
            compact(config, NAME, spark, silent, Stop())
            spent = time.monotonic() - started
        print(f"{options.updates} updates beside {options.megabytes} MB: {written:,} bytes of WAL")
        print(f"history grew by {_bytes(history) - before:,} bytes (its first row: {before:,}), in {spent:.1f} s")
        spark.stop()


def _updates(conn: psycopg.Connection[tuple[object, ...]], count: int) -> int:
    """Run the updates and return their bytes of WAL."""
    start = conn.execute("SELECT pg_current_wal_lsn()").fetchone()
    with conn.transaction():
        for _ in range(count):
            conn.execute("UPDATE docs SET n = n + 1")
    query = sql.SQL("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), {})::bigint").format(
        sql.Literal(str((start or [""])[0]))
    )
    row = conn.execute(query).fetchone()
    return int(str((row or [0])[0]))


def _bytes(table: Path) -> int:
    return sum(file.stat().st_size for file in table.glob("*.parquet"))


if __name__ == "__main__":
    main()
