"""Keeps the table of docs/testing.md that says what each part of `make test-all` gave when it ran last.

Running parts does not belong here (`parts.py`). A part that has run writes its own row; the other rows stay, but for whether
they are old: made without the newest release (the newest tag that HEAD has), or, before there is one, more than
`OLD_COMMITS` commits before HEAD, or at a commit that this repository does not have.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeproof.errors import DefiniteError
from lakeproof.lake.spark.java import check_java

OLD_COMMITS = 100
_SECTION = re.compile(r"(<!-- the last whole run -->\n).*?(<!-- its end -->)", re.DOTALL)
_TITLES = ("part", "date", "commit", "machine", "seconds", "outcome", "tests")
_OLD = " (old)"
_NEVER = "never"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part runs: the commit, with a `+` if files differ from it, and the machine with its Python and Java."""

    commit: str
    machine: str


def place(root: Path, page: Path) -> Place:
    """Return this machine and the commit of the files in `root`; the page itself may differ from it."""
    differ = _git(root, "status", "--porcelain", "--", ".", f":!{page.relative_to(root)}")
    commit = (_git(root, "rev-parse", "--short", "HEAD") or "unknown") + ("+" if differ else "")
    return Place(commit, f"{os.cpu_count()} cores, Python {platform.python_version()}, Java {_java()}")


def record(root: Path, page: Path, parts: Sequence[str], row: tuple[str, Place, float, str, str]) -> None:
    """Write a part's row (name, place, seconds, outcome, counts) into the page; rows of parts that are none go."""
    name, where, seconds, outcome, tests = row
    today = dt.datetime.now(dt.timezone.utc).date().isoformat()
    with page.open("r+", encoding="utf-8") as file:
        # Two runs may end at the same time.
        fcntl.flock(file, fcntl.LOCK_EX)
        text = file.read()
        rows = {cells[0]: cells[1:] for cells in _rows(text)}
        rows[name] = [today, where.commit, where.machine, f"{seconds:.0f}", outcome, tests]
        lines = [_line(_TITLES), _line(["---"] * len(_TITLES))]
        for part in parts:
            date, *others = rows.get(part, [_NEVER, *[""] * (len(_TITLES) - 2)])
            date = date.removesuffix(_OLD)
            old = date != _NEVER and _is_old(root, others[0].rstrip("+"))
            lines.append(_line([part, date + (_OLD if old else ""), *others]))
        section = "\n".join(["", *lines, "", ""])
        file.seek(0)
        file.write(_SECTION.sub(lambda match: match[1] + section + match[2], text))
        file.truncate()


def _rows(text: str) -> list[list[str]]:
    section = _SECTION.search(text)
    lines = section[0].splitlines() if section else []
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return [row for row in cells if len(row) == len(_TITLES)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _is_old(root: Path, commit: str) -> bool:
    release = _git(root, "describe", "--tags", "--abbrev=0")
    if release:
        return _git(root, "merge-base", commit, release) != _git(root, "rev-parse", f"{release}^{{commit}}")
    since = _git(root, "rev-list", "--count", f"{commit}..HEAD")
    return not since or int(since) > OLD_COMMITS


def _git(root: Path, *arguments: str) -> str:
    """Return git's output, empty if it failed."""
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else ""


def _java() -> str:
    try:
        return str(check_java().major)
    except DefiniteError:
        return "none"
