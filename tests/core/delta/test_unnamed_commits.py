"""Commits that no cut names are taken back by a commit above them; those of others stay, if anybody can read them."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakeproof.errors import LakeError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.committer import AddedFile, CommitInfo, LoggedOperation, PendingCommit
from lakeproof.lake.delta.files.needed import sync_commits, table_files, unneeded
from lakeproof.lake.delta.log.checkpoint import TOMBSTONES_S, read_checkpoint, write_checkpoint
from lakeproof.lake.delta.log.cleaned import begin_at, clean_log, named_through, remove_unreadable
from lakeproof.lake.delta.log.commits import (
    NO_VERSION,
    DeltaCommit,
    LogGapError,
    commit_name,
    newest_version,
    read_actions,
    read_commit,
)
from lakeproof.lake.delta.log.protocol import metadata_of, protocol_for
from lakeproof.lake.delta.log.state import TableState, read_state
from lakeproof.storage.folder import Folder
from lakeproof.storage.open import open_store

OURS, THEIRS, EMPTY, GONE = "ours", "theirs", "empty", "gone"
# They change no data. Ours is known by its metadata; the last one's file was cut short.
OPTIMIZE, PACKED, TORN = "optimize", "packed", "torn"


def is_ours(commit: DeltaCommit) -> bool:
    """True if the commit has our application's id, or is ours by its metadata."""
    return OURS in commit.txns or commit.user_metadata == PACKED


def table(folder: Path, commits: list[str]) -> str:
    """A table with these commits, one data file and one checksum each; the first one has its columns."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    metadata = metadata_of([{"name": "v", "type": "string", "nullable": True, "metadata": {}}], {})
    for version, kind in enumerate(commits):
        add = {"path": f"{version}.parquet", "size": 1, "dataChange": kind not in {OPTIMIZE, PACKED, TORN}}
        actions: list[object] = [{"commitInfo": {"userMetadata": kind}}, {"add": add}]
        actions += [] if version else [{"protocol": protocol_for(metadata, None)}, {"metaData": metadata}]
        actions += [{"txn": {"appId": OURS, "version": version}}] if kind == OURS else []
        text = "" if kind == EMPTY else "\n".join(map(json.dumps, actions))
        for beside in (f".{version:020d}.json.crc", f"{version:020d}.crc"):
            (log / beside).touch()
        (folder / f"{version}.parquet").write_bytes(b"" if kind == TORN else b"1")
        if kind != GONE:
            (folder / commit_name(version)).write_text(text, encoding="utf-8")
    return str(folder)


@pytest.mark.parametrize(
    ("above", "newest", "target", "foreign"),
    [
        ([], 0, None, []),
        ([OURS], 2, 0, []),
        ([OURS, OURS], 3, 0, []),
        ([EMPTY], 0, None, []),
        ([GONE, OURS], 0, None, []),
        ([EMPTY, THEIRS], 0, None, []),
        ([OURS, EMPTY], 2, 0, []),
        ([OPTIMIZE], 1, None, []),
        ([OPTIMIZE, OURS], 3, 1, []),
        ([OPTIMIZE, EMPTY], 1, None, []),
        ([THEIRS], 1, None, [1]),
        ([THEIRS, OURS], 3, 1, [1]),
        ([OPTIMIZE, THEIRS, OURS, OURS], 5, 2, [2]),
        ([OURS, THEIRS], 2, None, [1, 2]),
        ([OURS, OPTIMIZE], 2, None, [1, 2]),
        ([OURS, THEIRS, OURS, GONE, THEIRS], 4, 2, [1, 2]),
        ([PACKED], 2, 0, []),
        ([OURS, PACKED], 3, 0, []),
        ([OPTIMIZE, PACKED], 3, 1, []),
        ([TORN], 1, None, [1]),
        ([OPTIMIZE, TORN, OURS], 4, 2, [1, 2]),
    ],
)
def test_our_unnamed_commits_are_taken_back_and_foreign_ones_stay(
    tmp_path: Path, above: list[str], newest: int, target: int | None, foreign: list[int]
) -> None:
    """`newest` is the last version afterwards; it has what `target` had. `foreign` must not be built on."""
    path = table(tmp_path / "t", [OURS, *above])
    cleaned = clean_log(path, 0, is_ours)
    assert newest_version(path) == cleaned.newest == newest
    assert [commit.version for commit in cleaned.foreign] == foreign
    assert cleaned.base == (newest if not foreign else foreign[0] - 1)
    log = tmp_path / "t" / "_delta_log"
    assert {int(file.name[:20]) for file in log.glob("*.json")} == set(range(newest + 1)), "the log has no gap"
    if target is not None:
        assert_same_table(path, target, newest)
    assert clean_log(path, 0, is_ours) == cleaned


def assert_same_table(path: str, version: int, later: int) -> None:
    """The later version is what the other one was, the numbers of application ids included."""
    one, other = read_state(path, version), read_state(path, later)
    assert (one.metadata, one.protocol) == (other.metadata, other.protocol)
    assert one.files.keys() == other.files.keys()
    assert {app: txn["version"] for app, txn in one.txns.items()} == {
        app: txn["version"] for app, txn in other.txns.items()
    }
    commit = read_commit(path, later)
    assert commit is not None
    assert commit.operation == "RESTORE"


def test_an_application_gets_its_number_back(tmp_path: Path) -> None:
    """Delta skips a write of Spark's in silence if the table has its number: the second attempt would write nothing.

    Also one that had none before, and one whose commit changed no data.
    """
    path = table(tmp_path / "t", [THEIRS, OURS])
    clean_log(path, 0, is_ours)
    assert read_state(path, 2).txns[OURS]["version"] < 1
    path = table(tmp_path / "other", [OURS])
    txn = {"txn": {"appId": OURS, "version": 7}}
    (Path(path) / commit_name(1)).write_text(json.dumps({"commitInfo": {}}) + "\n" + json.dumps(txn), encoding="utf-8")
    assert clean_log(path, 0, is_ours).base == 2
    assert read_state(path, 2).txns[OURS]["version"] == 0


def test_taking_back_touches_no_file_that_stayed(tmp_path: Path) -> None:
    """Delta forbids a commit that removes and adds one file with one vector: readers that keep to it lose such a file.

    A process that wrote a checkpoint keeps entries that say `dataChange`; in the checkpoint, which has the version before,
    none does.
    """
    state: TableState | None = None
    for version in range(5):
        pq.write_table(pa.table({"v": [str(version)]}), tmp_path / f"{version}.parquet")
        change = PendingCommit(str(tmp_path), state)
        if state is None:
            fields = [{"name": "v", "type": "string", "nullable": True, "metadata": {}}]
            change.set_metadata(metadata_of(fields, {"delta.checkpointInterval": "3"}))
        size, stats = (tmp_path / f"{version}.parquet").stat().st_size, '{"numRecords":1}'
        entry = {"path": f"{version}.parquet", "size": size, "stats": stats, "modificationTime": 1}
        change.add([AddedFile({**entry, "partitionValues": {}})])
        state = change.commit(CommitInfo(OURS, version, "{}"), LoggedOperation("WRITE", {}, {}))
    assert clean_log(str(tmp_path), 3, is_ours).base == 5
    assert_same_table(str(tmp_path), 3, 5)
    actions = read_actions(Folder.at(str(tmp_path)), commit_name(5))
    touched = [action["path"] for kind, action in actions if kind in {"add", "remove"}]
    assert touched == ["4.parquet"]
    rows = DeltaTable(tmp_path).to_pyarrow_table()
    assert sorted(rows.column("v").to_pylist()) == ["0", "1", "2", "3"], "another reader has them all"


def test_a_note_that_can_not_be_written_leaves_nothing(tmp_path: Path) -> None:
    """The version is made by then. Its checksum file has all columns, and here they do not fit on the disk."""
    fields = [{"name": f"v{n}", "type": "string", "nullable": True, "metadata": {}} for n in range(200)]
    change = PendingCommit(str(tmp_path), None)
    change.set_metadata(metadata_of(fields, {}))
    state = change.commit(CommitInfo(OURS, 0, "{}"), LoggedOperation("WRITE", {}, {}))
    change = PendingCommit(str(tmp_path), state)
    change.add([AddedFile({"path": "1.parquet", "size": 1, "partitionValues": {}, "stats": '{"numRecords":1}'})])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            change.commit(CommitInfo(OURS, 1, "{}"), LoggedOperation("WRITE", {}, {}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(file.name[18:] for file in (tmp_path / "_delta_log").iterdir()) == ["00.crc", "00.json", "01.json"]


_CHECKPOINTING = """
import resource, signal, sys
from lakeproof.lake.delta.log.checkpoint import write_checkpoint
from lakeproof.lake.delta.log.state import read_state
from lakeproof.storage.folder import Folder

state = read_state(sys.argv[1], 1)
# The kernel ends the process as it writes one byte more.
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
write_checkpoint(Folder.at(state.path), state)
"""


def test_a_checkpoint_that_is_cut_short_is_not_there(tmp_path: Path) -> None:
    """Every reader believes the newest checkpoint that it finds, so nobody may find the beginning of one."""
    path = table(tmp_path / "t", [OURS, OURS])
    command = [sys.executable, "-c", _CHECKPOINTING, path]
    assert subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGXFSZ
    assert not list((tmp_path / "t" / "_delta_log").glob("*checkpoint*"))
    assert read_state(path, 1).files.keys() == {"0.parquet", "1.parquet"}


def test_a_checkpoint_names_the_files_that_went_within_a_week(tmp_path: Path) -> None:
    """Others' VACUUM keeps such files for readers of older versions; and a log must not remember all that ever went."""
    path = table(tmp_path / "t", [OURS, OURS, OURS])
    now_ms = int(time.time() * 1000)
    went = {"0.parquet": now_ms - 1000 * (TOMBSTONES_S - 60), "1.parquet": now_ms - 1000 * (TOMBSTONES_S + 60)}
    removals = [
        {"remove": {"path": name, "deletionTimestamp": time_ms, "dataChange": True}} for name, time_ms in went.items()
    ]
    with (Path(path) / commit_name(2)).open("a", encoding="utf-8") as file:
        file.writelines("\n" + json.dumps(removal) for removal in removals)
    write_checkpoint(Folder.at(path), read_state(path, 2))
    (checkpoint,) = (tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    named = {kind: [row["path"] for row in rows.column(kind).to_pylist() if row] for kind in ("add", "remove")}
    assert named == {"add": ["2.parquet"], "remove": ["0.parquet"]}


def test_a_checkpoint_has_a_domain_as_the_commit_has_it(tmp_path: Path) -> None:
    """As a table has one by which somebody clusters it; a log whose checkpoint can't be read holds the table."""
    path = table(tmp_path / "t", [OURS, OURS])
    domain = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["v"]]}', "removed": False}
    with (Path(path) / commit_name(1)).open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps({"domainMetadata": domain}))
    write_checkpoint(Folder.at(path), read_state(path, 1))
    (checkpoint,) = (Path(path) / "_delta_log").glob("*.checkpoint.parquet")
    actions = dict(read_checkpoint(Folder.at(path), checkpoint.name))
    assert actions["domainMetadata"] == domain


def test_what_is_restored_must_be_there(tmp_path: Path) -> None:
    """A file that a commit of ours has removed, and that somebody has deleted since."""
    path = table(tmp_path / "t", [OURS, OURS])
    removed = {"remove": {"path": "0.parquet", "dataChange": True}}
    with (Path(path) / commit_name(1)).open("a", encoding="utf-8") as file:
        file.write("\n" + json.dumps(removed))
    (Path(path) / "0.parquet").unlink()
    with pytest.raises(LakeError, match=r"version 0 needs the file 0\.parquet, which is gone"):
        clean_log(path, 0, is_ours)
    assert newest_version(path) == 1


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
    """Nobody has synced them. A checkpoint goes with all its parts, and a `_last_checkpoint` that is above or unreadable."""
    path = table(tmp_path / "t", [OURS] * 4)
    log = tmp_path / "t" / "_delta_log"
    names = [f"{2:020d}.checkpoint.{1:010d}.{2:010d}.parquet", f"{1:020d}.{3:020d}.compacted.json"]
    names += [f"{3:020d}.checkpoint.parquet"]
    for message, goes in ((b'{"version": 2}', True), (b"", True), (b"{}", True), (b'{"version": 1}', False)):
        for name in names:
            (log / name).touch()
        (log / "_last_checkpoint").write_bytes(message)
        assert clean_log(path, 1, is_ours).base == 4
        assert not any((log / name).exists() for name in names)
        assert (log / "_last_checkpoint").exists() is not goes
    kept = {int(file.name.lstrip(".")[:20]) for file in log.glob("*.crc")} | {
        int(file.name[1:21]) for file in log.glob(".*.crc")
    }
    assert kept == {0, 1}, "checksums above may be cut short, and those of Hadoop make a commit unreadable then"


class Cut(BaseException):
    """The end of the process."""


def cut_at(place: str) -> Callable[[str], None]:
    """The process ends there."""

    def passing(name: str) -> None:
        if name == place:
            raise Cut

    return passing


def test_taking_back_that_is_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """After each removed note in turn, before and after the commit; the log is always whole, and one commit is enough."""
    path = table(tmp_path / "t", [OURS] * 4)
    for place in (*["cycle.after_unnamed"] * 6, "cycle.before_taken_back", "cycle.after_taken_back"):
        with watched(cut_at(place)), pytest.raises(Cut):
            clean_log(path, 0, is_ours)
        assert table_files(path, 0, 0).newest
    assert clean_log(path, 0, is_ours).base == 4
    assert_same_table(path, 0, 4)


def test_a_removal_that_is_cut_short_is_gone_on_with(tmp_path: Path) -> None:
    """Unreadable commits go, and the process ends after each file in turn."""
    path = table(tmp_path / "t", [OURS, EMPTY, EMPTY, EMPTY])
    for _ in range(9):
        with watched(cut_at("cycle.after_unnamed")), pytest.raises(Cut):
            clean_log(path, 0, is_ours)
        assert table_files(path, 0, 0).newest
    clean_log(path, 0, is_ours)
    assert newest_version(path) == 0


def test_a_log_that_begins_again_has_no_file_of_before(tmp_path: Path) -> None:
    """A process that has kept the version below has none of its files either: what it commits on it, others can read."""
    path = table(tmp_path / "t", [OURS] * 3)
    before = read_state(path, 2)
    assert len(before.files) == 3
    (Path(path) / commit_name(1)).write_text("", encoding="utf-8")
    remove_unreadable(path, 2)
    begin_at(path, 3, before.metadata, "{}")
    change = PendingCommit(path, read_state(path, 3))
    change.remove_all()
    change.add([AddedFile({"path": "new.parquet", "size": 1, "partitionValues": {}, "stats": '{"numRecords":1}'})])
    assert list(change.commit(CommitInfo(OURS, 3, "{}"), LoggedOperation("WRITE", {}, {})).files) == ["new.parquet"]
    assert [file.path for file in table_files(path, 4).newest] == ["new.parquet"], "as the log has it"


def test_a_first_commit_is_removed_and_not_taken_back(tmp_path: Path) -> None:
    """Below it there is nothing that could be restored."""
    path = table(tmp_path / "t", [OURS])
    for _ in range(3):
        with watched(cut_at("cycle.after_unnamed")), pytest.raises(Cut):
            clean_log(path, NO_VERSION, is_ours)
    assert newest_version(path) == NO_VERSION


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


def test_a_vector_that_was_taken_back_need_not_be_there(tmp_path: Path) -> None:
    """The power went before it was on the disk; the commit that names it stays in the log, and no version that counts."""
    path = table(tmp_path / "t", [OURS])
    vector = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 36, "cardinality": 1}
    entry = {"path": "0.parquet", "size": 1, "dataChange": True}
    actions = [{"remove": entry}, {"add": {**entry, "deletionVector": vector}}, {"txn": {"appId": OURS, "version": 1}}]
    (Path(path) / commit_name(1)).write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    with pytest.raises(LakeError, match="it is missing"):
        sync_commits({path: 0}, open_store(tmp_path))
    assert clean_log(path, 0, is_ours).base == 2
    assert_same_table(path, 0, 2)
    assert sync_commits({path: 0}, open_store(tmp_path)) > 0
