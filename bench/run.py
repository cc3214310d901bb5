"""Runs every benchmark with its own defaults, one after the other, each in its own process: some ten hours.

The measurements do not belong here; each benchmark has its own module.
"""

from __future__ import annotations

import subprocess
import sys

_BENCHMARKS = (
    ("bench.decoder",),
    ("bench.drain",),
    ("bench.latency",),
    ("bench.bounds",),
    ("bench.tls",),
    ("bench.object_store",),
    ("bench.bootstrap",),
    ("bench.entry",),
    ("bench.resnapshot",),
    ("bench.apply",),
    ("bench.cycle",),
    ("bench.many_tables",),
    ("bench.many_cycles",),
    ("bench.crossover",),
    ("bench.schema_change",),
    ("bench.unchanged",),
    ("bench.wide_tables",),
    ("bench.lake", "catch-up"),
    ("bench.lake", "reading"),
    ("bench.fresh_reads",),
    ("bench.continuous",),
    ("bench.load", "--bare"),
    ("bench.tenants",),
    ("bench.proof",),
    ("bench.proof_of_changes",),
    ("bench.proof_of_many",),
    ("bench.views",),
    ("bench.spark_start",),
    ("bench.many_assets",),
    ("bench.stress",),
    ("bench.cluster",),
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
