"""Fills the wholesaler's database of `load.sql` and runs its five transactions in the standard mix, with pgbench.

Tables and transactions are in `load.sql`, the readers of the changes in `load_pipeline.py`.
pgbench, not a Python program: the load shares the machine with what is measured.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from bench.processes import Tree
from demo.server import EmbeddedPostgres

_TEMPLATE = "filled"
# Transactions and their weights; `:warehouses` is a variable of pgbench's.
_MIX = {
    "new_order_transaction(:w, :warehouses)": 45,
    "payment_transaction(:w, :warehouses)": 43,
    "order_status_transaction(:w)": 4,
    "delivery_transaction(:w)": 4,
    "stock_level_transaction(:w)": 4,
}


@dataclass(frozen=True)
class Load:
    """The load's size: clients without pauses, or `rate` transactions per second if it is not 0."""

    warehouses: int
    clients: int
    rate: int


@dataclass(frozen=True)
class Ended:
    """A load that has ended: transactions per second, as a whole and for each second; its own CPU."""

    tps: float
    latency_ms: float
    by_second: list[tuple[float, float]]
    cpu_s: float


def fill(server: EmbeddedPostgres, warehouses: int) -> None:
    """Create and fill the database that `copy_of_filled` copies."""
    _execute(server, SQL("CREATE DATABASE {}").format(Identifier(_TEMPLATE)))
    with psycopg.connect(server.dsn(_TEMPLATE), autocommit=True) as conn:
        conn.execute(Path(__file__).with_name("load.sql").read_bytes())
        conn.execute("CALL fill_items()")
        for number in range(1, warehouses + 1):
            conn.execute("CALL fill_warehouse(%s)", [number])
        conn.execute("VACUUM (ANALYZE, FREEZE)")


def copy_of_filled(server: EmbeddedPostgres, database: str) -> None:
    """Create a database with the same rows, so that every load begins with the same."""
    name = Identifier(database)
    _execute(server, SQL("CREATE DATABASE {} TEMPLATE {}").format(name, Identifier(_TEMPLATE)))
    _execute(server, SQL("CHECKPOINT"))


def run(server: EmbeddedPostgres, database: str, load: Load, seconds: int) -> Ended:
    """Run the load; raises SystemExit if pgbench fails or a client of it was aborted."""
    scripts = server.root / "transactions"
    scripts.mkdir(exist_ok=True)
    command = [str(server.program("pgbench")), "--no-vacuum", "--progress=1", "--max-tries=10", f"--time={seconds}"]
    command += [f"--client={load.clients}", f"--define=warehouses={load.warehouses}"]
    command += [f"--rate={load.rate}"] if load.rate else []
    for number, (call, weight) in enumerate(_MIX.items()):
        script = scripts / f"{number}.sql"
        script.write_text(f"\\set w random(1, :warehouses)\nCALL {call};\n", encoding="utf-8")
        command.append(f"--file={script}@{weight}")
    login = {"PGHOST": "127.0.0.1", "PGPORT": str(server.port), "PGUSER": "postgres", "PGPASSWORD": server.password}
    started = time.time()
    process = subprocess.Popen(
        [*command, database],
        env={**os.environ, **login},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    tree, ended = Tree(process.pid), threading.Event()
    watcher = tree.watch(ended, 0.5)
    output, _ = process.communicate()
    ended.set()
    watcher.join()
    if process.returncode != 0 or "aborted" in output:
        raise SystemExit(f"pgbench ended with status {process.returncode}: {output[-800:]}")
    by_second = [
        (started + float(second), float(tps))
        for second, tps in re.findall(r"progress: ([\d.]+) s, ([\d.]+) tps", output)
    ]
    return Ended(
        _figure(r"^tps = ([\d.]+)", output), _figure(r"^latency average = ([\d.]+)", output), by_second, tree.cpu_s
    )


def _figure(pattern: str, output: str) -> float:
    figure = re.search(pattern, output, re.MULTILINE)
    if figure is None:
        raise SystemExit(f"pgbench's output lacks {pattern}: {output[-800:]}")
    return float(figure[1])


def _execute(server: EmbeddedPostgres, statement: SQL | psycopg.sql.Composed) -> None:
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute(statement)
