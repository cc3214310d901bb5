"""A lake with one table that grows by a row with each cut, and two views of it; no server, no landing.

What a test does with it does not belong here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession

from lakeproof.commands import refresh as step
from lakeproof.config.model import Config, ViewConfig
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.rows.change import NetChange
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text
from lakeproof.views.open import open_views
from tests.core.lake.lake_document_samples import VERSION

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
        apply_change(self.spark, CommitRequest(path, NetChange(images=rows), commit, create=TableSpec()))
        position = CutTable(Lsn(1), Lsn(1), 0, self.cuts, replace(VERSION, table=T), ONE, ONE)
        self.cuts += 1
        cut = Cut(
            CycleNumber(self.cuts), CycleKind.APPLY, ONE, Lsn(self.cuts), None, {T: position}, 1, "0" * 64, now_text()
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
