"""The views of one refresh stand at one cut of each source, are opened together there, and are audited there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from lakeproof.commands import refresh as step
from lakeproof.config.model import Config, ViewConfig
from lakeproof.errors import LakeError, NoRoomError
from lakeproof.lake.delta.apply import apply
from lakeproof.lake.delta.commit import CommitInfo, CommitRequest, TableSpec
from lakeproof.lake.read.open import OpenedLake, open_lake
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.records.view_cuts import view_path
from lakeproof.lake.rows.change import NetChange
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.audit import audit_view
from lakeproof.views.open import open_views
from lakeproof.views.refresh import refresh_view
from tests.core.lake_document_samples import VERSION
from tests.damage import alter, data_files

pytestmark = pytest.mark.spark
T = TableName("public", "t")
ONE = Incarnation(1)


class Shop:
    """A lake with one table, which grows by a row with each cut, and two views of it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.lake = spark.newSession(), str(folder / "lake")
        self.source_lake = SourceLake.open(self.lake, "shop")
        self.views = {}
        for name in ("a", "b"):
            file = folder / f"{name}.sql"
            file.write_text("SELECT id, 'x' AS v FROM t", encoding="utf-8")
            self.views[name] = ViewConfig(name=name, sql_file=file, reads={"t": ("shop", T)})
        self.config = Config(path=folder / "w.yaml", lake=self.lake, sources={}, views=self.views)
        self.cuts = 0

    def cut(self) -> None:
        """Insert a row, and return the cut that has it."""
        rows = self.spark.createDataFrame([(self.cuts, None)], "id int, _lp_text string")
        commit = CommitInfo("test", self.cuts + 1, "{}")
        path = self.source_lake.url(self.source_lake.paths.current(T))
        apply(self.spark, CommitRequest(path, NetChange(images=rows), commit, create=TableSpec()))
        position = CutTable(Lsn(1), Lsn(1), 0, self.cuts, replace(VERSION, table=T), ONE, ONE)
        self.cuts += 1
        cut = Cut(
            CycleNumber(self.cuts), CycleKind.APPLY, ONE, Lsn(self.cuts), None, {T: position}, 1, "0" * 64, "2026-01-01"
        )
        write_cut(self.source_lake, cut)

    def refresh(self, view: str | None = None) -> None:
        """Refresh all views, or one."""
        step.refresh(self.config, view, self.spark)

    def opened(self) -> tuple[dict[str, int], list[int]]:
        """Open both views together: return the source's cut, and the number of rows of each."""
        position = open_views(self.spark, self.config, self.views)
        return {source: int(number) for source, number in position.sources.items()}, [
            position.view(v).count() for v in self.views
        ]


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
    monkeypatch.setattr(step, "refresh_view", cut_after)  # inside: a compaction between two views of one refresh
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


def test_a_damaged_view_is_found_by_its_audit(shop: Shop) -> None:
    """The audit reads the view's own cut, whatever came later; a view with a new definition is not audited."""

    def audited() -> tuple[str, str]:
        proof = audit_view(shop.spark.newSession(), shop.source_lake.store, shop.views["a"])
        return proof.status, proof.reason or ""

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
    assert audited()[0] == "blocked"


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
