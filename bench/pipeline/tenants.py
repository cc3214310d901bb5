"""Measures what many tables cost: CPU and memory of each command over a schema for each tenant, or over wide tables.

    python -m bench.pipeline.tenants [--tables 1000] [--changed N] [--schemas 10] [--columns 0] [--repeat 1] [--spy FOLDER]

Every table has one row; then one row is changed in `--changed` of them (by default all). Each command is a process of its
own, and its figures are those that the kernel counted for it (`wait4`): other work on the machine changes seconds of CPU
much less than those of the clock. `--columns` gives each table that many columns beside its key. Spark does not belong here
(`many_tables.py`), nor does the asset graph (`many_assets.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Composable, Identifier

from demo.server import EmbeddedPostgres

_CONFIG = """\
lake: lake
sources:
  shop: {dsn: {env: TENANTS_DSN}, publication: pub, slot: tenants, tables: ['*.*']}
"""
# Locks of a transaction that creates tables.
_CONF = {"fsync": "off", "max_locks_per_transaction": "1024", "shared_buffers": "512MB"}
_BATCH = 500
_KINDS = ("int", "text", "numeric(12, 2)", "timestamptz")


def create_tables(dsn: str, number: int, schemas: int, columns: int) -> None:
    """Create tables with a row each, over some schemas, and the publication `pub` of all tables."""
    names = [SQL("{} {}").format(Identifier(f"c{i}"), SQL(_KINDS[i % 4])) for i in range(columns)]
    fields: list[Composable] = [SQL("id int PRIMARY KEY"), SQL("name text"), SQL("amount numeric(12, 2)"), *names]
    with psycopg.connect(dsn, autocommit=True) as conn:
        for schema in range(min(schemas, number)):
            conn.execute(SQL("CREATE SCHEMA {}").format(Identifier(f"tenant{schema}")))
        for first in range(0, number, _BATCH):
            with conn.transaction():
                for table in [_name(n, schemas) for n in range(first, min(number, first + _BATCH))]:
                    conn.execute(SQL("CREATE TABLE {} ({})").format(table, SQL(", ").join(fields)))
                    conn.execute(SQL("INSERT INTO {} VALUES (1, 'one', 1)").format(table))
        conn.execute(SQL("CREATE PUBLICATION pub FOR ALL TABLES"))


def change(dsn: str, number: int, schemas: int) -> None:
    """Change the row of the first tables, each in a transaction of its own."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        for n in range(number):
            conn.execute(SQL("UPDATE {} SET amount = amount + 1").format(_name(n, schemas)))


def _name(number: int, schemas: int) -> Identifier:
    return Identifier(f"tenant{number % schemas}", f"t{number:05}")


def measure(command: list[str], folder: Path, spy: Path | None) -> str:
    """Run a command of lakeproof; return its seconds and its peak memory."""
    program = [sys.executable, "-m", "lakeproof", "-c", str(folder / "lakeproof.yaml"), *command]
    if spy is not None:
        # A tool of the machine, not one that the project installs.
        flame = ["py-spy", "record", "-r", "200", "-f", "raw", "-o", str(spy / f"{command[0]}.txt"), "--"]
        program = [*flame, *program]
    begun = time.monotonic()
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(program, stdout=out, stderr=out)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begun
    if process.returncode not in (0, 1):
        print((folder / "out").read_text(encoding="utf-8")[-2000:], file=sys.stderr)
    text = f"CPU {usage.ru_utime + usage.ru_stime:6.2f} s (system {usage.ru_stime:5.2f}), clock {wall:6.2f} s"
    return f"{text}, {usage.ru_maxrss // 1024:5} MB, status {process.returncode}"


def main() -> None:
    """Run all commands in their order, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--changed", type=int, help="tables with a changed row; by default all")
    parser.add_argument("--schemas", type=int, default=10)
    parser.add_argument("--columns", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=1, help="changes and drains")
    parser.add_argument("--spy", type=Path, help="a folder for profiles by py-spy")
    options = parser.parse_args()
    changed = options.tables if options.changed is None else options.changed
    with EmbeddedPostgres(conf=_CONF) as server, tempfile.TemporaryDirectory() as place:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop")
        dsn, folder = server.dsn("shop"), Path(place)
        create_tables(dsn, options.tables, options.schemas, options.columns)
        (folder / "lakeproof.yaml").write_text(_CONFIG, encoding="utf-8")
        os.environ["TENANTS_DSN"] = dsn
        print(f"{options.tables} tables, {changed} of them changed; load {os.getloadavg()[0]:.1f}", flush=True)
        first = [["check", "shop"], ["bootstrap", "shop"], ["drain", "shop", "--once"]]
        again = [["drain", "shop", "--once"]]
        for command in first:
            print(f"{' '.join(command):24}", measure(command, folder, options.spy), flush=True)
        for _ in range(options.repeat):
            change(dsn, changed, options.schemas)
            for command in again:
                print(f"{' '.join(command):24}", measure(command, folder, options.spy), flush=True)
        for command in (["status"], ["plan", "shop"]):
            print(f"{' '.join(command):24}", measure(command, folder, options.spy), flush=True)
        print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
