"""Times the refresh of views from what has changed, beside the whole query, on a large table with few changes.

The results are checked by `tests/properties/views/test_view_shapes.py`. The lake is made by hand: two tables at cuts,
without a server. Each view is refreshed in both ways, one after the other, after as many changes each.

    python -m bench.lake.views [--rows 10000000] [--changes 1000] [--rounds 2] [--memory 4g]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.spark import SparkConfig
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.rows.change import NetChange, Removed
from lakeproof.lake.spark.session import build_session
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text
from lakeproof.views.round import ViewReport

_ONE = Incarnation(1)
_COLUMNS = {
    "orders": (("id", "int8"), ("customer", "int8"), ("grp", "int4"), ("amount", "int8"), ("note", "text")),
    "customers": (("id", "int8"), ("region", "int4"), ("name", "text")),
}
_TYPES = {"int8": (20, "bigint"), "int4": (23, "int"), "text": (25, "string")}
_VIEWS = {
    "filter_project": "SELECT id, amount * 2 AS double, note FROM orders WHERE amount % 10 < 8",
    "sums": "SELECT grp, count(*) AS n, sum(amount) AS total, count(amount) AS amounts FROM orders GROUP BY grp",
    "most": "SELECT grp, count(*) AS n, sum(amount) AS total, max(amount) AS most FROM orders GROUP BY grp",
    "join": "SELECT o.id, o.amount, c.name FROM orders o JOIN customers c ON c.id = o.customer",
}


@dataclass
class _Lake:
    spark: SparkSession
    folder: Path
    rows: int
    versions: dict[str, int] = field(default_factory=dict)
    cuts: int = 0

    @property
    def source(self) -> SourceLake:
        return SourceLake.open(str(self.folder / "lake"), "shop")

    def frame(self, table: str, ids: DataFrame, version: int) -> DataFrame:
        """Return rows with these ids; another version has other values."""
        key = F.col("id")
        mixed = F.abs(F.xxhash64(key, F.lit(version)))
        if table == "orders":
            columns = [
                key,
                (mixed % (self.rows // 10)).alias("customer"),
                (mixed % 100_000).cast("int").alias("grp"),
                (mixed % 100_000).alias("amount"),
                F.md5(mixed.cast("string")).alias("note"),
            ]
        else:
            columns = [key, (mixed % 50).cast("int").alias("region"), F.md5(key.cast("string")).alias("name")]
        return ids.select(*columns, F.lit(None).cast("string").alias("_lp_text"))

    def create(self) -> None:
        for table, rows in (("orders", self.rows), ("customers", self.rows // 10)):
            self._commit(table, NetChange(images=self.frame(table, self.spark.range(0, rows, 1, 8), 0)))
        self.cut()

    def change(self, rows: int) -> None:
        """Replace some rows of `orders`, all over the table."""
        self.cuts += 1
        step = self.rows // rows
        ids = self.spark.range(self.cuts % step, self.rows, step, 1)
        self.cuts -= 1
        images = self.frame("orders", ids, self.cuts + 1)
        self._commit("orders", NetChange(Removed(("id",), ids.select("id")), images))
        self.cut()

    def _commit(self, table: str, change: NetChange[DataFrame]) -> None:
        info = CommitInfo("bench", self.cuts + 1, "{}")
        path = self.source.url(self.source.paths.current(TableName("public", table)))
        self.versions[table] = apply_change(self.spark, CommitRequest(path, change, info, create=TableSpec())).version

    def cut(self) -> None:
        self.cuts += 1
        tables = {TableName("public", name): self._cut_table(name) for name in self.versions}
        cut = Cut(CycleNumber(self.cuts), CycleKind.APPLY, _ONE, Lsn(self.cuts), None, tables, 1, "0" * 64, now_text())
        write_cut(self.source, cut)

    def _cut_table(self, table: str) -> CutTable:
        columns = tuple(
            Column(name, Oid(_TYPES[kind][0]), -1, kind, kind, number, identity=name == "id")
            for number, (name, kind) in enumerate(_COLUMNS[table], 1)
        )
        version = SchemaVersion(TableName("public", table), Oid(16384), Identity.DEFAULT, columns, ("id",))
        return CutTable(Lsn(1), Lsn(1), 0, self.versions[table], version, _ONE, _ONE)


def main() -> None:
    """Print, for each view, the seconds and the rows read of both ways, and their ratio; at the end the peak of memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", default="4g")
    options = parser.parse_args()
    spark = build_session(SparkConfig(driver_memory=options.memory), "bench views")
    with tempfile.TemporaryDirectory(prefix="lakeproof-bench-") as folder:
        lake = _Lake(spark, Path(folder), options.rows)
        lake.create()
        print(
            f"{options.rows:,} orders, {options.rows // 10:,} customers, {options.changes:,} changes before each refresh"
        )
        for name, sql in _VIEWS.items():
            (Path(folder) / f"{name}.sql").write_text(sql, encoding="utf-8")
            seconds: dict[str, list[float]] = {"auto": [], "full": []}
            reports = dict[str, ViewReport]()
            first = _refresh(lake, name, "full")[0]
            for _ in range(options.rounds):
                for way, taken in seconds.items():
                    lake.change(options.changes)
                    took, reports[way] = _refresh(lake, name, way)
                    taken.append(took)
            auto, full = (statistics.median(taken) for taken in seconds.values())
            rows = [f"{reports[way].rows_read or 0:,}" for way in ("full", "auto")]
            print(
                f"{name:<15} first {first:6.1f} s   whole {full:6.1f} s, {rows[0]} rows read   "
                f"{reports['auto'].strategy:<7} {auto:6.2f} s, {rows[1]} rows read   {full / auto:5.1f} x",
                flush=True,
            )
    print(f"most memory of the JVM {_peak_mib(spark):,} MiB, its heap {options.memory} at the most")
    spark.stop()


def _peak_mib(spark: SparkSession) -> int:
    """Return the most memory that the JVM had at a time, as Linux counts it."""
    pid = cast("Any", spark)._jvm.java.lang.ProcessHandle.current().pid()  # noqa: SLF001  no public name for the JVM
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:"))


def _refresh(lake: _Lake, name: str, way: str) -> tuple[float, ViewReport]:
    reads = {table: ("shop", TableName("public", table)) for table in _COLUMNS}
    view = ViewConfig.model_validate(
        {"name": name, "sql_file": lake.folder / f"{name}.sql", "reads": reads, "refresh": way}
    )
    config = Config(path=lake.folder / "w.yaml", lake=str(lake.folder / "lake"), sources={}, views={name: view})
    started = time.monotonic()
    (report,) = refresh(config, None, lake.spark)
    if report.stands_still is not None:
        raise SystemExit(report.stands_still)
    return time.monotonic() - started, report


if __name__ == "__main__":
    main()
