"""Times commands that need Spark for little: a small view that is computed anew, and the proof of one small bag by Spark.

Each is a process from start to end, with its JVM's CPU. Settings of Spark are compared by name. Large views belong to
`bench.lake.views`, a large proof to `bench.proof.rows`.

    python -m bench.pipeline.spark_start [--rounds 1] [--conf NAME='{"spark.…": "…"}' …]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg

from bench.processes import Tree
from demo.server import EmbeddedPostgres

_SECRET = "LAKEPROOF_BENCH_PASSWORD"  # noqa: S105  the name of a variable
_TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, customer int, total numeric(10,2));
CREATE TABLE customers (id int PRIMARY KEY, name text, country text);
CREATE TABLE log (line text, n bigint, at timestamptz);
INSERT INTO orders SELECT g, g % 100, g / 3.0 FROM generate_series(1, 1000) g;
INSERT INTO customers SELECT g, 'name ' || g, 'land ' || g % 9 FROM generate_series(0, 99) g;
INSERT INTO log SELECT 'line ' || g % 300, g % 40, now() FROM generate_series(1, 1000) g;
CREATE PUBLICATION bench FOR ALL TABLES
"""
_VIEW = """
SELECT country, count(*) AS orders, sum(total) AS total FROM orders JOIN customers ON customers.id = customer
GROUP BY country
"""
_STEPS = (
    ["refresh", "by_country", "--again"],
    ["prove", "bench", "--tables", "public.log", "--histories", "public.log"],
)


def main() -> None:
    """Print what each command takes under each settings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--conf", action="append", default=[], help="NAME=JSON of the configuration's `spark`")
    options = parser.parse_args()
    settings = {"as shipped": {}} | {
        n: json.loads(conf) for n, _, conf in (each.partition("=") for each in options.conf)
    }
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lakeproof.yaml"
        given = psycopg.conninfo.conninfo_to_dict(server.dsn())
        os.environ[_SECRET] = str(given.pop("password", ""))
        dsn = " ".join(f"{name}={value}" for name, value in given.items())
        source = {"dsn": dsn, "password": {"env": _SECRET}, "publication": "bench", "slot": "bench"}
        source["compaction"] = {"engine": "spark"}
        reads = {name: f"bench/public.{name}" for name in ("orders", "customers")}
        config = {"lake": f"{folder}/lake", "sources": {"bench": source}}
        config["views"] = {"by_country": {"sql": "view.sql", "reads": reads}}
        file.with_name("view.sql").write_text(_VIEW, encoding="utf-8")
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute(_TABLES)
        file.write_text(json.dumps(config), encoding="utf-8")
        for command in (["bootstrap", "bench"], ["drain", "bench", "--once"], ["compact", "bench"], ["refresh"]):
            _run(file, command)
        for _ in range(options.rounds):
            for name, spark in settings.items():
                file.write_text(json.dumps({**config, "spark": spark}), encoding="utf-8")
                print(name, *(f"{step[0]}: {_run(file, step)}" for step in _STEPS), sep="; ", flush=True)


def _run(file: Path, command: list[str]) -> str:
    """Run a command; return its seconds, its CPU and its peak memory, the JVM's included."""
    words = [sys.executable, "-m", "lakeproof", "--config", str(file), "--json", *command]
    begun = time.monotonic()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        tree, ended = Tree(process.pid), threading.Event()
        thread = tree.watch(ended, 0.05)
        output = b"" if process.stdout is None else process.stdout.read()
        process.wait()
        seconds = time.monotonic() - begun
        ended.set()
        thread.join()
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {output.decode()[-500:]}")
    return f"{seconds:.1f} s, {tree.cpu_s:.1f} s of CPU, peak {tree.peak_mb:.0f} MB"


if __name__ == "__main__":
    main()
