"""Measures what a table of 1,590 columns costs: its copy, its first compaction, and a cycle of three changed rows.

    python -m bench.lake.wide_tables [--bag] [--columns 1590] [--spy FOLDER]

The table has three rows and a key, or with `--bag` none (REPLICA IDENTITY FULL). Each command is a process of its own;
seconds of CPU and peaks of memory are summed over it and its JVM, if it starts one. Many tables do not belong here
(`tenants.py`).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Composable, Identifier

from bench.processes import Tree
from demo.server import EmbeddedPostgres

_CONFIG = """\
lake: lake
sources:
  shop: {dsn: {env: WIDE_DSN}, publication: pub, slot: wide, tables: [public.wide]}
"""
# A value of each fits into a page with 1,590 columns, if three of four times are NULL.
_KINDS = ("int", "text", "numeric(12, 2)", "timestamptz")
_VALUES = ("7", "'ab'", "1.50", "now()")
_SAMPLE_S = 0.1


def create_table(dsn: str, columns: int, *, bag: bool) -> None:
    """Create the table with three rows, and the publication `pub`."""
    names = [Identifier(f"c{i}") for i in range(columns - 1)]
    fields: list[Composable] = [SQL("id int") if bag else SQL("id int PRIMARY KEY")]
    fields += [SQL("{} {}").format(name, SQL(_KINDS[i % 4])) for i, name in enumerate(names)]
    values = [SQL("NULL" if i % 16 in (3, 7, 11) else _VALUES[i % 4]) for i in range(columns - 1)]
    comma = SQL(", ")
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(SQL("CREATE TABLE wide ({})").format(comma.join(fields)))
        if bag:
            conn.execute("ALTER TABLE wide REPLICA IDENTITY FULL")
        conn.execute(SQL("INSERT INTO wide SELECT i, {} FROM generate_series(1, 3) i").format(comma.join(values)))
        conn.execute("CREATE PUBLICATION pub FOR TABLE wide")


def change(dsn: str) -> None:
    """Change a row, remove one and add one."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("UPDATE wide SET c0 = c0 + 1 WHERE id = 1")
        conn.execute("DELETE FROM wide WHERE id = 2")
        conn.execute("INSERT INTO wide (id, c0, c1) VALUES (4, 4, 'four')")


def measure(command: list[str], folder: Path, spy: Path | None) -> str:
    """Run a command of lakeproof; return its seconds and its peak memory."""
    program = [sys.executable, "-m", "lakeproof", "-c", str(folder / "lakeproof.yaml"), *command]
    if spy is not None:
        # A tool of the machine, not one that the project installs.
        program = ["py-spy", "record", "-f", "raw", "-o", str(spy / f"{command[0]}.txt"), "--", *program]
    begun, ended = time.monotonic(), threading.Event()
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(program, stdout=out, stderr=out)
        tree = Tree(process.pid)
        sampling = tree.watch(ended, _SAMPLE_S)
        status = process.wait()
    wall = time.monotonic() - begun
    ended.set()
    sampling.join()
    if status != 0:
        print((folder / "out").read_text(encoding="utf-8")[-2000:], file=sys.stderr)
    memory = f"{tree.peak_mb:5.0f} MB, of the JVM {tree.java_mb:5.0f} MB"
    return f"CPU {tree.cpu_s:6.1f} s, clock {wall:6.1f} s, {memory}, load {os.getloadavg()[0]:4.1f}, status {status}"


def main() -> None:
    """Run all commands in their order, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bag", action="store_true", help="a table without a key")
    parser.add_argument("--columns", type=int, default=1590)
    parser.add_argument("--spy", type=Path, help="a folder for profiles by py-spy")
    options = parser.parse_args()
    with EmbeddedPostgres(conf={"fsync": "off"}) as server, tempfile.TemporaryDirectory() as place:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop")
        dsn, folder = server.dsn("shop"), Path(place)
        create_table(dsn, options.columns, bag=options.bag)
        (folder / "lakeproof.yaml").write_text(_CONFIG, encoding="utf-8")
        os.environ["WIDE_DSN"] = dsn
        first, cycle = (["bootstrap", "shop"], ["compact", "shop"]), (["drain", "shop", "--once"], ["compact", "shop"])
        for command in first:
            print(f"{' '.join(command):24}", measure(command, folder, options.spy), flush=True)
        change(dsn)
        for command in cycle:
            print(f"{' '.join(command):24}", measure(command, folder, options.spy), flush=True)


if __name__ == "__main__":
    main()
