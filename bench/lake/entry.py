"""Times the way from a table in PostgreSQL to its queryable current and history: the first copy and the first compaction.

The rows are those of `bench.ingest.bootstrap`. In one run, each in a process of its own: a bare `COPY … TO STDOUT` to
nowhere; lakeproof's `bootstrap`, then `compact`, which starts no Spark, and a proof at the end, which must be `equal`; and
tools that bring a table to a format with a query engine (`entry_peers.py`, in an environment that this script creates in
.cache/bench-entry). They have no history. Wall time excludes the interpreter's start and imports, CPU seconds include them;
a proof is in neither. Bytes on disk count a file with several names once. The cost of a copy alone does not belong here
(`bench.ingest.bootstrap`).

    python -m bench.lake.entry [--rows N] [--connections N] [--no-peers]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from pydantic import SecretStr

from bench.ingest.bootstrap import ROOT, fill, measured, own
from bench.pipeline.stress import peak_mb
from bench.processes import Tree, disk_bytes
from demo.server import EmbeddedPostgres
from lakeproof.config.model import Config, SourceConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.events import Stop, silent

_PACKAGES = (
    "dlt[deltalake,postgres,sql-database]==1.31.0",
    "connectorx==0.4.6",
    "deltalake==1.6.6",
    "pyarrow==26.0.1",
    "ingestr==1.1.76",
    "duckdb==2.0.0",
)
_PEERS = {
    "dlt, pyarrow": "Delta, current only",
    "dlt, ConnectorX": "Delta, current only",
    "ingestr": "DuckDB, current only",
}
# Not in a registry of Python packages, so not in the environment.
_UNAVAILABLE = {"OLake": "it comes as a container image, which this script does not fetch"}
_NAME_WIDTH = 38
# Tools keep their own state and programs in it.
_ENVIRONMENT = ROOT / ".cache" / "bench-entry"
_HEADS = ("wall s", 9), ("rows/s", 11), ("of COPY", 9), ("CPU s", 8), ("peak MB", 9), ("on disk MB", 12)


@dataclass(frozen=True)
class Line:
    """One contender, or a step of one: None is not measured, or not meant."""

    name: str
    wall_s: float
    cpu_s: float
    peak_mb: float
    disk_mb: float | None = None


@dataclass(frozen=True)
class Contest:
    """The contest that all contenders share: the server, its rows, and the seconds of the bare COPY."""

    server: EmbeddedPostgres
    rows: int
    bare_s: float = 0.0

    def show(self, line: Line) -> None:
        """Print a line of the table."""
        figures = (
            f"{line.wall_s:.2f}",
            f"{self.rows / line.wall_s:,.0f}",
            f"{self.bare_s / line.wall_s:.2f}",
            f"{line.cpu_s:.1f}",
            f"{line.peak_mb:,.0f}" if line.peak_mb else "",
            f"{line.disk_mb:,.1f}" if line.disk_mb is not None else "",
        )
        text = "".join(f"{figure:>{width}}" for figure, (_, width) in zip(figures, _HEADS, strict=True))
        print(f"{line.name:<{_NAME_WIDTH}}{text}", flush=True)


def main() -> int:
    """Print a line per contender and step; the status is 1 if the proof does not find the table equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--connections", type=int, default=2, help="of the bare COPY and of lakeproof")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(json.loads(options.child))
        return 0
    peers = None if options.no_peers else _environment()
    with EmbeddedPostgres(conf={"shared_buffers": "1GB", "max_wal_size": "8GB"}) as server:
        fill(server, options.rows)
        print(
            f"{options.rows:,} rows, {options.connections} connections; of COPY: the bare COPY's time / the contender's"
        )
        print(f"{'':{_NAME_WIDTH}}" + "".join(f"{head:>{width}}" for head, width in _HEADS), flush=True)
        contest = _bare(server, options.rows, options.connections)
        status = _lakeproof(contest, options)
        for peer in _PEERS if peers is not None else ():
            _peer(contest, peer, peers)
        for peer, reason in _UNAVAILABLE.items():
            print(f"{peer}: not available: {reason}")
    print(status)
    return 0 if status == "equal" else 1


def _bare(server: EmbeddedPostgres, rows: int, connections: int) -> Contest:
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        run = measured(server, own("bare COPY", server, connections, Path(folder)), rows)
    contest = Contest(server, rows, run.wall_s)
    contest.show(Line("bare COPY", run.wall_s, run.client_cpu_s, run.peak_rss_mb))
    return contest


def _lakeproof(contest: Contest, options: argparse.Namespace) -> str:
    """Copy and enter; print the steps and their sum; return the proof's status."""
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        tree, copied = _run(own("lakeproof", contest.server, options.connections, Path(folder)))
        if copied["rows"] != options.rows:
            raise SystemExit(f"{copied['rows']} of {options.rows} rows were copied")
        copy = Line("  copy", copied["wall_s"], tree.cpu_s, tree.peak_mb, disk_bytes(Path(folder)) / 1e6)
        given = {"dsn": contest.server.dsn(), "lake": folder}
        _, done = _run([sys.executable, "-m", "bench.lake.entry", "--child", json.dumps(given)])
    entry = Line("  entry", done["entry_s"], done["cpu_s"], done["peak_mb"], done["disk_mb"])
    total = Line(
        "lakeproof, current and history",
        copy.wall_s + entry.wall_s,
        copy.cpu_s + entry.cpu_s,
        max(copy.peak_mb, entry.peak_mb),
        entry.disk_mb,
    )
    contest.show(total)
    contest.show(copy)
    contest.show(entry)
    print(f"{'':{_NAME_WIDTH}} (Delta: current and history)", flush=True)
    return str(done["status"])


def _peer(contest: Contest, peer: str, python: Path | None) -> None:
    uri = f"postgresql://postgres:{contest.server.password}@127.0.0.1:{contest.server.port}/postgres"
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        command = [str(python), str(Path(__file__).with_name("entry_peers.py")), peer, uri, folder]
        tree, done = _run(command, {"HOME": str(_ENVIRONMENT)})
        if "unavailable" in done:
            print(f"{peer}: not available: {done['unavailable']}", flush=True)
            return
        if done["rows"] != contest.rows:
            raise SystemExit(f"{peer} brought {done['rows']} of {contest.rows} rows")
        name, disk_mb = f"{peer} ({_PEERS[peer]})", disk_bytes(Path(done["table"])) / 1e6
        contest.show(Line(name, done["wall_s"], tree.cpu_s, tree.peak_mb, disk_mb))


def _run(command: list[str], variables: Mapping[str, str] | None = None) -> tuple[Tree, dict[str, Any]]:
    """Run the command to its end; return its processes' CPU and memory, and the JSON that it printed last."""
    environment = {**os.environ, **(variables or {})}
    before = _children_cpu_s()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    tree, ended = Tree(process.pid), threading.Event()
    watcher = tree.watch(ended, 0.2)
    output, _ = process.communicate()
    ended.set()
    watcher.join()
    # Exact for what was waited for; Java is not, it ends by itself after its parent.
    tree.cpu_s = max(tree.cpu_s, _children_cpu_s() - before)
    if process.returncode != 0:
        raise SystemExit(f"{command[:3]} ended with status {process.returncode}")
    return tree, json.loads(output.splitlines()[-1])


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _child(given: dict[str, Any]) -> None:
    """Enter the copy into the lake, timed, then prove it."""
    from lakeproof.commands.compact import compact
    from lakeproof.commands.prove import prove
    from lakeproof.lake.spark.session import build_session
    from lakeproof.lake.spark_on_demand import SparkOnDemand

    source = SourceConfig(name="bench", dsn=SecretStr(given["dsn"]), publication="bench", slot="bench")
    config = Config(path=Path(given["lake"]) / "lakeproof.yaml", lake=given["lake"], sources={"bench": source})
    begun = time.monotonic()
    compact(config, "bench", SparkOnDemand(_no_spark), silent, Stop())
    done = {
        "entry_s": time.monotonic() - begun,
        "cpu_s": time.process_time(),
        "peak_mb": peak_mb("self"),
        "disk_mb": disk_bytes(Path(given["lake"])) / 1e6,
    }
    # A table of this size is proven by Spark.
    spark = SparkOnDemand(lambda: build_session(SparkConfig(driver_memory="2g"), "bench entry"))
    statuses = {proof.status for proof in prove(config, "bench", None, spark).tables.values()}
    print(json.dumps(done | {"status": ", ".join(sorted(statuses))}))


def _no_spark() -> NoReturn:
    raise SystemExit("Spark was asked for, for an ordinary table")


def _environment() -> Path:
    """Return the interpreter of the peers' environment, created anew if it was for other versions."""
    folder = _ENVIRONMENT
    python, stamp = folder / "bin" / "python", folder / "packages"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != "\n".join(_PACKAGES):
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *_PACKAGES], check=True)
        stamp.write_text("\n".join(_PACKAGES), encoding="utf-8")
    return python


if __name__ == "__main__":
    sys.exit(main())
