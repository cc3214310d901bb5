"""Times the bootstrap of one table to durable Parquet, against a bare `COPY … TO STDOUT` to nowhere and against other tools.

Goals and their history do not belong here (docs). The same rows (8 mixed columns) are copied in turns, each time by a
process of its own: by one bare COPY per connection, each of a range of pages; by `bootstrap` into a new lake; by ADBC,
ConnectorX and pandas (`snapshot_peers.py`, in an environment that this script creates in .cache/bench). Wall time excludes
the interpreter's start and imports, CPU seconds include them; the server's CPU seconds are those of its processes that ended
meanwhile.

    python -m bench.ingest.bootstrap [--rows N] [--rounds N] [--connections 1 2] [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg.sql import SQL, Literal
from pydantic import SecretStr

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig, SourceConfig
from lakeproof.events import Stop, silent
from lakeproof.landing.segments import row_sums
from lakeproof.pgoutput.warm_up import warm_up_decoder
from lakeproof.postgres.connections import framing
from lakeproof.postgres.copying import text as copy_text

ROOT = Path(__file__).resolve().parents[2]
_PEERS = ("ADBC", "ConnectorX", "pandas")
_PACKAGES = (
    "adbc-driver-postgresql",
    "adbc-driver-manager",
    "connectorx",
    "pandas",
    "pyarrow",
    "sqlalchemy",
    "psycopg[binary]",
)
TABLE = """
CREATE TABLE rows (id bigint PRIMARY KEY, account int, amount numeric(12, 2), rate float8, paid bool,
                   at timestamptz, day date, note text)
"""
FILL = """
INSERT INTO rows SELECT g, g % 1000, g * 1.25, g / 3.0, g % 2 = 0, now(), now()::date, md5(g::text)
FROM generate_series(1, {}) g
"""


@dataclass(frozen=True)
class Run:
    """One copy of the table: seconds of wall clock and CPU, megabytes."""

    wall_s: float
    client_cpu_s: float
    server_cpu_s: float
    peak_rss_mb: float


def fill(server: EmbeddedPostgres, rows: int) -> None:
    """Create the table with so many rows, all visible and on disk, and its publication."""
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(TABLE)
        admin.execute(SQL(FILL).format(rows))
        admin.execute("VACUUM (ANALYZE, FREEZE) rows")
        admin.execute("CREATE PUBLICATION bench FOR TABLE rows")
        admin.execute("CHECKPOINT")


def main() -> None:
    """Print one line per contender and number of connections, with its ratio to bare COPY."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return
    peers = None if options.no_peers else _environment()
    with EmbeddedPostgres(conf={"shared_buffers": "1GB", "max_wal_size": "8GB"}) as server:
        fill(server, options.rows)
        print(f"{options.rows:,} rows, median of {options.rounds}; ratio: bare COPY's time / the contender's")
        heads = (
            ("wall s", 8),
            ("rows/s", 11),
            ("client CPU s", 14),
            ("server CPU s", 14),
            ("rows/CPU s", 12),
            ("peak MB", 9),
        )
        print(
            f"{'':14}{'conns':>6}" + "".join(f"{head:>{width}}" for head, width in (*heads, ("ratio", 7))), flush=True
        )
        for connections in options.connections:
            _compare(server, options.rows, options.rounds, connections, peers)


def _compare(server: EmbeddedPostgres, rows: int, rounds: int, connections: int, peers: Path | None) -> None:
    contenders: dict[str, Callable[[Path], list[str]]] = {
        kind: partial(own, kind, server, connections) for kind in ("bare COPY", "lakeproof")
    }
    if peers is not None:
        contenders |= {peer: partial(_theirs, peer, peers, server, (connections, rows)) for peer in _PEERS}
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, command in contenders.items():
            with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
                runs[name].append(measured(server, command(Path(folder)), rows))
    for name, copies in runs.items():
        ratio = statistics.median(bare.wall_s / run.wall_s for bare, run in zip(runs["bare COPY"], copies, strict=True))
        wall, client, served, peak = (
            statistics.median(getattr(run, field) for run in copies)
            for field in ("wall_s", "client_cpu_s", "server_cpu_s", "peak_rss_mb")
        )
        print(
            f"{name:14}{connections:>6}{wall:8.2f}{rows / wall:11,.0f}{client:14.2f}{served:14.2f}"
            f"{rows / (client + served):12,.0f}{peak:9.0f}{ratio:7.2f}",
            flush=True,
        )


def own(kind: str, server: EmbeddedPostgres, connections: int, folder: Path) -> list[str]:
    """Return the command that copies table `rows`: `bare COPY` or `lakeproof`."""
    given = {"kind": kind, "dsn": server.dsn(), "lake": str(folder), "connections": connections}
    return [sys.executable, "-m", "bench.ingest.bootstrap", "--child", json.dumps(given)]


def _theirs(peer: str, python: Path, server: EmbeddedPostgres, sizes: tuple[int, int], folder: Path) -> list[str]:
    uri = f"postgresql://postgres:{server.password}@127.0.0.1:{server.port}/postgres"
    return [str(python), str(Path(__file__).with_name("snapshot_peers.py")), peer, uri, str(folder), *map(str, sizes)]


def _child(given: dict[str, Any]) -> None:
    """Copy once in this process, timed without the interpreter's start and the loading of compiled code."""
    run = _bare if given["kind"] == "bare COPY" else _bootstrap
    if run is _bootstrap:
        warm_up_decoder()
        row_sums.warm_up_sums()
        copy_text.warm_up_copy_text()
        framing.warm_up_framing()
    started = time.monotonic()
    rows = run(given["dsn"], given["lake"], given["connections"])
    print(json.dumps({"wall_s": time.monotonic() - started, "rows": rows}))


def _bare(dsn: str, _lake: str, connections: int) -> int:
    """Run one COPY per connection at a time, each for its share of the pages, in libpq's loop; rows are dropped."""

    def one(part: int) -> int:
        with psycopg.connect(dsn) as conn, conn.cursor() as cursor:
            cursor.execute("SELECT (pg_relation_size('rows') / 8192)::bigint")
            pages = (cursor.fetchone() or (0,))[0]
            step = -(-pages // connections)
            bounds = Literal(f"({part * step},0)"), Literal(f"({(part + 1) * step},0)")
            query = SQL("COPY (SELECT * FROM rows WHERE ctid >= {}::tid AND ctid < {}::tid) TO STDOUT").format(*bounds)
            with cursor.copy(query) as copy:
                return sum(1 for _ in copy)

    with ThreadPoolExecutor(connections) as pool:
        return sum(pool.map(one, range(connections)))


def _bootstrap(dsn: str, lake: str, connections: int) -> int:
    source = SourceConfig(
        name="bench",
        dsn=SecretStr(dsn),
        publication="bench",
        slot="bench",
        snapshot=SnapshotConfig(connections=connections),
    )
    config = Config(path=Path(lake) / "lakeproof.yaml", lake=lake, sources={"bench": source})
    report = bootstrap(config, "bench", None, silent, Stop())
    return sum(table.rows for table in report.tables.values())


def measured(server: EmbeddedPostgres, command: list[str], rows: int) -> Run:
    """Run the command, measure it, and drop the slots that it has created."""
    before = _children_cpu_s(server.pid)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    peak = [0.0]
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, ended, peak))
    watcher.start()
    out = process.stdout.read() if process.stdout is not None else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    if process.returncode != 0:
        raise SystemExit(f"{command[:4]} ended with status {process.returncode}")
    result = json.loads(out)
    if result["rows"] != rows:
        raise SystemExit(f"{command[:4]} copied {result['rows']} of {rows} rows")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
    # The server's processes end a moment after their connections.
    time.sleep(0.5)
    served = _children_cpu_s(server.pid) - before
    return Run(result["wall_s"], usage.ru_utime + usage.ru_stime, served, peak[0])


def _children_cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process's children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def _watch(pid: int, ended: threading.Event, peak: list[float]) -> None:
    while not ended.wait(0.02):
        with suppress(OSError):
            peak_kb = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
            peak[0] = max(peak[0], int(peak_kb[1]) / 1024 if peak_kb else 0.0)


def _environment() -> Path:
    """Return the interpreter of the peers' environment, created if missing."""
    folder = ROOT / ".cache" / "bench"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *_PACKAGES], check=True)
    return python


if __name__ == "__main__":
    main()
