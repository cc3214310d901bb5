"""Runs the parts of `make quick`, `make check`, `make test` and `make test-all`, and prints how long each took.

The settings of the tools do not belong here (pyproject.toml). A part that fails does not stop the next part; the time limit
does. Two parts run at a time, in `make test` three: tests with Spark take the longest, tests with servers mostly wait. The
output of a part that runs beside another is shown when it has ended.
Each part of `make test-all` that has run writes its row into docs/testing.md (`whole_run.py`).
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

from scripts import whole_run
from scripts.changed import changed_files, covering
from scripts.fetch import pythons
from scripts.source_trees import ROOMS, ROOT

# The goal of `make test` is 12 minutes, and 14 with the setup of a fresh clone; a loaded machine gets more, but never hangs.
LIMITS_S = {"quick": 10 * 60, "check": 24 * 60, "test": 78 * 60, "test-all": 6 * 3600}
_PYTEST = ("-m", "pytest", "-q", "--durations=30")
_RULES = tuple(sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("test_*.py")))
# The unit tests in two halves that take about as long; a further folder is in the second.
_OF_ROWS = tuple(
    f"tests/core/{room}" for room in ("delta", "drain", "lake", "landing", "pgoutput", "postgres", "proof", "values")
)
_OTHERS = tuple(
    sorted({f"tests/core/{path.parent.name}" for path in (ROOT / "tests" / "core").glob("*/test_*.py")} - {*_OF_ROWS})
)
_PAGE = ROOT / "docs" / "testing.md"
# Of the two cores tests with Spark and tests with servers use two thirds: what computes without waiting has the rest.
_AT_ONCE = {"test": 3}
_USUALLY = 2
# A folder in memory for the files of `make test`: the engine waits for the disk after each file that it writes, 8 ms for a
# file and its folder on a usual disk, and the tests' lakes are gone at the end. `make test-all` is on the disk.
_MEMORY = Path("/dev/shm")  # noqa: S108  a folder with a name that nobody has is made in it
_MEMORY_FREE_MIN = 6 << 30
# Linux shares its processors among sessions before it looks at a process's own niceness.
_GIVING_WAY = ("sh", "-c", '{ echo 5 > /proc/self/autogroup; } 2> /dev/null; exec nice -n 5 "$@"', "sh")
_NOTHING = "nothing ran"
_GOOD = {"passed", _NOTHING}
# Characters of a failed test's message in its line at the end.
_MESSAGE_MAX = 300


@dataclass(frozen=True, slots=True)
class Part:
    """One part: a name, the module to run with its arguments, and `beside`: it may run beside another such part.

    `empty`: this machine may not have what it needs, and then pytest has no test to run. `gives_way`: it leaves the
    processor to a part that does not.
    """

    name: str
    arguments: tuple[str, ...]
    beside: bool = False
    empty: bool = False
    gives_way: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a part; `tests` and `failures`, a line for each failed test, are empty if it does not run pytest."""

    name: str
    outcome: str
    seconds: float
    place: whole_run.Place
    tests: str = ""
    failures: tuple[str, ...] = ()


CHECK = (
    Part("lint", ("-m", "ruff", "check", "-q", *ROOMS), beside=True),
    Part("format", ("-m", "ruff", "format", "-q", "--check", *ROOMS), beside=True),
    Part(
        "import contracts",
        ("-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"),
        beside=True,
    ),
    Part("types", ("-m", "mypy", "--no-error-summary"), beside=True),
    Part("manual", ("scripts/manual.py",), beside=True),
    # Two processes that share nothing: as workers of one run each would load all of the tests, and report each of thousands.
    Part("unit, rows", (*_PYTEST, *_OF_ROWS), beside=True),
    Part("unit and tidy", (*_PYTEST, *_OTHERS, *_RULES), beside=True),
)
_FOLDERS = tuple(f"tests/{name}" for name in ("properties", "scenarios", "shell", "edges", "applications"))
# A JVM gets faster with each test, so there is one: a second takes as much of the processor for half of the tests.
_BY_SPARK = Part("with Spark", (*_PYTEST, "-m", "spark", *_FOLDERS), beside=True)
# These mostly wait: for a server, a network that is down, a process that is to be killed, a JVM that starts.
_NOT_BY_SPARK = Part(
    "without Spark", (*_PYTEST, "-n", "3", "--dist", "loadfile", "-m", "not spark", *_FOLDERS), beside=True
)
# The longest part, which uses one core at most, has what it asks for; the second begins at once, too.
TESTS = (_BY_SPARK, *(replace(part, gives_way=True) for part in (_NOT_BY_SPARK, *CHECK)))
# These servers' names stand in the names of the tests that run on them. They have parts of their own, to be run alone if
# something has changed that store or client do differently. Without the server its tests are skipped.
_STORES = {"S3 on versitygw": "versitygw", "Azure on Azurite": "azurite"}
# Without Spark: Java is the same under each Python.
PYTHONS = ("3.10", "3.12", "3.13")
JAVAS = ("21", "25")
_NO_JAVA = "not spark and not jvm"
_SPARK = {"with Spark": "spark", "without Spark": "not spark"}


def _rooms(folder: str) -> tuple[str, ...]:
    """Return the rooms of a folder that have tests with Spark."""
    files = [path for path in (ROOT / folder).glob("*/test_*.py") if "pytest.mark.spark" in path.read_text()]
    return tuple(sorted({str(path.parent.relative_to(ROOT)) for path in files}))


def _scenarios(first: str, last: str) -> tuple[str, ...]:
    """Return the scenarios whose names begin with these letters or what is between them."""
    files = sorted((ROOT / "tests" / "scenarios").glob("test_*.py"))
    return tuple(str(path.relative_to(ROOT)) for path in files if first <= path.name.removeprefix("test_")[0] <= last)


# What is a part of its own: without Spark a folder. With Spark that would run for hours, so it is a room, and the scenarios
# that begin with some letters.
_LETTERS = (("a", "b"), ("c", "e"), ("f", "k"), ("l", "n"), ("o", "q"), ("r", "s"), ("t", "z"))
_WHOLE_FOLDERS: dict[str, dict[str, tuple[str, ...]]] = {
    "with Spark": {
        **{
            room.removeprefix("tests/"): (room,)
            for room in (*_rooms("tests/properties"), *_rooms("tests/edges"), "tests/shell", "tests/applications")
        },
        **{f"scenarios {first} to {last}": _scenarios(first, last) for first, last in _LETTERS},
    },
    "without Spark": {folder.removeprefix("tests/"): (folder,) for folder in _FOLDERS},
}
_ELSEWHERE = " and ".join(f"not {name}" for name in _STORES.values())
# Every random suite in full on the newest server, then the other Pythons, all tests with a server on each older version of
# PostgreSQL, and the stores.
# Each part has one process, and two run at a time: what failed or was interrupted is run again by itself.
WHOLE = (
    *(
        replace(part, arguments=(*part.arguments, "--full", "-k", _ELSEWHERE)) if _PYTEST[1] in part.arguments else part
        for part in CHECK
    ),
    *(
        Part(
            f"{part} {name}",
            (*_PYTEST, "--full", "-m", _SPARK[name], "-k", _ELSEWHERE, *paths),
            beside=True,
        )
        for name, parts in _WHOLE_FOLDERS.items()
        for part, paths in parts.items()
    ),
    *(
        Part(
            f"Python {version}",
            ("scripts/fetch/pythons.py", version, *_PYTEST, "-n", "2", "--dist", "loadfile", "-m", _NO_JAVA, "tests"),
            empty=True,
        )
        for version in PYTHONS
    ),
    *(
        Part(
            f"Java {version}",
            ("scripts/fetch/javas.py", version, *_PYTEST, "-m", "spark or jvm", *_FOLDERS),
            beside=True,
            empty=True,
        )
        for version in JAVAS
    ),
    Part("fetch servers", ("scripts/fetch/servers.py",)),
    *(
        Part(f"PostgreSQL {major} {name}", (*_PYTEST, "-m", marks, "--servers", str(major), "tests"), beside=True)
        for major in (14, 17, 15, 16)
        for name, marks in _SPARK.items()
    ),
    Part("S3 gateway", ("scripts/fetch/s3_gateway.py",)),
    *(
        Part(name, (*_PYTEST, "--full", "-k", store, "tests/core", *_FOLDERS), beside=True, empty=True)
        for name, store in _STORES.items()
    ),
)
PARTS = {"check": CHECK, "test": TESTS, "test-all": WHOLE}
QUICK = "quick"


def quick(changed: list[str], tests: list[str]) -> tuple[Part, ...]:
    """Return the parts of `make quick`: the tools on the changed files, and these tests, but for those with Spark."""
    tools = (
        Part("lint", ("-m", "ruff", "check", "-q", *changed)),
        Part("format", ("-m", "ruff", "format", "-q", "--check", *changed)),
        Part("types", ("-m", "mypy", "--no-error-summary", *changed), beside=True),
    )
    runs = Part("changed tests", (*_PYTEST, "-m", _NO_JAVA, *tests), beside=True, empty=True)
    return (*(tools if changed else ()), *((runs,) if tests else ()))


def main() -> int:
    """Return 0 if every part passed, 1 if one failed, 3 if the time ran out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=[QUICK, *PARTS])
    parser.add_argument("--limit-s", type=float)
    parser.add_argument(
        "--only", nargs="+", metavar="PART", help="run only these parts, by their names in the table at the end"
    )
    arguments = parser.parse_args()
    # A shell ignores SIGINT in what it starts in the background; then Dagster ignores SIGTERM, too, and so do all children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Printed here, since a quiet pytest leaves out its header.
    seed = os.environ.setdefault("LAKEPROOF_SEED", str(random.SystemRandom().randrange(1, 1 << 31)))
    print(f"LAKEPROOF_SEED={seed}", flush=True)
    deadline = time.monotonic() + (arguments.limit_s or LIMITS_S[arguments.which])
    started = time.monotonic()
    changed = changed_files()
    every = quick(changed, covering(changed)) if arguments.which == QUICK else PARTS[arguments.which]
    parts = [p for p in every if not arguments.only or p.name in arguments.only]
    with _files_in_memory(arguments.which):
        results = []
        for result in _results(parts, _AT_ONCE.get(arguments.which, _USUALLY), deadline):
            results.append(result)
            if arguments.which == "test-all":
                _record(result)
    wall_s = time.monotonic() - started
    # The failures come last, since often only the end of a long output is kept.
    print("\n".join([*_table(results, wall_s), *(line for result in results for line in result.failures)]), flush=True)
    outcomes = {result.outcome for result in results}
    if "out of time" in outcomes:
        return 3
    return 0 if outcomes <= _GOOD else 1


@contextmanager
def _files_in_memory(which: str) -> Iterator[None]:
    """Let temporary files lie in memory while the block runs, if there is enough of it and the run is not test-all's."""
    if which == "test-all" or "TMPDIR" in os.environ or not _has_room_in_memory():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="lakeproof-", dir=_MEMORY, ignore_cleanup_errors=True) as folder:
        # The servers run as another user, who has to pass.
        Path(folder).chmod(0o755)
        os.environ["TMPDIR"] = folder
        try:
            yield
        finally:
            del os.environ["TMPDIR"]


def _has_room_in_memory() -> bool:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return os.access(_MEMORY, os.W_OK) and min(free, shutil.disk_usage(_MEMORY).free) >= _MEMORY_FREE_MIN


def _results(parts: Sequence[Part], at_once: int, deadline: float) -> Iterator[Result]:
    """Run the parts in their order, `at_once` at a time, up to the first that runs out of time."""
    processes = _Processes()
    waiting, running = list(parts), set[Future[Result]]()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            while waiting or running:
                may_start = not running or (waiting and waiting[0].beside and len(running) < at_once)
                if waiting and may_start:
                    part = waiting.pop(0)
                    running.add(pool.submit(_run, part, deadline, processes))
                    if part.beside:
                        continue
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for result in (future.result() for future in done):
                    yield result
                    if result.outcome == "out of time":
                        waiting.clear()
        except BaseException:
            processes.end()
            raise


class _Processes:
    """The running processes, so that an interruption can end them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()

    def start(self, command: Sequence[str], output: int | None) -> subprocess.Popen[bytes]:
        # A session of its own, so that the time limit also ends the servers and JVMs that a part started.
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
    print(f"== {part.name}" + (" (its output follows when it has ended)" if part.beside else ""), flush=True)
    # What is committed while a part runs is not in it.
    started, place = time.monotonic(), whole_run.place(ROOT, _PAGE)
    with tempfile.TemporaryDirectory(prefix="lakeproof-part-") as folder, tempfile.TemporaryFile() as output:
        counts = Path(folder) / "counts.xml"
        counting = [f"--junitxml={counts}"] if _PYTEST[1] in part.arguments else []
        command = [*(_GIVING_WAY if part.gives_way else ()), sys.executable, *part.arguments, *counting]
        process = processes.start(command, output.fileno() if part.beside else None)
        try:
            status = process.wait(max(deadline - time.monotonic(), 1))
            is_empty = part.empty and status == pythons.NO_TESTS
            outcome = "passed" if status == 0 else _NOTHING if is_empty else f"failed ({status})"
        except subprocess.TimeoutExpired:
            _end(process)
            outcome = "out of time"
        if part.beside:
            output.seek(0)
            print(f"== {part.name}: output\n" + output.read().decode(errors="replace"), flush=True)
        return Result(part.name, outcome, time.monotonic() - started, place, *_counted(counts))


def _end(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _counted(path: Path) -> tuple[str, tuple[str, ...]]:
    """Return pytest's counts, e.g. "103 passed, 2 skipped", and a line for each failed test."""
    if not path.exists():
        return "", ()
    # Written by our own pytest a moment ago.
    suite = ET.parse(path).getroot()[0]  # noqa: S314  we have just written it
    failed = int(suite.attrib["failures"]) + int(suite.attrib["errors"])
    skipped = int(suite.attrib["skipped"])
    counts = {"passed": int(suite.attrib["tests"]) - failed - skipped, "failed": failed, "skipped": skipped}
    cases = [case for case in suite if case.find("failure") is not None or case.find("error") is not None]
    counted = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return counted, tuple(_failure(case) for case in cases)


def _failure(case: ET.Element) -> str:
    """Return e.g. "failed: tests.shell.test_cli::test_plan: AssertionError: ...", shortened if it is long."""
    message = next(part for part in case if part.tag in {"failure", "error"}).attrib.get("message", "")
    return f"failed: {case.attrib['classname']}::{case.attrib['name']}: {' '.join(message.split())[:_MESSAGE_MAX]}"


def _table(results: list[Result], wall_s: float) -> list[str]:
    rows = [f"{r.name:<26} {r.seconds:>8.1f}  {r.outcome:<12} {r.tests}".rstrip() for r in results]
    return ["", f"{'part':<26}  seconds  result", *rows, f"{'all':<26} {wall_s:>8.1f}"]


def _record(result: Result) -> None:
    row = (result.name, result.place, result.seconds, result.outcome, result.tests)
    whole_run.record(ROOT, _PAGE, [part.name for part in WHOLE], row)


if __name__ == "__main__":
    sys.exit(main())
