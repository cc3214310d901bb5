"""A Delta table's log after the version that the newest cut names: ours, a stranger's, or with a version missing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeproof.lake.cycle.upkeep.logs import hold_for_foreign_commits
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.files.needed import table_files
from lakeproof.lake.delta.log.commits import (
    DeltaCommit,
    ForeignCommitError,
    LogGapError,
    commit_name,
    find_commit,
    read_commit,
)
from lakeproof.lake.delta.log.state import read_state
from lakeproof.lake.records.held import TableHeldError, WayOut
from lakeproof.names import TableName


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


def _is_ours(commit: DeltaCommit) -> bool:
    return "us" in commit.txns


def test_what_changes_no_data_is_passed_over(tmp_path: Path) -> None:
    """The search goes up to our commit, or to the newest version if there is none."""
    path = _log(tmp_path, {0: "us", 1: "", 2: "", 3: "us"})
    before, ours = find_commit(path, 0, _is_ours)
    assert (before, None if ours is None else ours.version) == (2, 3)
    assert find_commit(path, 3, _is_ours) == (3, None)


def test_a_strangers_commit_is_refused(tmp_path: Path) -> None:
    """A foreign commit is refused even if a commit of ours is on top of it."""
    path = _log(tmp_path, {0: "us", 1: "them", 2: "us"})
    with pytest.raises(ForeignCommitError, match="version 1 was committed by someone else"):
        find_commit(path, 0, _is_ours)


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({0: "us", 2: "them"}, "has version 2 and not version 1"),
        ({0: "us", 1: "", 3: "us"}, "has version 3 and not version 2"),
        ({}, "ends at version -1, before version 0"),
    ],
)
def test_a_log_with_a_gap_is_refused(tmp_path: Path, versions: dict[int, str], message: str) -> None:
    """The missing version may have changed anything, so the log is not treated as one that ends there."""
    path = _log(tmp_path, versions)
    with pytest.raises(LogGapError, match=message):
        find_commit(path, 0, _is_ours)


@pytest.mark.parametrize("spelled", [(",", ":"), (", ", ": "), (" ,\t", " :  ")])
@pytest.mark.parametrize(
    ("action", "changes"),
    [
        ({"add": {"path": "f", "dataChange": True}}, True),
        ({"add": {"path": "f", "dataChange": False}}, False),
        ({"remove": {"path": "f", "dataChange": True}}, True),
        ({"remove": {"path": "f"}}, True),
        ({"metaData": {"id": "x"}}, True),
        ({"protocol": {"minReaderVersion": 1}}, True),
        ({"whatever comes": {}}, True),
        ({"txn": {"appId": "other", "version": 1}}, False),
        ({"commitInfo": {"operation": '"dataChange":true'}}, False),
    ],
)
def test_a_commit_means_the_same_however_it_is_spelled(
    tmp_path: Path, action: dict[str, object], *, changes: bool, spelled: tuple[str, str]
) -> None:
    """Blanks are allowed between JSON's parts; what is not known counts as a change of data."""
    path = _log(tmp_path, {0: "us"})
    (Path(path) / commit_name(1)).write_text(" " + json.dumps(action, separators=spelled) + " \n", encoding="utf-8")
    commit = read_commit(path, 1)
    assert commit is not None
    assert commit.changes_data is changes


@pytest.mark.parametrize("data", [b"", b"\n", b'{"add"', bytes(300), b"[]", b'{"add": 1}', b"\xff\xfe", b'{"txn": {}}'])
def test_a_commit_that_is_half_there_is_no_commit(tmp_path: Path, data: bytes) -> None:
    """Empty, cut short, zeros: what a power cut may leave."""
    path = _log(tmp_path, {0: "us"})
    (Path(path) / commit_name(1)).write_bytes(data)
    with pytest.raises(LogGapError, match="version 1 of its log is empty or damaged"):
        read_commit(path, 1)


def test_a_commit_that_a_cut_names_must_not_be_empty(tmp_path: Path) -> None:
    """Though a checkpoint has its version: Delta takes such a one for a commit of nothing. One cleaned away is none."""
    path = str(tmp_path)
    for number in range(2):
        write_deltalake(path, pa.table({"v": [number]}), mode="append")
    DeltaTable(path).create_checkpoint()
    assert DeltaRows.open(path, 1).rows == 2
    (tmp_path / commit_name(1)).write_bytes(b"")
    with pytest.raises(LogGapError, match="version 1 of its log is empty, and a cut names it"):
        DeltaRows.open(path, 1)
    (tmp_path / commit_name(1)).unlink()
    assert DeltaRows.open(path, 1).rows == 2


@pytest.mark.parametrize("damaged", ["00000000000000000001.json", "00000000000000000001.checkpoint.parquet"])
@pytest.mark.parametrize(
    ("layer", "way_out"), [("history", WayOut.RESTORE_LOG_OR_SNAPSHOT), ("current", WayOut.SNAPSHOT)]
)
def test_damage_inside_a_history_calls_for_a_person(tmp_path: Path, layer: str, way_out: WayOut, damaged: str) -> None:
    """A copy would begin its history again. So it is not made unasked, whichever file of its log is damaged."""
    path = tmp_path / "shop" / layer / "public" / "products"
    for number in range(3):
        write_deltalake(path, pa.table({"v": [number]}), mode="append")
        if damaged.startswith(f"{number:020d}.checkpoint"):
            DeltaTable(path).create_checkpoint()
    file = path / "_delta_log" / damaged
    file.write_bytes(file.read_bytes()[:-40])
    message = f"its {layer} table: _delta_log/{damaged} is "
    with (
        pytest.raises(TableHeldError, match=message) as held,
        hold_for_foreign_commits(TableName("public", "products")),
    ):
        read_state(str(path), 2)
    assert (held.value.way_out, held.value.detail["path"]) == (way_out, str(path))


HOSTILE = [
    "a\u2028b\u2029c\u0085d", 'quote"back\\slash', "two\nlines\r\n\t", "\\ud800", '{"add":{"path":"x"}}', "%2F%41 %",
    "é日本🙂", "\x00\x0b\x0c\x1c\x1d\x1e", "a" * 20_000, "", " ", "+", "#?&=;:@[]",
]  # fmt: skip


def test_the_log_is_read_as_others_read_it(tmp_path: Path) -> None:
    """Values in statistics, keys of partitions and names of files as anybody may have them; raw and escaped."""
    write_deltalake(str(tmp_path), pa.table({"id": [0], "v": ["first"]}))
    rng = random.Random(1)
    for version in range(1, 25):
        actions: list[dict[str, object]] = [{"commitInfo": {"operation": rng.choice(HOSTILE)}}]
        before = [file.path for file in table_files(str(tmp_path), version - 1).newest]
        gone = rng.choice(before) if len(before) > 3 else None
        if gone is not None:
            actions.append({"remove": {"path": quote(gone, safe="/"), "dataChange": True, "deletionTimestamp": 1}})
        for number in range(2):
            name = f"{version}-{number}-" + "".join(rng.sample(HOSTILE[:8], 2)).replace("\x00", "")
            stats = {"numRecords": 1, "minValues": {"v": rng.choice(HOSTILE)}, "maxValues": {"v": rng.choice(HOSTILE)}}
            file = {"path": quote(name, safe=rng.choice(["/", "/'()"])), "partitionValues": {}, "size": 7}
            actions.append({"add": {**file, "modificationTime": 1, "dataChange": True, "stats": json.dumps(stats)}})
        lines = [
            json.dumps(action, ensure_ascii=rng.random() < 0.5, separators=rng.choice([(",", ":"), (", ", ": ")]))
            for action in actions
        ]
        (tmp_path / commit_name(version)).write_text("\n".join(lines), encoding="utf-8", newline="")
        ours = {file.path for file in table_files(str(tmp_path), version).newest}
        theirs = DeltaTable(str(tmp_path)).get_add_actions().column("path").to_pylist()
        assert ours == {unquote(path) for path in theirs}, version
