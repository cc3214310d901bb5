"""The rows that came and went between two versions of a Delta table, by their places: which, and what is left to Spark."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakeproof.errors import InvariantError
from lakeproof.hidden_columns import CAME
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.committer import LoggedOperation, PendingCommit
from lakeproof.lake.delta.log.changed_places import ChangesUnavailableError, VersionChanges, changed_places
from lakeproof.lake.delta.log.cleaned import begin_at
from lakeproof.lake.delta.log.commits import Action, commit_name
from lakeproof.lake.delta.log.state import read_state


@pytest.fixture
def table(tmp_path: Path) -> str:
    """Two rows, three more, then one in place of all."""
    write_deltalake(tmp_path, pa.table({"id": [1, 2], "v": [1, 2]}))
    write_deltalake(tmp_path, pa.table({"id": [3, 4, 5], "v": [3, 4, 5]}), mode="append")
    write_deltalake(tmp_path, pa.table({"id": [6], "v": [6]}), mode="overwrite")
    _count_removed(
        tmp_path / commit_name(2), {**_stats(tmp_path / commit_name(0)), **_stats(tmp_path / commit_name(1))}
    )
    return str(tmp_path)


def _stats(commit: Path) -> dict[str, str]:
    actions = map(json.loads, commit.read_text(encoding="utf-8").splitlines())
    return {action["add"]["path"]: action["add"]["stats"] for action in actions if "add" in action}


def _count_removed(commit: Path, stats: dict[str, str]) -> None:
    """Let a commit say how many rows the removed files have, as Spark's do."""
    actions = [json.loads(line) for line in commit.read_text(encoding="utf-8").splitlines()]
    for removed in (action["remove"] for action in actions if "remove" in action):
        removed["stats"] = stats[removed["path"]]
    commit.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def _signed(rows: pa.Table | None) -> list[tuple[int, bool]]:
    assert rows is not None
    return sorted(zip(rows.column("id").to_pylist(), rows.column(CAME).to_pylist(), strict=True))


def _add_to_commit(table: str, version: int, action: dict[str, object]) -> None:
    with (Path(table) / commit_name(version)).open("a", encoding="utf-8") as commit:
        commit.write("\n" + json.dumps(action))


def test_the_net_of_what_came_and_went(table: str) -> None:
    """A file that came and went in between is in neither."""
    assert _signed(changed_places(table, 0, 1, ["id"], 9)) == [(3, True), (4, True), (5, True)]
    assert _signed(changed_places(table, 0, 2, ["id"], 9)) == [(1, False), (2, False), (6, True)]


def test_rows_of_no_column_are_counted(table: str) -> None:
    """A query may count rows alone."""
    rows = changed_places(table, 1, 2, [], 9)
    assert rows is not None
    assert rows.column_names == [CAME]
    assert sorted(rows.column(CAME).to_pylist()) == [False] * 5 + [True]


def test_more_rows_than_may_be_held(table: str) -> None:
    """The bound is the caller's."""
    assert changed_places(table, 0, 1, ["id"], 3) is not None
    assert changed_places(table, 0, 1, ["id"], 2) is None


def _metadata(table: str, **types: str) -> dict[str, object]:
    """The table's `metaData` action, with these types of columns."""
    first = (Path(table) / commit_name(0)).read_text(encoding="utf-8").splitlines()
    (action,) = (line for line in map(json.loads, first) if "metaData" in line)
    schema = json.loads(action["metaData"]["schemaString"])
    for field in schema["fields"]:
        field["type"] = types.get(field["name"], field["type"])
    action["metaData"]["schemaString"] = json.dumps(schema)
    return dict(action)


def test_a_log_that_begins_again_does_not_tell_what_went(table: str) -> None:
    """The commit with which it does names no file that goes: rows would come in a feed, or a view, and none would go."""
    begin_at(table, 3, cast("Action", _metadata(table)["metaData"]), "{}")
    assert read_state(table, 3).files == {}
    with pytest.raises(ChangesUnavailableError, match="its log begins again with version 3"):
        VersionChanges.between(table, 2, 3, ["id"])
    assert changed_places(table, 1, 3, ["id"], 9) is None
    write_deltalake(table, pa.table({"id": [7], "v": [7]}), mode="append")
    assert _signed(changed_places(table, 3, 4, ["id"], 9)) == [(7, True)]


def test_other_columns_in_between(table: str) -> None:
    """A column that was another one in files of before has no changes; the others have, whatever became of it."""
    _add_to_commit(table, 1, _metadata(table, v="string"))
    assert changed_places(table, 0, 2, ["id", "v"], 9) is None
    with pytest.raises(ChangesUnavailableError, match="its column v was another one"):
        VersionChanges.between(table, 0, 2, ["id", "v"])
    assert _signed(changed_places(table, 0, 2, ["id"], 9)) == [(1, False), (2, False), (6, True)]
    assert _signed(changed_places(table, 1, 2, ["id"], 9))[-1] == (6, True)


def test_files_put_together_bring_nothing(table: str) -> None:
    """Between two changes they hide that a row of before is one of now: it comes and goes, and that is no net change."""
    write_deltalake(table, pa.table({"id": [7], "v": [7]}), mode="append")
    delta = DeltaTable(table)
    delta.optimize.compact()
    assert delta.version() == 4
    assert _signed(changed_places(table, 2, 4, ["id"], 9)) == [(7, True)]
    delta.delete("id = 7")
    _count_removed(Path(table) / commit_name(5), _stats(Path(table) / commit_name(4)))
    assert _signed(changed_places(table, 4, 5, ["id"], 9)) == [(6, False), (6, True), (7, False)]
    assert changed_places(table, 2, 5, ["id"], 9) is None
    changes = VersionChanges.between(table, 2, 5, ["id"])
    assert not changes.is_net
    signs = Counter[int]()
    for key, came in _signed(changes.collect(["id"], 9)):
        signs[key] += 1 if came else -1
    assert not any(signs.values()), "7 came and went"


def test_what_the_committer_removes_is_counted(tmp_path: Path) -> None:
    """So who reads the changes need not open a file that went, to see how much it is."""
    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": [1, 2, 3]}))
    change = PendingCommit(path, read_state(path, 0))
    assert change.remove_all() == 3
    change.commit(None, LoggedOperation("DELETE", {}, {}))
    assert _signed(changed_places(path, 0, 1, ["id"], 3)) == [(1, False), (2, False), (3, False)]
    assert changed_places(path, 0, 1, ["id"], 2) is None


@pytest.mark.parametrize("damage", ["a feature", "a file", "a commit"])
def test_what_cannot_be_read_here(table: str, damage: str) -> None:
    """Delta's own reader may know more, or else says what is wrong."""
    if damage == "a feature":
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["another"], "writerFeatures": []}
        _add_to_commit(table, 1, {"protocol": protocol})
    elif damage == "a file":
        for file in Path(table).glob("*.parquet"):
            file.unlink()
    else:
        (Path(table) / commit_name(1)).unlink()
    assert changed_places(table, 0, 1, ["id"], 9) is None


def test_a_file_goes_with_its_last_row_and_not_before(tmp_path: Path) -> None:
    """A row that is marked already can't be marked again."""
    path = str(tmp_path)
    write_deltalake(path, pa.table({"id": [1, 2, 3]}))
    (file,) = read_state(path, 0).files
    for version, (places, left) in enumerate((([0, 2], [2]), ([1], list[int]())), start=1):
        change = PendingCommit(path, read_state(path, version - 1))
        assert change.mark({file: np.array(places)}) == len(places)
        change.commit(None, LoggedOperation("DELETE", {}, {}))
        rows = [row for batch in DeltaRows.open(path, version).batches() for row in batch.column("id").to_pylist()]
        assert rows == left
        assert bool(read_state(path, version).files) is bool(left)
        if left:
            with pytest.raises(InvariantError, match="a row would be deleted twice"):
                PendingCommit(path, read_state(path, version)).mark({file: np.array([0, 1])})
