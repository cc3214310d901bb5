"""Times the first hour with many small tables as a person starts it: copy, compactions and proofs, a process each.

Each round changes rows of every table; they are landed, compacted and proven, last with all histories. Where Java is, it is
not found: whatever would need Spark fails. One large table belongs to `bench.proof.rows`, cycles to
`bench.lake.many_tables`.

    python -m bench.proof.many [--tables 200] [--rows 1000] [--rounds 2]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg import sql

from demo.server import EmbeddedPostgres

_SECRET = "LAKEPROOF_BENCH_PASSWORD"  # noqa: S105  the name of a variable
_TABLE = """
CREATE TABLE {table} (id int PRIMARY KEY, name text, code text, n bigint, at timestamptz DEFAULT now(), price numeric(10,2),
    token uuid DEFAULT gen_random_uuid(), flag bool)
"""
_FILL = (
    "INSERT INTO {table} SELECT g, 'name ' || g, md5(g::text), g * 7, now(), g / 3.0 FROM generate_series(1, {rows}) g"
)
_CHANGE = "UPDATE {table} SET n = n + 1 WHERE id % 12 = {round}"

_FIRST = (["bootstrap", "bench"], ["drain", "bench", "--once"], ["compact", "bench"])
_ROUND = (["drain", "bench", "--once"], ["compact", "bench"], ["prove", "bench"], ["prove", "bench", "--history"])


def main() -> None:
    """Print what each command takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=200)
    parser.add_argument("--rows", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    with EmbeddedPostgres() as server, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "lakeproof.yaml"
        given = psycopg.conninfo.conninfo_to_dict(server.dsn())
        os.environ[_SECRET] = str(given.pop("password", ""))
        dsn = " ".join(f"{name}={value}" for name, value in given.items())
        source = {"dsn": dsn, "password": {"env": _SECRET}, "publication": "bench", "slot": "bench"}
        file.write_text(json.dumps({"lake": f"{folder}/lake", "sources": {"bench": source}}), encoding="utf-8")
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            _make(conn, options.tables, options.rows)
            for command in _FIRST:
                print(f"{options.tables} tables, {command[0]}: {_run(file, command)}", flush=True)
            for number in range(options.rounds):
                for table in _names(options.tables):
                    conn.execute(sql.SQL(_CHANGE).format(table=table, round=sql.Literal(number)))
                for command in _ROUND:
                    print(f"{options.tables} tables, {' '.join(command)}: {_run(file, command)}", flush=True)


def _names(tables: int) -> list[sql.Identifier]:
    return [sql.Identifier("public", f"t{number}") for number in range(tables)]


def _make(conn: psycopg.Connection, tables: int, rows: int) -> None:
    for table in _names(tables):
        conn.execute(sql.SQL(_TABLE).format(table=table))
        conn.execute(sql.SQL(_FILL).format(table=table, rows=sql.Literal(rows)))
    conn.execute("CREATE PUBLICATION bench FOR ALL TABLES")


def _run(file: Path, command: list[str]) -> str:
    """Run a command; return its seconds, its CPU and its peak memory."""
    words = [sys.executable, "-m", "lakeproof", "--config", str(file), "--json", *command]
    begun = time.monotonic()
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "JAVA_HOME": "/nowhere"}
    ) as process:
        output = b"" if process.stdout is None else process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - begun
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {output.decode()[-500:]}")
    cpu = used.ru_utime + used.ru_stime
    return f"{seconds:.1f} s, {cpu:.1f} s of CPU, peak {used.ru_maxrss / 1024:.0f} MB"


if __name__ == "__main__":
    main()
