"""A Delta table that was moved away and recreated while older cuts are kept: none of its files may go for their sake."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from lakeproof.errors import LakeError
from lakeproof.lake.delta.files.needed import table_files, unneeded
from lakeproof.lake.records.views.cuts import ViewCut, put_cut, view_path
from lakeproof.names import CycleNumber
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.views.drift import is_settled
from lakeproof.views.maintain import is_view_fragmented, kept_cuts, unneeded_view_files

NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)
VIEW, HOUR_S = "revenue", 3600.0


def _table(folder: Path, versions: int) -> None:
    """A Delta table of one file per version."""
    (folder / "_delta_log").mkdir(parents=True)
    for number in range(versions):
        added = json.dumps({"add": {"path": f"{number}.parquet", "size": 1, "dataChange": True}})
        (folder / "_delta_log" / f"{number:020d}.json").write_text(added, encoding="utf-8")
        (folder / f"{number}.parquet").touch()


def _cut(store: Store, number: int, version: int, ago_s: float) -> ViewCut:
    made_at = (NOW - timedelta(seconds=ago_s)).isoformat()
    cut = ViewCut(
        CycleNumber(number),
        VIEW,
        version,
        "0" * 64,
        {"shop": CycleNumber(number)},
        1,
        0,
        made_at,
        number,
        "full",
        None,
        None,
        0,
        made_at,
        {},
        None,
    )
    put_cut(store, cut)
    return cut


def test_a_log_that_ends_before_a_version_needs_is_refused(tmp_path: Path) -> None:
    """Restored from an older backup, for one: nothing would be needed from that version on, so all of it would go."""
    _table(tmp_path / "t", 3)
    path = str(tmp_path / "t")
    assert list(unneeded(path, table_files(path, 2))) == []
    with pytest.raises(LakeError, match="its log ends at version 2, before version 3"):
        table_files(path, 3)


def test_a_view_whose_table_is_recreated_keeps_all_its_files(tmp_path: Path) -> None:
    """`refresh` says to move the table away if its columns are others; until it has run there is nothing to keep."""
    store = open_store(tmp_path)
    first, second = _cut(store, 1, 7, 1800), _cut(store, 2, 8, 1700)
    kept = kept_cuts(store, {VIEW: HOUR_S}, NOW)
    assert kept.newest == {VIEW: second}
    assert kept.oldest == {VIEW: first}
    assert not is_settled(store, second)
    assert not is_view_fragmented(store, second, 1)
    assert list(unneeded_view_files(store, kept, {})) == []

    _table(Path(view_path(store, VIEW)), 2)
    assert list(unneeded_view_files(store, kept, {})) == [], "the refresh was killed before its cut"
    recreated = _cut(store, 3, 0, 600)
    kept = kept_cuts(store, {VIEW: HOUR_S}, NOW)
    assert (kept.old, kept.oldest) == ([], {VIEW: recreated})
    assert list(unneeded_view_files(store, kept, {})) == []
    later = kept_cuts(store, {VIEW: HOUR_S}, NOW + timedelta(days=1))
    assert (later.old[0], later.newest) == (LakePaths.view_cut(first.number), {VIEW: recreated})


def test_a_cut_that_is_kept_keeps_those_after_it(tmp_path: Path) -> None:
    """A clock that was put back makes a later cut look old; what an earlier one names must stay readable."""
    store = open_store(tmp_path)
    result = [_cut(store, number, number, ago_s) for number, ago_s in ((1, 9000), (2, 60), (3, 8000), (4, 30))]
    kept = kept_cuts(store, {VIEW: HOUR_S}, NOW)
    assert (kept.old, kept.oldest, kept.newest) == ([], {VIEW: result[0]}, {VIEW: result[3]})
