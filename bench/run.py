"""Runs every benchmark with its own defaults, one after the other, each in its own process: some ten hours.

The measurements do not belong here; each benchmark has its own module.
"""

from __future__ import annotations

import subprocess
import sys

_BENCHMARKS = (
    ("bench.ingest.decoder",),
    ("bench.ingest.drain",),
    ("bench.ingest.latency",),
    ("bench.ingest.bounds",),
    ("bench.ingest.tls",),
    ("bench.ingest.object_store",),
    ("bench.ingest.bootstrap",),
    ("bench.lake.entry",),
    ("bench.lake.resnapshot",),
    ("bench.lake.apply",),
    ("bench.lake.cycle",),
    ("bench.lake.many_tables",),
    ("bench.lake.many_cycles",),
    ("bench.lake.crossover",),
    ("bench.lake.schema_change",),
    ("bench.ingest.unchanged",),
    ("bench.lake.wide_tables",),
    ("bench.pipeline.whole", "catch-up"),
    ("bench.pipeline.whole", "reading"),
    ("bench.pipeline.fresh_reads",),
    ("bench.pipeline.continuous",),
    ("bench.pipeline.load", "--bare"),
    ("bench.pipeline.tenants",),
    ("bench.proof.rows",),
    ("bench.proof.changes",),
    ("bench.proof.many",),
    ("bench.lake.views",),
    ("bench.pipeline.spark_start",),
    ("bench.pipeline.many_assets",),
    ("bench.pipeline.stress",),
    ("bench.lake.cluster",),
)


def main() -> int:
    """Run all and return the number of benchmarks that failed."""
    failed = 0
    for module, *arguments in _BENCHMARKS:
        print(f"== python -m {module} {' '.join(arguments)}", flush=True)
        failed += subprocess.run([sys.executable, "-m", module, *arguments], check=False).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
