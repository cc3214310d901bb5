"""Commits that no cut names are taken out of a table's log; those of others stay, as far as anybody can read them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lakeproof.errors import LakeError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.cleaned_log import clean_log
from lakeproof.lake.delta.files import table_files, unneeded
from lakeproof.lake.delta.fsync import sync_commits
from lakeproof.lake.delta.log import DeltaCommit, LogGapError, commit_name, newest_version
from lakeproof.lake.delta.unnamed_commits import named_through
from lakeproof.storage.open import open_store

OURS, THEIRS, OPTIMIZE, EMPTY, GONE = "ours", "theirs", "optimize", "empty", "gone"


def is_ours(commit: DeltaCommit) -> bool:
    """True if the commit has our application's id."""
    return OURS in commit.txns


def table(folder: Path, commits: list[str]) -> str:
    """A table with these commits, one data file and one checksum each."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for version, kind in enumerate(commits):
        add = {"path": f"{version}.parquet", "size": 1, "dataChange": kind != OPTIMIZE}
        actions: list[object] = [{"commitInfo": {}}, {"add": add}]
        actions += [{"txn": {"appId": OURS, "version": version}}] if kind == OURS else []
        text = "" if kind == EMPTY else "\n".join(map(json.dumps, actions))
        for beside in (f".{version:020d}.json.crc", f"{version:020d}.crc"):
            (log / beside).touch()
        (folder / f"{version}.parquet").touch()
        if kind != GONE:
            (folder / commit_name(version)).write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("above", "kept", "foreign"),
    [
        ([], 0, []),
        ([OURS], 0, []),
        ([OURS, OURS], 0, []),
        ([EMPTY], 0, []),
        ([GONE, OURS], 0, []),
        ([EMPTY, THEIRS], 0, []),
        ([OPTIMIZE], 1, []),
        ([OPTIMIZE, OURS], 1, []),
        ([OPTIMIZE, EMPTY], 1, []),
        ([THEIRS], 1, [1]),
        ([THEIRS, OURS], 1, [1]),
        ([OPTIMIZE, THEIRS, OURS, OURS], 2, [2]),
        ([OURS, THEIRS], 2, [1, 2]),
        ([OURS, OPTIMIZE], 2, [1, 2]),
        ([OURS, THEIRS, OURS, GONE, THEIRS], 2, [1, 2]),
    ],
)
def test_our_unnamed_commits_go_and_foreign_ones_stay(
    tmp_path: Path, above: list[str], kept: int, foreign: list[int]
) -> None:
    """`kept` is the newest version afterwards, `foreign` the commits that must not be built on."""
    path = table(tmp_path / "t", [OURS, *above])
    cleaned = clean_log(path, 0, is_ours)
    assert newest_version(path) == kept
    assert [commit.version for commit in cleaned.foreign] == foreign
    assert cleaned.base == (kept if not foreign else foreign[0] - 1)
    left = {int(file.name.lstrip(".")[:20]) for file in (tmp_path / "t" / "_delta_log").iterdir()}
    assert left == set(range(kept + 1))
    assert clean_log(path, 0, is_ours) == cleaned


def test_a_table_that_no_cut_has_begins_at_nothing(tmp_path: Path) -> None:
    """The data files that are left are named by nobody, and are swept once the table is there."""
    path = table(tmp_path / "t", [OURS, OURS])
    assert clean_log(path, -1, is_ours).base == -1
    assert list((tmp_path / "t" / "_delta_log").iterdir()) == []
    add = {"add": {"path": "new.parquet", "size": 1, "dataChange": True}}
    (Path(path) / commit_name(0)).write_text(json.dumps(add), encoding="utf-8")
    swept = {Path(place).name for place, _ in unneeded(path, table_files(path, 0))}
    assert {"0.parquet", "1.parquet"} <= swept
    assert clean_log(str(tmp_path / "none"), -1, is_ours).base == -1


def test_checkpoints_go_and_what_points_at_them(tmp_path: Path) -> None:
    """A checkpoint goes with all its parts; an unreadable `_last_checkpoint` goes, too."""
    path = table(tmp_path / "t", [OURS] * 4)
    log = tmp_path / "t" / "_delta_log"
    names = [f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet", f"{1:020d}.{3:020d}.compacted.json"]
    for name in names:
        (log / name).touch()
    for message, goes in ((b'{"version": 2}', True), (b"", True), (b"{}", True), (b'{"version": 1}', False)):
        (log / "_last_checkpoint").write_bytes(message)
        clean_log(path, 1, is_ours)
        assert not any((log / name).exists() for name in names)
        assert (log / "_last_checkpoint").exists() is not goes


def test_a_removal_that_is_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """The removal stops after each file in turn; the log below the version is always whole."""
    path = table(tmp_path / "t", [OURS] * 4)

    class Cut(BaseException):
        pass

    def cut(name: str) -> None:
        assert name == "cycle.after_unnamed"
        raise Cut

    for _ in range(9):
        with watched(cut), pytest.raises(Cut):
            clean_log(path, 0, is_ours)
        assert table_files(path, 0, 0).newest
    clean_log(path, 0, is_ours)
    assert newest_version(path) == 0


def test_a_log_that_ends_before_the_cuts_version_is_refused(tmp_path: Path) -> None:
    """The missing versions can't be recovered."""
    path = table(tmp_path / "t", [OURS, OURS])
    with pytest.raises(LogGapError, match="ends at version 1, before version 4"):
        clean_log(path, 4, is_ours)


def test_named_commits_are_recognized_by_their_content(tmp_path: Path) -> None:
    """Damaged ones name nothing."""
    path = table(tmp_path / "t", [OURS, OURS, OURS, EMPTY])
    assert named_through(path, lambda commit: commit.txns[OURS] < 2) == 1
    assert named_through(path, lambda _: False) == -1


def test_files_that_commits_name_are_synced_with_any_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data first, then their folder, then commits, then the rest of the log, then folders up to the root."""
    lake = tmp_path / "lake"
    path = table(lake / "source" / "t", [OURS] * 3)
    for place in lake.rglob("*"):
        os.utime(place, (1, 1))
    synced: list[str] = []

    def fsync(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink().relative_to(lake)))

    monkeypatch.setattr(os, "fsync", fsync)  # inside: only the system knows in what order it was asked to sync
    sync_commits({path: 0}, open_store(lake))
    log = "source/t/_delta_log"
    assert synced[:2] == ["source/t/1.parquet", "source/t/2.parquet"]
    assert synced[2:5] == ["source/t", "source", "."]
    rest = [f"{log}/{1:020d}.json", f"{log}/.{1:020d}.json.crc", f"{log}/{2:020d}.json", f"{log}/.{2:020d}.json.crc"]
    assert synced[5:9] == rest
    assert set(synced[9:-4]) >= {f"{log}/{version:020d}.crc" for version in (1, 2)}
    assert synced[-4:] == [log, "source/t", "source", "."]
    assert f"{log}/{0:020d}.json" not in synced
    (lake / "source" / "t" / "2.parquet").unlink()
    with pytest.raises(LakeError, match="it is missing"):
        sync_commits({path: 1}, open_store(lake))
    synced.clear()
    assert sync_commits({path: 2, str(lake / "none"): -1}, open_store(lake)) == 0
    assert synced == []
