"""The simulation of a power cut: what it says may be found is what POSIX allows, no less and no more."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from lakeproof.storage.local import LocalStore
from tests.support.faults.power_cut import PowerCut


def _found(cut: PowerCut, *, mark: str | None = None) -> set[tuple[tuple[str, bytes | None], ...]]:
    """Return every state, after a promise if one is named."""
    states = cut.states(random.Random(0), 10_000)
    return {tuple(sorted(state.tree().items())) for state in states if mark is None or mark in state.marks}


def test_what_was_synced_with_its_folder_is_there_and_nothing_else_is_sure(tmp_path: Path) -> None:
    """A file that was only written may be missing, empty, short, zeros or whole; its bytes may be synced, its name not."""
    (tmp_path / "old").write_bytes(b"old!")
    with PowerCut(tmp_path) as cut:
        (tmp_path / "new").write_bytes(b"abcd")
        cut.mark("written")
        with (tmp_path / "new").open("rb") as file:
            os.fsync(file)
        cut.mark("file")
        descriptor = os.open(tmp_path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        cut.mark("folder")
    old = ("old", b"old!")
    whole = {(("new", b"abcd"), old)}
    assert _found(cut, mark="folder") == whole
    assert _found(cut, mark="file") == {(old,), *whole}
    torn = {(("new", data), old) for data in (b"", bytes(4), b"ab")}
    assert _found(cut, mark="written") == {(old,), *torn, *whole}


def test_a_name_that_is_given_again_is_the_old_file_or_the_new(tmp_path: Path) -> None:
    """A rename without a sync of the new bytes may leave an empty file; what is removed may be back."""
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "gone").write_bytes(b"g")
    with PowerCut(tmp_path) as cut:
        (tmp_path / "b").write_bytes(b"twotwo")
        cut.look()
        (tmp_path / "b").replace(tmp_path / "a")
        (tmp_path / "gone").unlink()
    actual = [dict(tree) for tree in _found(cut)]
    assert {tree["a"] for tree in actual} == {b"one", b"", bytes(6), b"two", b"twotwo"}
    assert {tree.get("gone") for tree in actual} == {None, b"g"}
    assert any({"a", "b"} <= tree.keys() for tree in actual)


def test_a_folder_that_was_not_synced_into_its_parent_takes_what_is_in_it_along(tmp_path: Path) -> None:
    """The file is lost even if it and its own folder were synced."""
    with PowerCut(tmp_path) as cut:
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / "f").write_bytes(b"x")
        for place in (tmp_path / "d" / "f", tmp_path / "d"):
            descriptor = os.open(place, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        cut.mark("synced")
    assert _found(cut, mark="synced") == {(), (("d", None), ("d/f", b"x"))}


@pytest.mark.parametrize("kind", ["put", "put_if_absent", "create"])
def test_what_the_store_has_put_is_there_whenever_the_power_goes(tmp_path: Path, kind: str) -> None:
    """The lake is new, with its folders; before the put ends, the name exists wholly or not at all."""
    (tmp_path / "watched").mkdir()
    with PowerCut(tmp_path / "watched") as cut:
        store = LocalStore(tmp_path / "watched" / "new" / "lake")
        if kind == "create":
            file = store.create("a/b/c")
            file.write(b"contents")
            file.finish()
            store.sync_names(["a/b/c"])
        else:
            getattr(store, kind)("a/b/c", b"contents")
        cut.mark("put")
    assert len(cut.moments) > 5
    for state in cut.states(random.Random(0), 10_000):
        actual = state.tree().get("new/lake/a/b/c")
        assert actual == b"contents" or "put" not in state.marks
        assert actual in {None, b"contents"} or kind == "create"


def test_a_folder_that_a_killed_process_had_made_is_synced_by_the_next(tmp_path: Path) -> None:
    """The killed process may have died between mkdir and sync."""
    with PowerCut(tmp_path) as cut:
        (tmp_path / "new" / "lake" / "a").mkdir(parents=True)
        LocalStore(tmp_path / "new" / "lake").put("a/b", b"x")
        cut.mark("put")
    states = [state for state in cut.states(random.Random(0), 10_000) if state.marks]
    assert states
    assert all(state.tree().get("new/lake/a/b") == b"x" for state in states)


def test_a_state_is_built_as_chosen(tmp_path: Path) -> None:
    """Files and folders, into a new folder."""
    (tmp_path / "watched").mkdir()
    with PowerCut(tmp_path / "watched") as cut:
        LocalStore(tmp_path / "watched").put("a/b", b"x")
    *_, last = cut.states(random.Random(0), 10_000)
    assert (last.build(tmp_path / "built") / "a" / "b").read_bytes() == b"x"
    assert f"moment {last.moment.number} (a)" in str(last)
