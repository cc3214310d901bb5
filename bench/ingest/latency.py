"""Times the way from a commit in PostgreSQL to its durable segment, at a steady rate with the default flush limits.

Throughput does not belong here (`bench/ingest/drain.py`). A change's latency is the time at which its segment's manifest was
durable and acknowledged, minus its transaction's commit time as PostgreSQL recorded it, on the clock of one machine.

    python -m bench.ingest.latency [--per-second 1000] [--seconds 60] [--per-transaction 10]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psycopg
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import SecretStr

from bench.ingest.drain import create_chain
from demo.server import EmbeddedPostgres
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.counts import Flush
from lakeproof.drain.until import Until
from lakeproof.events import Stop
from lakeproof.landing.chain import Chain
from lakeproof.lsn import Lsn
from lakeproof.storage.source_lake import SourceLake

NAME = "latency"
_INSERT = "INSERT INTO latency SELECT g, md5(g::text), now() FROM generate_series(%s::bigint, %s::bigint) g"
# Seconds of writing before the measurement: the first segment waits until the compiled loops are loaded.
_WARM_UP_S = 5


def main() -> None:
    """Write at the rate, drain meanwhile, print the percentiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--per-transaction", type=int, default=10)
    options = parser.parse_args()
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as lake:
        source = SourceConfig(name=NAME, dsn=SecretStr(server.dsn()), publication=NAME, slot=NAME)
        config = Config(path=Path(lake) / "lakeproof.yaml", lake=lake, sources={NAME: source})
        create_chain(config, source, _prepare(server.dsn()))
        durable_at: dict[int, float] = {}

        def on_flush(flush: Flush) -> None:
            durable_at[flush.number] = time.time()

        stop = Stop()
        thread = threading.Thread(
            target=drain, args=(config, NAME, Until.stopped()), kwargs={"stop": stop, "on_flush": on_flush}
        )
        thread.start()
        started = time.time() + _WARM_UP_S
        try:
            late_s = _write(server.dsn(), options.per_second, options.seconds + _WARM_UP_S, options.per_transaction)
        finally:
            stop.request()
            thread.join()
        latencies = _latencies(config, durable_at, started)
    cuts = statistics.quantiles(latencies, n=100)
    print(f"{len(latencies)} changes at {options.per_second}/s, the writer at most {late_s:.2f} s behind")
    print(f"commit to durable segment: p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, most {max(latencies):.2f} s")


def _prepare(dsn: str) -> Lsn:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("CREATE TABLE latency (id bigint PRIMARY KEY, note text, at timestamptz)")
        conn.execute("CREATE PUBLICATION latency FOR TABLE latency")
        row = conn.execute(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", [NAME]
        ).fetchone()
    if row is None:
        raise RuntimeError("the slot was not created")
    return Lsn.parse(row[0])


def _write(dsn: str, per_second: int, seconds: int, per_transaction: int) -> float:
    """Write transactions by the clock; return the greatest delay in seconds."""
    late_s = 0.0
    started = time.monotonic()
    with psycopg.connect(dsn, autocommit=True) as conn:
        for number in range(per_second * seconds // per_transaction):
            due = started + number * per_transaction / per_second
            early_s = due - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)
            late_s = max(late_s, -early_s)
            first = number * per_transaction + 1
            conn.execute(_INSERT, [first, first + per_transaction - 1])
    return late_s


def _latencies(config: Config, durable_at: dict[int, float], since: float) -> list[float]:
    """Return the seconds of each change committed after `since`."""
    lake = SourceLake.open(config.location, NAME)
    chain = Chain.open_newest(lake)
    if chain is None:
        raise RuntimeError("the landing has no chain")
    latencies: list[float] = []
    for number, durable_s in durable_at.items():
        for file in chain.manifest(number).files:
            key = f"{lake.paths.landing(chain.incarnation)}/{file.path}"
            times = pq.read_table(lake.store.url(key), columns=["_lp_commit_time"]).column(0)
            seconds = pc.divide(pc.cast(pc.cast(times, "timestamp[us]"), "int64").cast("float64"), 1e6)
            latencies += [durable_s - commit for commit in seconds.to_pylist() if commit >= since]
    return latencies


if __name__ == "__main__":
    main()
