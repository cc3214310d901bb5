"""Measures freshness as `make ui` gives it: Dagster's sensors keep drain and compaction, a steady load runs beside them.

Compaction without Dagster, and heavy loads, do not belong here (`bench.pipeline.load`). A change's latency is the time from
its commit in PostgreSQL to the cut that shows it, on the clock of one machine. At the end a proof compares all tables.
Without a load (`--per-second 0`) it shows what a quiet source costs. Proofs of what changed go on beside it, as often as is
configured by default, or every so many seconds (`--prove-each`; 0: never).

    python -m bench.pipeline.continuous [--tables 5] [--per-second 1000] [--seconds 120] [--prove-each SECONDS]
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import psycopg
from psycopg import sql

from bench.pipeline.freshness import cuts, freshness
from bench.processes import Tree
from demo.server import EmbeddedPostgres
from lakeproof.proof.record import read_record
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import time_of
from scripts.ui import command, prepare_home

NAME = "continuous"
_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 20_000
_PER_TRANSACTION = 10
_PATIENCE_S = 300.0
# The first cycles compile what later ones run.
_WARM_UP_S = 60
PASSWORD = "LAKEPROOF_BENCH_PASSWORD"  # noqa: S105  the name of a variable
_CREATE = sql.SQL("CREATE TABLE {table} (id bigint PRIMARY KEY, n int, note text, at timestamptz)")
_FILL = sql.SQL("INSERT INTO {table} SELECT g, 0, md5(g::text), now() FROM generate_series(1, {rows}) g")
_UPDATE = sql.SQL("UPDATE {table} SET n = n + 1, at = now() WHERE id BETWEEN {low} AND {high}")
_REPLACE = sql.SQL(
    "WITH d AS (DELETE FROM {table} WHERE id = (SELECT max(id) FROM {table}))"
    " INSERT INTO {table} SELECT max(id) + 1, 0, md5(random()::text), now() FROM {table}"
)
_CONFIG = """\
lake: {folder}/lake
sources:
  {name}:
    dsn: host=127.0.0.1 port={port} dbname=postgres user=postgres
    password: {{env: {password}}}
    publication: {name}
    slot: {name}
    tables: [{tables}]
{lines}proof_interval: "off"
"""


def main() -> int:
    """Load, measure, prove; the status is 1 if the proof does not find all tables equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--per-second", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--port", type=int, default=3999, help="of Dagster's UI")
    parser.add_argument("--prove-each", type=float, metavar="SECONDS")
    options = parser.parse_args()
    lines = "" if options.prove_each is None else f"    compaction: {{proof_changed_s: {options.prove_each}}}\n"
    with (
        EmbeddedPostgres() as server,
        tempfile.TemporaryDirectory(prefix="lakeproof-bench-", ignore_cleanup_errors=True) as folder,
    ):
        tables = [f"t{number}" for number in range(options.tables)]
        config = prepare(server, Path(folder), tables, lines)
        environment = {**os.environ, PASSWORD: server.password, "LAKEPROOF_CONFIG": str(config)}
        lakeproof = [sys.executable, "-m", "lakeproof", "-c", str(config)]
        subprocess.run([*lakeproof, "bootstrap"], cwd=_ROOT, env=environment, check=True)
        lake = SourceLake.open(f"{folder}/lake", NAME)
        with _dagster(Path(folder), environment, options.port) as tree:
            _wait_until_followed(lake)
            write(server.dsn(), tables, options.per_second, _WARM_UP_S)
            tree.sample()
            began, cpu_s = time.time(), tree.cpu_s
            late_s = write(server.dsn(), tables, options.per_second, options.seconds)
            tree.sample()
            end, used_s = time.time(), tree.cpu_s - cpu_s
            oldest_s = oldest_proof_s(lake, end)
            # What was committed last is in a cut a few seconds later.
            write(server.dsn(), tables, options.per_second, 30)
        if options.per_second:
            commits, latencies = freshness(lake, began, end)
            p50, p99 = np.percentile(latencies, [50, 99])
            shown = cuts(lake)[1]
            intervals = np.diff(shown[(shown > began) & (shown < end)])
            print(
                f"{len(commits):,} changes of {options.tables} tables, {len(commits) / (end - began):,.0f}/s, "
                f"the writer at most {late_s:.2f} s behind\n"
                f"commit to cut: p50 {p50:.2f} s, p99 {p99:.2f} s, most {latencies.max():.2f} s\n"
                f"a cut every {np.median(intervals):.2f} s (median)"
            )
        print(
            f"{used_s / (end - began):.3f} cores, all of Dagster's processes; the oldest proof of a table at the end: "
            f"{'none' if oldest_s is None else f'{oldest_s:.0f} s'}; load average {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        for step in ("drain", "compact", "prove"):
            once = ["--once"] if step == "drain" else []
            status = subprocess.run([*lakeproof, step, *once], cwd=_ROOT, env=environment, check=False).returncode
        return status


def prepare(server: EmbeddedPostgres, folder: Path, tables: list[str], lines: str = "") -> Path:
    """Create and fill the tables; return a configuration of them, with more `lines` about the source."""
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        for table in tables:
            for statement in (_CREATE, _FILL):
                conn.execute(statement.format(table=sql.Identifier(table), rows=_ROWS))
        conn.execute("CREATE PUBLICATION continuous FOR ALL TABLES")
    config = folder / "lakeproof.yaml"
    names = ", ".join(f"public.{table}" for table in tables)
    config.write_text(
        _CONFIG.format(folder=folder, name=NAME, port=server.port, password=PASSWORD, tables=names, lines=lines),
        encoding="utf-8",
    )
    return config


@contextmanager
def _dagster(folder: Path, environment: dict[str, str], port: int) -> Iterator[Tree]:
    """Run Dagster's web server and daemon as `make ui` does; end them, and their runs, afterwards."""
    home = folder / "dagster"
    prepare_home(home)
    environment = {**environment, "DAGSTER_HOME": str(home)}
    with (folder / "dagster.log").open("wb") as log:
        # A session of its own: the runs outlive the daemon and the code server otherwise.
        process = subprocess.Popen(
            command(port), cwd=_ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
        try:
            yield Tree(process.pid)
        finally:
            process.terminate()
            process.wait(_PATIENCE_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def oldest_proof_s(lake: SourceLake, now: float) -> float | None:
    """Return the age of the oldest of the tables' last proofs that they are equal, None if a table has none."""
    ages = [
        None if proved.verified is None else now - time_of(proved.verified.time).timestamp()
        for proved in read_record(lake).tables.values()
    ]
    ages_s = [age for age in ages if age is not None]
    return max(ages_s) if ages_s and len(ages_s) == len(ages) else None


def _wait_until_followed(lake: SourceLake) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not lake.store.is_locked(lake.paths.follow_lock):
        if time.monotonic() > deadline:
            raise SystemExit(
                f"no compaction was started within {_PATIENCE_S:.0f} s; see dagster.log in the lake's folder"
            )
        time.sleep(0.5)


def write(dsn: str, tables: list[str], per_second: int, seconds: int) -> float:
    """Write transactions over all tables by the clock; return the greatest delay in seconds. None a second: just wait."""
    chance, late_s, started = random.Random(1), 0.0, time.monotonic()
    if not per_second:
        time.sleep(seconds)
    with psycopg.connect(dsn) as conn:
        for number in range(per_second * seconds // _PER_TRANSACTION):
            early_s = started + number * _PER_TRANSACTION / per_second - time.monotonic()
            if early_s > 0:
                time.sleep(early_s)
            late_s = max(late_s, -early_s)
            for _ in range(_PER_TRANSACTION // 5):
                # Three updates, an insert and a deletion: five changes.
                table, key = sql.Identifier(chance.choice(tables)), chance.randint(1, _ROWS - 3)
                conn.execute(_UPDATE.format(table=table, low=key, high=key + 2))
                conn.execute(_REPLACE.format(table=table))
            conn.commit()
    return late_s


if __name__ == "__main__":
    sys.exit(main())
