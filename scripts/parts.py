"""Runs the parts of `make check`, `make test` and `make test-all` one after the other and says how long each took.

What a part checks is configured in pyproject.toml. A part that fails does not stop the next one; the time limit does.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A CI job may take 25 minutes; setting up a fresh clone comes out of it too. `make test-all` is no CI job.
LIMITS_S = {"check": 24 * 60, "test": 24 * 60, "test-all": 6 * 3600}
_ROOMS = ("wal2delta", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests")
_PYTEST = ("-m", "pytest", "-q", "--durations=5")


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a name, the module to run with its arguments, and the folders it looks at (all must exist)."""

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()


CHECK = (
    Part("lint", ("-m", "ruff", "check", "-q", *_ROOMS)),
    Part("format", ("-m", "ruff", "format", "-q", "--check", *_ROOMS)),
    Part("types", ("-m", "mypy", "--no-error-summary")),
    Part("import contracts", ("-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache")),
    Part("unit and tidy", (*_PYTEST, "tests/core", "tests/test_tidy.py"), ("tests/core",)),
)
_FOLDERS = ("properties", "edges", "shell", "scenarios")
TESTS = tuple(Part(name, (*_PYTEST, f"tests/{name}")) for name in _FOLDERS)
# The whole of each random suite on the newest server, then on each older one all that uses a server.
WHOLE = tuple(
    replace(part, arguments=(*part.arguments, "--full")) if _PYTEST[1] in part.arguments else part
    for part in CHECK + TESTS
)
OLDER = (
    Part("fetch servers", ("scripts/servers.py",)),
    *(Part(f"PostgreSQL {major}", (*_PYTEST, "--servers", str(major), "tests")) for major in (17, 16, 15, 14)),
)
PARTS = {"check": CHECK, "test": CHECK + TESTS, "test-all": WHOLE + OLDER}


def main() -> int:
    """0 when every part passed, 1 when one did not, 3 when the time ran out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=list(PARTS))
    parser.add_argument("--limit-s", type=float)
    arguments = parser.parse_args()
    deadline = time.monotonic() + (arguments.limit_s or LIMITS_S[arguments.which])
    results: list[tuple[str, str, float]] = []
    for part in PARTS[arguments.which]:
        print(f"== {part.name}", flush=True)
        started = time.monotonic()
        verdict = _run(part, deadline)
        results.append((part.name, verdict, time.monotonic() - started))
        if verdict == "out of time":
            break
    _print(results)
    verdicts = {verdict for _, verdict, _ in results}
    if "out of time" in verdicts:
        return 3
    return 0 if verdicts <= {"passed"} else 1


def _run(part: Part, deadline: float) -> str:
    # A group of its own, so that the time limit also ends the servers and JVMs that a part started.
    process = subprocess.Popen([sys.executable, *part.arguments], cwd=ROOT, start_new_session=True)
    try:
        status = process.wait(max(deadline - time.monotonic(), 1))
    except subprocess.TimeoutExpired:
        _end(process)
        return "out of time"
    except KeyboardInterrupt:
        _end(process)
        raise
    return "passed" if status == 0 else f"failed ({status})"


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _print(results: list[tuple[str, str, float]]) -> None:
    total = sum(seconds for _, _, seconds in results)
    print("\npart                 seconds  result")
    for name, verdict, seconds in results:
        print(f"{name:<20} {seconds:>7.1f}  {verdict}")
    print(f"{'all':<20} {total:>7.1f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
