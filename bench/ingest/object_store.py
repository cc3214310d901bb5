"""Times the drain of a backlog to an object store that takes a while for each request, beside a folder, in one run.

    python -m bench.ingest.object_store [--case mixed text tables] [--changes N] [--delay-ms 30] [--segment-mb 64]
        [--rounds 3]

The store is `bench.ingest.object_server`, a process of its own on the same machine; its CPU seconds are shown, since it has
a share of the cores that a real store's machine does not take. In each round a folder, a store that answers at once, and one
with the delay take turns, from copies of one slot. The goal is 0.8 of the folder's rate. No test belongs here.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import secrets
import socket
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bench.ingest import drain
from bench.processes import cpu_s
from demo.server import EmbeddedPostgres

_START_S = 30.0
_HOST = "127.0.0.1"


@dataclass(frozen=True)
class Store:
    """A running server."""

    pid: int
    port: int

    def counts(self) -> Counter[str]:
        """The requests so far, by kind, and the bytes that came and went."""
        connection = http.client.HTTPConnection(_HOST, self.port, timeout=_START_S)
        try:
            connection.request("GET", "/-/counts")
            return Counter(json.loads(connection.getresponse().read()))
        finally:
            connection.close()

    def settings(self) -> dict[str, Any]:
        """A new lake there, as a configuration has it."""
        storage = {"endpoint": f"http://{_HOST}:{self.port}", "region": "eu-central-1", "allow_http": True}
        return {"lake": f"s3://bench/{secrets.token_hex(6)}", "storage": storage}


@dataclass(frozen=True)
class Result:
    """One drain: the reader's figures, and what the store got."""

    run: drain.Run
    server_cpu_s: float = 0.0
    counts: Counter[str] | None = None


@contextmanager
def running(delay_ms: float) -> Iterator[Store]:
    """Run a server for the block."""
    with socket.create_server((_HOST, 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.ingest.object_server", str(port), "--delay-ms", str(delay_ms)]
    )
    store = Store(process.pid, port)
    deadline = time.monotonic() + _START_S
    try:
        while True:
            try:
                store.counts()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        yield store
    finally:
        process.kill()
        process.wait()


def _to_store(postgres: EmbeddedPostgres, name: str, slot: str, end: Any, options: argparse.Namespace) -> Result:
    """Drain to a new server, so that its memory holds one drain's files."""
    with running(options.delay_ms if slot.endswith("delay") else 0.0) as store:
        run = drain.ours(postgres, name, slot, end, store.settings() | {"drain": _limits(options)})
        return Result(run, cpu_s(store.pid), store.counts())


def _limits(options: argparse.Namespace) -> dict[str, Any]:
    return {"flush_bytes": options.segment_mb << 20, "flush_rows": 100_000_000, "flush_interval_s": 600}


def _run_case(postgres: EmbeddedPostgres, name: str, options: argparse.Namespace) -> None:
    backlog = drain.load(postgres, name, options.changes)
    results: dict[str, list[Result]] = {"folder": [], "store": [], "delay": []}
    for number in range(options.rounds):
        kinds = list(results)
        random.shuffle(kinds)
        for kind in kinds:
            slot = f"{name}_{number}_{kind}"
            if kind == "folder":
                run = drain.ours(postgres, name, slot, backlog.end, {"drain": _limits(options)})
                results[kind].append(Result(run))
            else:
                results[kind].append(_to_store(postgres, name, slot, backlog.end, options))
            one = results[kind][-1]
            print(f"  {name} {number} {kind:7}{one.run.wall_s:7.2f} s, CPU {one.run.client_cpu_s:.2f} s", flush=True)
    for kind, of_kind in results.items():
        ratios = [f.run.wall_s / o.run.wall_s for f, o in zip(results["folder"], of_kind, strict=True)]
        wall, cpu, server = (
            statistics.median(values)
            for values in zip(*((r.run.wall_s, r.run.client_cpu_s, r.server_cpu_s) for r in of_kind), strict=True)
        )
        peak = max(r.run.peak_rss_mb for r in of_kind)
        rate = f"{wall:.2f} s, {backlog.megabytes / wall:,.0f} MB/s"
        print(
            f"{name:8}{backlog.changes:>9}{backlog.megabytes:7,.0f} MB  {kind:8}{rate:>20}"
            f"  of the folder's rate {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            f"  CPU {cpu:.2f} s, server {server:.2f} s, peak {peak:.0f} MB"
        )
        if of_kind[0].counts is not None:
            print(f"{'':26}{dict(sorted(of_kind[0].counts.items()))}")
    print(f"{'':26}load {os.getloadavg()[0]:.0f}", flush=True)


def main() -> None:
    """Load each case's backlog, drain it in turns, print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", nargs="+", choices=list(drain.CASES), default=["mixed", "text", "tables"])
    parser.add_argument("--changes", type=int, default=2_000_000)
    parser.add_argument("--delay-ms", type=float, default=30.0)
    parser.add_argument("--segment-mb", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"] = "bench", "bench"
    with EmbeddedPostgres(conf={"shared_buffers": "256MB", "max_wal_size": "4GB", "fsync": "off"}) as postgres:
        for name in options.case:
            _run_case(postgres, name, options)


if __name__ == "__main__":
    main()
