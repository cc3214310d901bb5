"""Times a proof of what changed in one large table: seconds, our CPU and the server's, after random changes of its rows.

The changes are landed and compacted first, as a compaction that goes on has done by then. Each round is proven in this
process, as that compaction proves; the last one by a command, which starts Python besides. A whole proof of the same table
is the baseline, and the last word. Whole proofs by themselves belong to `bench.proof.rows`.

    python -m bench.proof.changes [--rows N] [--changes N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
from pydantic import SecretStr

from bench.ingest.bootstrap import FILL, TABLE
from bench.lake.resnapshot import ROWS, execute, wal_end
from bench.processes import Tree
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.spark.session import build_session
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.proof.run import ProofRequest

_SECRET = "LAKEPROOF_BENCH_PASSWORD"  # noqa: S105  the name of a variable
_CHANGE = """
UPDATE rows SET account = account + 1, note = md5(note)
WHERE id IN (SELECT 1 + floor(random() * %s)::bigint FROM generate_series(1, %s))
"""


def main() -> None:
    """Print what each proof takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with EmbeddedPostgres(conf={"max_wal_size": "8GB"}) as server, tempfile.TemporaryDirectory() as lake:
        _run(server, Path(lake), options)


def _run(server: EmbeddedPostgres, lake: Path, options: argparse.Namespace) -> None:
    execute(
        server,
        TABLE,
        psycopg.sql.SQL(FILL).format(psycopg.sql.Literal(options.rows)),
        "VACUUM (ANALYZE, FREEZE) rows",
        "CREATE PUBLICATION bench FOR TABLE rows",
    )
    source = SourceConfig(name="bench", dsn=SecretStr(server.dsn()), publication="bench", slot="bench")
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"bench": source})
    spark = SparkOnDemand(lambda: build_session(SparkConfig(master="local[2]", driver_memory="4g"), "proof"))

    def proven(*, changed: bool) -> str:
        proof = prove(config, "bench", None, spark, request=ProofRequest(changed=changed)).tables[ROWS]
        if proof.status != "equal":
            raise SystemExit(f"the table is {proof.status}: {proof.reason}")
        return f"{proof.kind}, {proof.keys or 0:,} keys"

    try:
        bootstrap(config, "bench", None, silent, Stop())
        _into_the_lake(server, config, spark)
        print(f"{options.rows:,} rows, whole: {_measured(server, lambda: proven(changed=False))}", flush=True)
        print(f"nothing changed: {_measured(server, lambda: proven(changed=True))}", flush=True)
        for _ in range(options.rounds):
            _change(server, config, spark, options)
            print(f"after changes: {_measured(server, lambda: proven(changed=True))}", flush=True)
        _change(server, config, spark, options)
        file = lake / "lakeproof.yaml"
        given = psycopg.conninfo.conninfo_to_dict(server.dsn())
        os.environ[_SECRET] = str(given.pop("password", ""))
        dsn = " ".join(f"{name}={value}" for name, value in given.items())
        written = {"dsn": dsn, "password": {"env": _SECRET}, "publication": "bench", "slot": "bench"}
        file.write_text(json.dumps({"lake": str(lake), "sources": {"bench": written}}), encoding="utf-8")
        print(f"after changes, as a command: {_measured(server, lambda: _command(file))}", flush=True)
        print(f"whole: {_measured(server, lambda: proven(changed=False))}", flush=True)
    finally:
        session = spark.forget()
        if session is not None:
            session.stop()


def _change(server: EmbeddedPostgres, config: Config, spark: SparkOnDemand, options: argparse.Namespace) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(_CHANGE, [options.rows, options.changes])
    _into_the_lake(server, config, spark)


def _into_the_lake(server: EmbeddedPostgres, config: Config, spark: SparkOnDemand) -> None:
    drain(config, "bench", Until.lsn(wal_end(server)))
    compact(config, "bench", spark, silent, Stop())


def _command(file: Path) -> str:
    words = [sys.executable, "-m", "lakeproof", "--config", str(file), "prove", "bench", "--changed"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-500:])
    return "changed"


def _measured(server: EmbeddedPostgres, run: Callable[[], str]) -> str:
    tree = Tree(server.pid)
    tree.sample()
    before, ours, begun = tree.cpu_s, sum(os.times()[:4]), time.monotonic()
    what = run()
    seconds, ours = time.monotonic() - begun, sum(os.times()[:4]) - ours
    after = Tree(server.pid)
    after.sample()
    return f"{seconds:.2f} s, {ours:.2f} s of CPU, {after.cpu_s - before:.2f} s of the server's ({what})"


if __name__ == "__main__":
    main()
