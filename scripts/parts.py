"""Runs the parts of `make check`, `make test` and `make test-all` one after the other and says how long each took.

What a part checks is configured in pyproject.toml. A part that fails does not stop the next one; the time limit does.
A run of all parts of `make test-all` writes its result into docs/testing.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
# The goal of `make test` is 25 minutes with the setting up of a fresh clone; a loaded machine gets more, but never hangs.
LIMITS_S = {"check": 24 * 60, "test": 70 * 60, "test-all": 6 * 3600}
_ROOMS = ("wal2delta", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests")
_PYTEST = ("-m", "pytest", "-q", "--durations=5")
_PAGE = ROOT / "docs" / "testing.md"
_PLACE = re.compile(r"(<!-- the last whole run -->\n).*?(<!-- its end -->)", re.DOTALL)
_COUNTS = ROOT / ".cache" / "pytest-counts.xml"


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a name, the module to run with its arguments, and the folders it looks at (all must exist)."""

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a part; `tests` is empty where it is none of pytest's."""

    name: str
    verdict: str
    seconds: float
    tests: str = ""


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
    parser.add_argument("--only", nargs="+", metavar="PART", help="these parts, by their names in the table at the end")
    arguments = parser.parse_args()
    deadline = time.monotonic() + (arguments.limit_s or LIMITS_S[arguments.which])
    results: list[Result] = []
    for part in PARTS[arguments.which]:
        if arguments.only and part.name not in arguments.only:
            continue
        print(f"== {part.name}", flush=True)
        started = time.monotonic()
        _COUNTS.unlink(missing_ok=True)
        verdict = _run(part, deadline)
        results.append(Result(part.name, verdict, time.monotonic() - started, _counted()))
        if verdict == "out of time":
            break
    print("\n".join(_table(results)), flush=True)
    if arguments.which == "test-all" and not arguments.only:
        _record(results)
    verdicts = {result.verdict for result in results}
    if "out of time" in verdicts:
        return 3
    return 0 if verdicts <= {"passed"} else 1


def _run(part: Part, deadline: float) -> str:
    # A group of its own, so that the time limit also ends the servers and JVMs that a part started.
    counts = [f"--junitxml={_COUNTS}"] if _PYTEST[1] in part.arguments else []
    process = subprocess.Popen([sys.executable, *part.arguments, *counts], cwd=ROOT, start_new_session=True)
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


def _counted() -> str:
    """What pytest says that it ran, e.g. "103 passed, 2 skipped"."""
    if not _COUNTS.exists():
        return ""
    # Written by our own pytest a moment ago.
    suite = ET.parse(_COUNTS).getroot()[0].attrib  # noqa: S314  it is no stranger's
    failed = int(suite["failures"]) + int(suite["errors"])
    skipped = int(suite["skipped"])
    counts = {"passed": int(suite["tests"]) - failed - skipped, "failed": failed, "skipped": skipped}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _table(results: list[Result]) -> list[str]:
    total = Result("all", "", sum(result.seconds for result in results))
    rows = [f"{r.name:<20} {r.seconds:>8.1f}  {r.verdict:<12} {r.tests}".rstrip() for r in (*results, total)]
    return ["", "part                  seconds  result", *rows]


def _record(results: list[Result]) -> None:
    """The table for a reader who has no hours, with what it was run on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"{today}, commit {commit.stdout.strip() or 'unknown'}, {machine}:"
    text = "\n".join(["", head, "", "```", *_table(results)[1:], "```", "", ""])
    page = _PAGE.read_text(encoding="utf-8")
    _PAGE.write_text(_PLACE.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
