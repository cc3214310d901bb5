"""The table of the last whole run: each part writes its own row, and rows of before the release are shown as old."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts.whole_run import OLD_COMMITS, Place, place, record

PARTS = ("lint", "PostgreSQL 14 with Spark")


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false")
    run = subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return run.stdout.strip()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """A repository's page, with text before and after the table."""
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- the last whole run -->\n<!-- its end -->\nafter\n", encoding="utf-8")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    return page


def _record(page: Path, part: str, tests: str = "") -> None:
    record(page.parent, page, PARTS, (part, place(page.parent, page), 61.4, "passed", tests))


def _rows(page: Path) -> dict[str, list[str]]:
    lines = [line.strip("|").split("|") for line in page.read_text(encoding="utf-8").splitlines() if "|" in line]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines[2:]}


def test_a_part_writes_its_own_row_and_leaves_the_others(page: Path) -> None:
    """Date, commit, machine, seconds, outcome and counts; what never ran is listed as such, and the page stays around it."""
    _record(page, PARTS[1], "3 passed, 1 skipped")
    first = _rows(page)
    assert first["lint"][0] == "never"
    assert first[PARTS[1]][1] == _git(page.parent, "rev-parse", "--short", "HEAD")
    assert first[PARTS[1]][3:] == ["61", "passed", "3 passed, 1 skipped"]
    _record(page, "lint")
    assert _rows(page)[PARTS[1]] == first[PARTS[1]]
    assert _rows(page)["lint"][0] != "never"
    text = page.read_text(encoding="utf-8")
    assert (text.splitlines()[0], text.splitlines()[-1]) == ("before", "after")


def test_a_commit_whose_files_differ_is_marked_and_the_page_alone_does_not_differ(page: Path) -> None:
    """A row of a part that ran on edited files names no commit that has them."""
    _record(page, "lint")
    assert "+" not in place(page.parent, page).commit
    (page.parent / "code.py").write_text("x = 1\n", encoding="utf-8")
    assert place(page.parent, page).commit.endswith("+")


def test_what_ran_without_the_newest_release_is_old(page: Path) -> None:
    """The next part that runs says so of the others, and a new run makes a row new."""
    _record(page, "lint")
    _git(page.parent, "commit", "-qm", "second", "--allow-empty")
    _git(page.parent, "tag", "v1")
    _record(page, PARTS[1])
    assert {name: row[0].endswith("(old)") for name, row in _rows(page).items()} == {"lint": True, PARTS[1]: False}
    _record(page, "lint")
    assert not any(row[0].endswith("(old)") for row in _rows(page).values())


def test_before_a_release_what_ran_many_commits_ago_is_old(page: Path) -> None:
    """As is what ran at a commit that the repository does not have."""
    _record(page, "lint")
    for number in range(OLD_COMMITS):
        _git(page.parent, "commit", "-qm", str(number), "--allow-empty")
    _record(page, PARTS[1])
    assert not _rows(page)["lint"][0].endswith("(old)")
    _git(page.parent, "commit", "-qm", "one more", "--allow-empty")
    _record(page, PARTS[1])
    assert _rows(page)["lint"][0].endswith("(old)")
    record(page.parent, page, PARTS, ("lint", Place("1234567", "elsewhere"), 1, "passed", ""))
    assert _rows(page)["lint"][0].endswith("(old)")


def test_a_row_of_a_part_that_is_none_goes(page: Path) -> None:
    """A part that was renamed is not shown under both names."""
    record(page.parent, page, ("before", *PARTS), ("before", place(page.parent, page), 1, "passed", ""))
    _record(page, "lint")
    assert set(_rows(page)) == set(PARTS)
