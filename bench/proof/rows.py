"""Times the two sides of a proof of one large table, against the simplest checksum that PostgreSQL can compute.

The baseline is `SELECT count(*), sum(hashtext(t::text))` in the same session, which is no proof (32 bits, digits of floats,
composite texts) but reads the same rows. The lake's side is read in this process and by Spark, over the table that a
bootstrap and a compaction have written. Every round checks that all sides are equal; many small tables belong to
`bench.proof.many`, other tests not here.

    python -m bench.proof.rows [--rows N] [--rounds N] [--without-spark]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TypeVar

from psycopg.sql import SQL, Literal
from pydantic import SecretStr

from bench.ingest.bootstrap import FILL, TABLE
from bench.lake.resnapshot import ROWS, execute, wal_end
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.session import build_session
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.postgres.catalog.published import read_tables
from lakeproof.postgres.connections.connect import connect
from lakeproof.proof.lake.side import LakeReader
from lakeproof.proof.source.side import source_buckets
from lakeproof.storage.source_lake import SourceLake

_T = TypeVar("_T")


def main() -> None:
    """Print the median of each, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-spark", action="store_true")
    options = parser.parse_args()
    engines = ("auto",) if options.without_spark else ("auto", "spark")
    with EmbeddedPostgres(conf={"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as lake:
        _run(server, Path(lake), options.rows, options.rounds, engines)


def _run(server: EmbeddedPostgres, lake: Path, rows: int, rounds: int, engines: tuple[str, ...]) -> None:
    execute(
        server, TABLE, SQL(FILL).format(Literal(rows)), "VACUUM ANALYZE rows", "CREATE PUBLICATION bench FOR TABLE rows"
    )
    source = SourceConfig(name="bench", dsn=SecretStr(server.dsn()), publication="bench", slot="bench")
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"bench": source})
    spark = SparkOnDemand(lambda: build_session(SparkConfig(master="local[2]", driver_memory="4g"), "proof"))
    try:
        bootstrap(config, "bench", None, silent, Stop())
        drain(config, "bench", Until.lsn(wal_end(server)))
        compact(config, "bench", spark, silent, Stop())
        _measure(config, source, spark, rows, rounds, engines)
    finally:
        session = spark.forget()
        if session is not None:
            session.stop()


def _measure(  # noqa: PLR0917  a step of `_run`
    config: Config, source: SourceConfig, spark: SparkOnDemand, rows: int, rounds: int, engines: tuple[str, ...]
) -> None:
    lake = SourceLake.open(config.location, "bench")
    cut = newest_cut(lake)
    if cut is None:
        raise SystemExit("there is no cut; the compaction has written nothing")
    state = cut.tables[ROWS]
    times: dict[str, list[float]] = {"baseline": [], "source": [], **{f"lake {engine}": [] for engine in engines}}
    ways = dict[str, str]()
    with connect(source.dsn, "bench") as conn:
        table = read_tables(conn, source)[ROWS]
        for _ in range(rounds):
            _timed(
                times["baseline"],
                lambda: conn.execute("SELECT count(*), sum(hashtext(t::text)) FROM public.rows t"),
            )
            expected = None
            for engine in engines:
                side = LakeReader.of(lake, spark, engine).open(ROWS, state, source.buckets)
                if expected is None:
                    asked = [(table, side.number)]
                    (expected,) = _timed(times["source"], lambda: source_buckets(conn, asked))  # noqa: B023  (called at once)
                # Its JVM starts here, and not in the time.
                way = "Arrow" if side.session is None else "Spark"
                before = sum(os.times()[:2])
                if _timed(times[f"lake {engine}"], side.buckets) != expected:
                    raise SystemExit("the two sides differ; report it")
                ways[engine] = f"{engine}: by {way}, {sum(os.times()[:2]) - before:.1f} s of CPU of this process"
    print(f"{rows:,} rows, median of {rounds}, seconds: " + ", ".join(f"{n} {median(t):.2f}" for n, t in times.items()))
    source_s = median(times["source"])
    lakes = ", ".join(f"{name} {median(times[name]) / source_s:.2f}" for name in times if name.startswith("lake"))
    print(f"source side {source_s / median(times['baseline']):.2f} of the baseline; of the source side: {lakes}")
    print("; ".join(ways.values()))


def _timed(times: list[float], run: Callable[[], _T]) -> _T:
    started = time.monotonic()
    result = run()
    times.append(time.monotonic() - started)
    return result


if __name__ == "__main__":
    main()
