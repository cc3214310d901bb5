"""The views of one refresh stand at one cut of each source, are opened together there, and are audited there."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands import refresh as refreshing
from lakeproof.errors import LakeError, NoRoomError
from lakeproof.lake.read.spark.open import OpenedLake, open_lake
from lakeproof.lake.records.views.cuts import newest_view_cut, one_refresh, view_path
from lakeproof.names import CycleNumber
from lakeproof.storage.paths import LakePaths
from lakeproof.views import round as view_round
from lakeproof.views.audit import audit_view
from lakeproof.views.refresh import refresh_view
from tests.support.faults.damage import alter, data_files
from tests.support.views.view_shop import Shop, T

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    """Return a lake with one cut."""
    result = Shop(spark, tmp_path)
    result.cut()
    return result


def test_views_of_one_refresh_are_of_one_cut(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compactions meanwhile don't matter; the views are opened together if one refresh wrote all of them."""

    def cut_after(*args: Any, **kwargs: Any) -> Any:
        result = refresh_view(*args, **kwargs)
        if shop.cuts == 1:
            shop.cut()
        return result

    with pytest.raises(LakeError, match="no refresh that is kept"):
        shop.opened()
    shop.config = shop.config.model_copy(update={"views_at_once": 1})
    monkeypatch.setattr(view_round, "refresh_view", cut_after)  # inside: a compaction between two views of one refresh
    shop.refresh()
    assert shop.opened() == ({"shop": 1}, [1, 1])
    shop.refresh("a")
    assert shop.opened() == ({"shop": 1}, [1, 1]), "one view alone has gone on"
    shop.refresh()
    assert shop.opened() == ({"shop": 2}, [2, 2])


def test_an_opened_lake_gives_its_views_at_its_cuts(shop: Shop) -> None:
    """A view has its rows at just that cut, whatever came later, and no hidden column; otherwise the error has a remedy."""

    def opened(position: int) -> OpenedLake:
        return open_lake(shop.spark, shop.lake, position)

    with pytest.raises(LakeError, match="no view of this name; run `lakeproof refresh`"):
        opened(1).view("a")
    shop.refresh()
    for number in (2, 3):
        shop.cut()
        if number == 3:
            shop.refresh()
    assert opened(1).views() == ["a", "b"]
    assert {position: sorted(map(tuple, opened(position).view("a").collect())) for position in (1, 3)} == {
        1: [(0, "x")],
        3: [(0, "x"), (1, "x"), (2, "x")],
    }
    assert opened(3).view("a").count() == opened(3).table("shop", T).count()
    with pytest.raises(LakeError, match=r"not computed at the opened cuts \(shop 2\).*open the lake at=\{'shop': 1\}"):
        opened(2).view("a")
    with pytest.raises(LakeError, match=r"no view of this name; name one of \['a', 'b'\]"):
        opened(3).view("../shop")
    shutil.rmtree(view_path(shop.source_lake.store, "a"))
    shop.cut()
    shop.refresh()
    assert opened(4).view("a").count() == 4
    for number in (1, 3):
        with pytest.raises(LakeError, match="its table of before was moved away"):
            opened(number).view("a")
    assert opened(3).view("b").count() == 3


def test_a_damaged_view_is_found_by_its_audit(shop: Shop) -> None:
    """The audit reads the view's own cut, whatever came later; an edit of the file is no matter of its."""

    def audited() -> tuple[str, str]:
        return _audited(shop)

    assert audited() == ("blocked", "it was never refreshed")
    shop.refresh()
    shop.cut()
    assert audited() == ("equal", "")
    lake = shop.source_lake
    document = lake.store.get(lake.paths.cut(CycleNumber(1)))
    lake.store.delete(lake.paths.cut(CycleNumber(1)))
    not_kept = "cut 1 of shop, from which it was computed, is not kept any more; refresh it"
    assert audited() == ("blocked", not_kept)
    lake.store.put(lake.paths.cut(CycleNumber(1)), document)
    (file,) = data_files(Path(view_path(shop.source_lake.store, "a")))

    def wrong(rows: pa.Table) -> pa.Table:
        return rows.set_column(rows.column_names.index("v"), "v", pc.binary_replace_slice(rows.column("v"), 0, 1, "y"))

    alter(file, wrong)
    status, reason = audited()
    assert status == "differs"
    assert "it has 1 row too many by its query, and lacks 1 row" in reason
    shop.views["a"].sql_file.write_text("SELECT id, 'z' AS v FROM t", encoding="utf-8")
    assert audited() == (status, reason), "it is held to the definition that is applied"
    shop.refresh()
    assert audited()[0] == "differs", "nothing has changed for a refresh of what has changed"
    refreshing.refresh(shop.config, None, shop.spark, whole=True)
    assert audited() == ("equal", "")


def test_an_audit_waits_only_for_a_refresh_that_may_be_between_commit_and_cut(shop: Shop) -> None:
    """Any other one touches nothing that the audit reads; without one, a commit that no cut names is somebody else's."""
    store = shop.source_lake.store
    shop.refresh()
    first = newest_view_cut(store, "a")
    shop.cut()
    with one_refresh(store):
        assert _audited(shop) == ("equal", "")
    shop.refresh()
    for key in store.list(LakePaths.view_cuts())[2:]:
        store.delete(key)
    assert newest_view_cut(store, "a") == first
    with one_refresh(store):
        status, reason = _audited(shop)
        assert (status, reason.partition(":")[0]) == (
            "blocked",
            "another process is refreshing or maintaining views of this lake",
        )
    assert _audited(shop) == ("differs", "its table was written or moved since its newest cut; refresh it")


def _audited(shop: Shop) -> tuple[str, str]:
    proof = audit_view(shop.spark.newSession(), shop.source_lake.store, shop.views["a"])
    return proof.status, proof.reason or ""


@pytest.mark.full
def test_a_view_whose_log_is_damaged_is_not_compared(shop: Shop) -> None:
    """The reason and the remedy are reported, and the other view is audited."""
    shop.refresh()
    path = Path(view_path(shop.source_lake.store, "a"))
    (commit,) = (path / "_delta_log").glob("*.json")
    commit.write_bytes(commit.read_bytes()[:-20])
    for name, expected in (("a", "blocked"), ("b", "equal")):
        proof = audit_view(shop.spark.newSession(), shop.source_lake.store, shop.views[name])
        assert proof.status == expected
        assert name == "b" or f"move {path} away and refresh it" in (proof.reason or "")
    shutil.rmtree(path)
    shop.refresh("a")
    assert audit_view(shop.spark.newSession(), shop.source_lake.store, shop.views["a"]).status == "equal"


@pytest.mark.full
@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_is_not_taken_for_a_damaged_view(shop: Shop) -> None:
    """The error names the full disk, without advice to move the view's table away; the next run with room succeeds."""
    disk = Path(shop.lake) / "views"
    disk.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        shop.refresh()
        shop.cut()
        ballast = disk / "ballast"
        ballast.write_bytes(b"\0" * (os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        with pytest.raises(NoRoomError, match="no space left"):
            shop.refresh()
        ballast.unlink()
        shop.refresh()
        assert shop.opened() == ({"shop": 2}, [2, 2])
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
