"""Times both sides of a proof of one large table, against the simplest checksum that PostgreSQL can compute.

The baseline is `SELECT count(*), sum(hashtext(t::text))` in the same session, which is no proof (32 bits, digits of floats,
composite texts) but reads the same rows. Spark computes the lake's side, over the table that a bootstrap and a compaction
have written. Every round checks that both sides are equal; other tests do not belong here.

    python -m bench.proof [--rows N] [--rounds N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from psycopg.sql import SQL, Literal
from pydantic import SecretStr

from bench.bootstrap import FILL, TABLE
from bench.resnapshot import ROWS, execute, wal_end
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.spark import SparkConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.columns import in_lake
from lakeproof.lake.delta.versions import read_layer
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.session import build_session
from lakeproof.postgres.catalog_published import read_tables
from lakeproof.postgres.connection import connect
from lakeproof.proof.lake_form import lake_buckets
from lakeproof.proof.source_side import source_buckets
from lakeproof.storage.source_lake import SourceLake

_T = TypeVar("_T")


def main() -> None:
    """Print the median of each, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with EmbeddedPostgres(conf={"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as lake:
        _run(server, Path(lake), options.rows, options.rounds)


def _run(server: EmbeddedPostgres, lake: Path, rows: int, rounds: int) -> None:
    execute(
        server, TABLE, SQL(FILL).format(Literal(rows)), "VACUUM ANALYZE rows", "CREATE PUBLICATION bench FOR TABLE rows"
    )
    source = SourceConfig(name="bench", dsn=SecretStr(server.dsn()), publication="bench", slot="bench")
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"bench": source})
    spark = build_session(SparkConfig(master="local[2]", driver_memory="4g"), "proof")
    try:
        bootstrap(config, "bench", None, silent, Stop())
        drain(config, "bench", Until.lsn(wal_end(server)))
        compact(config, "bench", spark, silent, Stop())
        rows_lake = SourceLake.open(config.location, "bench")
        cut = newest_cut(rows_lake)
        if cut is None:
            raise SystemExit("there is no cut; the compaction has written nothing")
        state = cut.tables[ROWS]
        times: dict[str, list[float]] = {"baseline": [], "source": [], "lake": []}
        with connect(source.dsn, "bench") as conn:
            table = read_tables(conn, source)[ROWS]
            for _ in range(rounds):
                _timed(
                    times["baseline"],
                    lambda: conn.execute("SELECT count(*), sum(hashtext(t::text)) FROM public.rows t"),
                )
                source_side = _timed(times["source"], lambda: source_buckets(conn, table, source.buckets))
                current = read_layer(spark, rows_lake, ROWS, state)
                lake_side = _timed(times["lake"], lambda: lake_buckets(current, in_lake(state.version), source.buckets))  # noqa: B023  (called at once)
                if source_side != lake_side:
                    raise SystemExit("the two sides differ; report it")
    finally:
        spark.stop()
    print(f"{rows:,} rows, median of {rounds}, seconds: " + ", ".join(f"{n} {median(t):.2f}" for n, t in times.items()))
    print(
        f"source side {median(times['source']) / median(times['baseline']):.2f} of the baseline (goal 2),"
        f" lake side {median(times['lake']) / median(times['source']):.2f} of the source side (goal 1); both equal"
    )


def _timed(times: list[float], run: Callable[[], _T]) -> _T:
    started = time.monotonic()
    result = run()
    times.append(time.monotonic() - started)
    return result


if __name__ == "__main__":
    main()
