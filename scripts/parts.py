"""Runs the parts of `make check`, `make test` and `make test-all` and says how long each took.

What a part checks is configured in pyproject.toml. A part that fails does not stop the next one; the time limit does.
Tests that use servers and Spark wait for nearly half of their time, so two such parts run at once, and what each of them
printed is shown when it has ended.
A few tests of `make test` that failed beside others run once more, alone and with the same seed (`_again`): those that pass
then are named at the end, to be mended. `make test-all` has no such second look.
A run of all parts of `make test-all` writes its result into docs/testing.md.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parent.parent
# The goal of `make test` is 25 minutes with the setting up of a fresh clone; a loaded machine gets more, but never hangs.
LIMITS_S = {"check": 24 * 60, "test": 78 * 60, "test-all": 6 * 3600}
_ROOMS = ("lakeproof", "resources", "assets", "jobs", "orchestration", "demo", "bench", "scripts", "tests")
_PYTEST = ("-m", "pytest", "-q", "--durations=25")
_PAGE = ROOT / "docs" / "testing.md"
_PLACE = re.compile(r"(<!-- the last whole run -->\n).*?(<!-- its end -->)", re.DOTALL)
# More JVMs at once would want more than 8 GB.
_AT_ONCE = 2
# More failures than these are no matter of a busy machine.
_AGAIN_MAX = 3
_BUSY = "passed again"
# Characters of what a failed test says that its line at the end gives.
_TOLD = 300


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a name, the module to run with its arguments, and whether it may run beside another one that may."""

    name: str
    arguments: tuple[str, ...]
    beside: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a part; `tests`, `failures` and `failed` are empty where it is none of pytest's.

    `failures` has a line for each test that failed, `failed` has what pytest calls them.
    """

    name: str
    verdict: str
    seconds: float
    tests: str = ""
    failures: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


CHECK = (
    Part("lint", ("-m", "ruff", "check", "-q", *_ROOMS)),
    Part("format", ("-m", "ruff", "format", "-q", "--check", *_ROOMS)),
    Part("types", ("-m", "mypy", "--no-error-summary")),
    Part("import contracts", ("-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache")),
    Part("unit and tidy", (*_PYTEST, "tests/core", "tests/test_tidy.py")),
)
# The longest first, so that none is left over at the end.
_FOLDERS = ("edges", "scenarios", "properties", "shell")
TESTS = tuple(Part(name, (*_PYTEST, f"tests/{name}"), beside=True) for name in _FOLDERS)
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
    # pytest's own head is left out where it is quiet.
    seed = os.environ.setdefault("LAKEPROOF_SEED", str(random.SystemRandom().randrange(1, 1 << 31)))
    print(f"LAKEPROOF_SEED={seed}", flush=True)
    deadline = time.monotonic() + (arguments.limit_s or LIMITS_S[arguments.which])
    begun = time.monotonic()
    chosen = [p for p in PARTS[arguments.which] if not arguments.only or p.name in arguments.only]
    results = list(_results(chosen, deadline))
    if arguments.which == "test":
        results += _again(results, deadline)
    wall_s = time.monotonic() - begun
    # The failures come last, since of a long output often just the end is kept.
    print("\n".join([*_table(results, wall_s), *(line for result in results for line in result.failures)]), flush=True)
    if arguments.which == "test-all" and not arguments.only:
        _record(results, wall_s)
    verdicts = {result.verdict for result in results if result.verdict != _BUSY}
    if "out of time" in verdicts:
        return 3
    return 0 if verdicts <= {"passed"} else 1


def _results(parts: Sequence[Part], deadline: float) -> Iterator[Result]:
    """Run the parts in their order, up to the first that is out of time."""
    processes = _Processes()
    waiting, running = list(parts), set[Future[Result]]()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        try:
            while waiting or running:
                may_start = not running or (waiting and waiting[0].beside and len(running) < _AT_ONCE)
                if waiting and may_start:
                    part = waiting.pop(0)
                    running.add(pool.submit(_run, part, deadline, processes))
                    if part.beside:
                        continue
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for result in (future.result() for future in done):
                    yield result
                    if result.verdict == "out of time":
                        waiting.clear()
        except BaseException:
            processes.end()
            raise


def _again(results: list[Result], deadline: float) -> list[Result]:
    """Run the tests that failed in parts beside others once more, where they are few and nothing else is wrong.

    Where all of them pass, the verdicts of their parts in `results` become _BUSY.
    """
    beside = {part.name for part in TESTS}
    wrong = [result for result in results if result.verdict != "passed"]
    failed = [test for result in wrong for test in result.failed]
    clear = all(result.name in beside and result.verdict == "failed (1)" and result.failed for result in wrong)
    if not wrong or not clear or len(failed) > _AGAIN_MAX:
        return []
    result = _run(Part("again, alone", (*_PYTEST, *failed)), deadline, _Processes())
    if result.verdict == "passed":
        for number, earlier in enumerate(results):
            if earlier in wrong:
                unsteady = tuple(line.replace("failed:", "unsteady, passed alone:", 1) for line in earlier.failures)
                results[number] = replace(earlier, verdict=_BUSY, failures=unsteady)
    return [result]


class _Processes:
    """What runs now, so that an interruption can end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def start(self, command: Sequence[str], output: int | None) -> subprocess.Popen[bytes]:
        # A group of its own, so that the time limit also ends the servers and JVMs that a part started.
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=output, stderr=output)
        with self._lock:
            self._running.add(process)
        return process

    def end(self) -> None:
        with self._lock:
            running = [process for process in self._running if process.poll() is None]
        for process in running:
            _end(process)


def _run(part: Part, deadline: float, processes: _Processes) -> Result:
    print(f"== {part.name}" + (", with what it prints at its end" if part.beside else ""), flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="lakeproof-part-") as folder, tempfile.TemporaryFile() as output:
        counts = Path(folder) / "counts.xml"
        counting = [f"--junitxml={counts}"] if _PYTEST[1] in part.arguments else []
        command = [sys.executable, *part.arguments, *counting]
        process = processes.start(command, output.fileno() if part.beside else None)
        try:
            status = process.wait(max(deadline - time.monotonic(), 1))
            verdict = "passed" if status == 0 else f"failed ({status})"
        except subprocess.TimeoutExpired:
            _end(process)
            verdict = "out of time"
        if part.beside:
            output.seek(0)
            print(f"== {part.name}: what it printed\n" + output.read().decode(errors="replace"), flush=True)
        return Result(part.name, verdict, time.monotonic() - begun, *_counted(counts))


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _counted(path: Path) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """What pytest says that it ran, e.g. "103 passed, 2 skipped"; a line and pytest's name for each test that failed."""
    if not path.exists():
        return "", (), ()
    # Written by our own pytest a moment ago.
    suite = ET.parse(path).getroot()[0]  # noqa: S314  it is no stranger's
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    counts = {"passed": int(suite.attrib["tests"]) - failed - skipped, "failed": failed, "skipped": skipped}
    cases = [case for case in suite if case.find("failure") is not None or case.find("error") is not None]
    named = (f"{case.attrib['classname'].replace('.', '/')}.py::{case.attrib['name']}" for case in cases)
    counted = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return counted, tuple(_failure(case) for case in cases), tuple(dict.fromkeys(named))


def _failure(case: ET.Element) -> str:
    """Such as "failed: tests.shell.test_cli::test_plan: AssertionError: ...", cut off where it is long."""
    told = next(part for part in case if part.tag in {"failure", "error"}).attrib.get("message", "")
    return f"failed: {case.attrib['classname']}::{case.attrib['name']}: {' '.join(told.split())[:_TOLD]}"


def _table(results: list[Result], wall_s: float) -> list[str]:
    total = Result("all", "", wall_s)
    rows = [f"{r.name:<20} {r.seconds:>8.1f}  {r.verdict:<12} {r.tests}".rstrip() for r in (*results, total)]
    return ["", "part                  seconds  result", *rows]


def _record(results: list[Result], wall_s: float) -> None:
    """The table for a reader who has no hours, with what it was run on."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    head = f"{today}, commit {commit.stdout.strip() or 'unknown'}, {machine}:"
    text = "\n".join(["", head, "", "```", *_table(results, wall_s)[1:], "```", "", ""])
    page = _PAGE.read_text(encoding="utf-8")
    _PAGE.write_text(_PLACE.sub(lambda found: found[1] + text + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
