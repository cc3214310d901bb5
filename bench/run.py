"""Runs every benchmark of docs/benchmarks.md, one after the other, each in its own process.

The measurements do not belong here; each benchmark has its own module.
"""

from __future__ import annotations

import subprocess
import sys

_BENCHMARKS = (
    ("bench.decoder",),
    ("bench.drain",),
    ("bench.latency",),
    ("bench.bootstrap",),
    ("bench.resnapshot",),
    ("bench.cycle", "--rows", "100000", "10000000"),
    ("bench.schema_change", "--rows", "100000"),
    ("bench.entry",),
    ("bench.load", "--bare"),
    ("bench.continuous",),
    ("bench.fresh_reads",),
    ("bench.views",),
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
