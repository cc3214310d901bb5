"""A Delta table's log after the version that the newest cut names: ours, a stranger's, or with a version missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from wal2delta.lake.delta_log import Commit, LogGapError, StrayCommitError, find_commit


def _log(folder: Path, versions: dict[int, str]) -> str:
    """Commits by the application that made them; one of nobody changes no data."""
    (folder / "_delta_log").mkdir(parents=True)
    for version, app in versions.items():
        lines: list[object] = [{"commitInfo": {"operation": "WRITE"}}]
        if app:
            lines += [{"txn": {"appId": app, "version": version}}, {"add": {"path": "f", "dataChange": True}}]
        text = "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)
        (folder / "_delta_log" / f"{version:020d}.json").write_text(text, encoding="utf-8")
    return str(folder)


def _is_ours(commit: Commit) -> bool:
    return "us" in commit.txns


def test_what_changes_no_data_is_passed_over(tmp_path: Path) -> None:
    """Up to our commit, or to the newest version where it was not made."""
    path = _log(tmp_path, {0: "us", 1: "", 2: "", 3: "us"})
    before, ours = find_commit(path, 0, _is_ours)
    assert (before, None if ours is None else ours.version) == (2, 3)
    assert find_commit(path, 3, _is_ours) == (3, None)


def test_a_strangers_commit_is_refused(tmp_path: Path) -> None:
    """Also with ours on top of it."""
    path = _log(tmp_path, {0: "us", 1: "them", 2: "us"})
    with pytest.raises(StrayCommitError, match="version 1 was committed by someone else"):
        find_commit(path, 0, _is_ours)


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ({0: "us", 2: "them"}, "has version 2 and not version 1"),
        ({0: "us", 1: "", 3: "us"}, "has version 3 and not version 2"),
        ({}, "ends at version -1, before version 0"),
    ],
)
def test_a_log_with_a_gap_is_refused(tmp_path: Path, versions: dict[int, str], told: str) -> None:
    """What the missing version changed is not known: it is not taken for a log that ends there."""
    path = _log(tmp_path, versions)
    with pytest.raises(LogGapError, match=told):
        find_commit(path, 0, _is_ours)
