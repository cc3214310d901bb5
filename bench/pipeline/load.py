"""Measures the whole pipeline beside a heavy transactional load: its lag, its freshness, its cost, and the load's own rate.

The load is that of a wholesaler, after the model of TPC-C (`load.sql`): nine tables, five transactions in the standard mix,
run by pgbench as fast as the machine allows, or at `--rate` transactions per second. Beside it on the same machine, a drain
and cycles without a pause between them bring the changes into a lake. Two short loads come first, so that Java is warm; then
the measured one. When it ends, the pipeline catches up, and a proof compares all tables: they must be equal. With
`--bare` the same load runs first without lakeproof, on a copy of the same rows, and the ratio of both rates is printed.
Measuring single parts does not belong here; they have benchmarks of their own.

    python -m bench.pipeline.load [--warehouses 4] [--minutes 5] [--clients 4] [--rate N] [--bare]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg

from bench.pipeline.freshness import Seconds, cuts, freshness
from bench.pipeline.load_pipeline import NAME, Pipeline
from bench.pipeline.load_samples import Sample, Sampler
from bench.pipeline.load_workload import Ended, Load, copy_of_filled, fill, run
from bench.processes import Tree, disk_bytes
from demo.server import EmbeddedPostgres

_CONF = {"shared_buffers": "512MB", "max_wal_size": "8GB", "max_connections": "200"}
_LINES_MAX = 12
_HEADS = (
    ("second", 7), ("tps", 8), ("landed/s", 10), ("behind s", 10), ("behind MB", 11), ("WAL kept MB", 13),
    ("fresh p50 s", 13), ("p99 s", 8), ("CPU: server", 13), ("drain", 7), ("compaction", 12),
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """A load that ran beside the pipeline: its figures, the samples, and each change's commit time and latency."""

    load: Ended
    samples: list[Sample]
    commits: Seconds
    latencies: Seconds


def main() -> int:
    """Run the load, print what was sampled; the status is 1 if the proof does not find all tables equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warehouses", type=int, default=4, help="each has about 500,000 rows")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rate", type=int, default=0, help="transactions per second; 0: as many as the machine allows")
    parser.add_argument("--bare", action="store_true", help="run the same load without lakeproof first")
    parser.add_argument("--warm-up", type=int, default=10, help="seconds of each of two loads before the measured one")
    parser.add_argument("--every", type=float, default=5, help="seconds between samples")
    parser.add_argument("--memory", default="2g", help="memory of the JVM")
    options = parser.parse_args()
    load, seconds = Load(options.warehouses, options.clients, options.rate), max(round(options.minutes * 60), 1)
    with (
        EmbeddedPostgres(conf=_CONF) as server,
        tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder,
    ):
        fill(server, load.warehouses)
        rate = f"{load.rate:,} transactions/s" if load.rate else "no limit of the rate"
        print(f"{load.warehouses} warehouses, {load.clients} clients, {rate}, {seconds} s", flush=True)
        bare = _bare(server, load, options.warm_up, seconds) if options.bare else None
        copy_of_filled(server, NAME)
        with Pipeline(server, NAME, Path(folder), options.memory) as pipeline:
            trees = pipeline.start() | {"server": Tree(server.pid, shared=True)}
            # Twice: the first cycle enters the copy.
            for _ in range(2):
                run(server, NAME, load, options.warm_up)
                pipeline.wait_for(pipeline.end_of_load())
            measured = _beside(pipeline, trees, load, seconds, options.every)
            pipeline.stop()
            _print_memory(pipeline, trees)
            if bare is not None:
                print(f"without lakeproof: {_of(bare)}; with it {measured.load.tps / bare.tps:.2f} of that rate")
            return _prove(pipeline)


def _bare(server: EmbeddedPostgres, load: Load, warm_up: int, seconds: int) -> Ended:
    """Run the same load on a copy of the same rows, with nothing beside it."""
    copy_of_filled(server, "bare")
    for _ in range(2):
        run(server, "bare", load, warm_up)
    ended = run(server, "bare", load, seconds)
    with psycopg.connect(server.dsn(), autocommit=True) as conn:
        conn.execute("DROP DATABASE bare")
    return ended


def _beside(pipeline: Pipeline, trees: dict[str, Tree], load: Load, seconds: int, every_s: float) -> Measured:
    """Run the load beside the pipeline, wait until the lake has all of it, and print what was sampled."""
    with psycopg.connect(pipeline.server.dsn()) as conn:
        row = conn.execute("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [NAME]).fetchone()
    trees = trees | ({"walsender": Tree(row[0])} if row and row[0] else {})
    sampler = Sampler(pipeline, trees, every_s)
    sampler.start()
    began = time.time()
    try:
        ended = run(pipeline.server, NAME, load, seconds)
        end = time.time()
        all_of_it = pipeline.end_of_load()
        pipeline.wait_for(all_of_it)
    finally:
        sampler.end()
    positions, shown = cuts(pipeline.lake)
    caught_up_s = shown[np.searchsorted(positions, int(all_of_it))] - end
    intervals = np.diff(shown[shown > began], prepend=began)
    commits, latencies = freshness(pipeline.lake, began, end)
    measured = Measured(ended, [sample for sample in sampler.samples if sample.time <= end], commits, latencies)
    _print_samples(measured)
    p50, p99 = np.percentile(latencies, [50, 99])
    print(
        f"load: {_of(ended)}, {len(commits) / (end - began):,.0f} changes/s; pgbench's CPU {ended.cpu_s:.1f} s\n"
        f"freshness of {len(latencies):,} changes: p50 {p50:.2f} s, p99 {p99:.2f} s, most {latencies.max():.2f} s\n"
        f"{len(intervals)} cuts, one in {np.median(intervals):.2f} s (median)\n"
        f"caught up {caught_up_s:.1f} s after the load's end\n"
        f"most WAL kept for the slot: {max(s.kept_bytes for s in sampler.samples) / 1e6:,.0f} MB",
        flush=True,
    )
    _print_cpu(sampler.samples, len(commits))
    return measured


def _of(ended: Ended) -> str:
    return f"{ended.tps:,.1f} transactions/s of {ended.latency_ms:.1f} ms"


def _print_samples(measured: Measured) -> None:
    """Print at most twelve lines, each the time between two samples: rates and CPU between them, the slot at the later."""
    samples = measured.samples
    print("CPU in cores; freshness is that of the commits of these seconds")
    print("".join(f"{head:>{width}}" for head, width in _HEADS))
    step = -(-max(len(samples) - 1, 1) // _LINES_MAX)
    for first, last in zip(samples[:-1:step], [*samples[step::step], samples[-1]], strict=False):
        wall_s = last.time - first.time
        tps = [tps for second, tps in measured.load.by_second if first.time < second <= last.time]
        latencies = measured.latencies[(measured.commits > first.time) & (measured.commits <= last.time)]
        p50, p99 = np.percentile(latencies, [50, 99]) if len(latencies) else (0.0, 0.0)
        between = [sample for sample in samples if first.time < sample.time <= last.time]
        figures = (
            f"{last.time - samples[0].time:.0f}",
            f"{statistics.mean(tps):,.0f}" if tps else "-",
            f"{(last.landed - first.landed) / wall_s:,.0f}",
            f"{max(sample.slot_s for sample in between):.1f}",
            f"{max(sample.slot_bytes for sample in between) / 1e6:,.1f}",
            f"{max(sample.kept_bytes for sample in between) / 1e6:,.1f}",
            f"{p50:.2f}",
            f"{p99:.2f}",
            *(f"{(last.cpu_s[name] - first.cpu_s[name]) / wall_s:.2f}" for name in ("server", "drain", "compaction")),
        )
        print("".join(f"{figure:>{width}}" for figure, (_, width) in zip(figures, _HEADS, strict=True)))


def _print_cpu(samples: list[Sample], changes: int) -> None:
    """Print the CPU of load and catching up together."""
    cpu = {name: samples[-1].cpu_s[name] - samples[0].cpu_s[name] for name in samples[0].cpu_s}
    seconds = ", ".join(f"{name} {cpu_s:.1f} s" for name, cpu_s in cpu.items())
    own = cpu["drain"] + cpu["compaction"]
    print(f"CPU until it had caught up: {seconds} (the walsender's is in the server's)")
    print(f"changes per CPU second of drain and compaction: {changes / own:,.0f}", flush=True)


def _print_memory(pipeline: Pipeline, trees: dict[str, Tree]) -> None:
    compaction, lake_mb = trees["compaction"], disk_bytes(pipeline.lake_folder) / 1e6
    print(
        f"peak memory: server {trees['server'].peak_mb:,.0f} MB, drain {trees['drain'].peak_mb:,.0f} MB, compaction "
        f"{compaction.peak_mb:,.0f} MB (Java {compaction.java_mb:,.0f}); the lake: {lake_mb:,.0f} MB"
    )


def _prove(pipeline: Pipeline) -> int:
    """Print the proof of all tables, and return 0 if it finds them equal."""
    started = time.monotonic()
    status, text = pipeline.command("prove")
    print(f"{text}proof: {time.monotonic() - started:.1f} s\n{'not equal' if status else 'equal'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
