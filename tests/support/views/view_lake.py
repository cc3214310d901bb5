"""A simulated lake with three tables of one source, whose rows a test changes at random, for tests of views.

What the views are does not belong here: `view_shapes` has queries, and tests have stacks of their own.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lakeproof.commands import refresh as step
from lakeproof.config.model import Config, ViewConfig
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.lake.read.spark.open import OpenedLake
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.store import newest_cut, write_cut
from lakeproof.lake.records.views.cuts import ViewCut, newest_view_cut
from lakeproof.lake.rows.change import NetChange, Removed
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.times import now_text
from tests.support.lake.bags import bag
from tests.support.servers.fix_postgres import Database
from tests.support.views.view_shapes import ONLY_SPARK, SHAPES

SEED = int(os.environ.get("LAKEPROOF_SEED", "1"))
ONE = Incarnation(1)
TABLES = {
    "items": ("id", "id int, grp int, val int, note string"),
    "parts": ("pid", "pid int, item int, qty int, kind int"),
    "kinds": ("kind", "kind int, label string"),
}


class ViewLake:
    """Three tables of one source, whose rows a test changes, and a view by each query of `shapes`."""

    def __init__(self, spark: SparkSession, folder: Path, shapes: Mapping[str, str], seed: str) -> None:
        self.spark, self.chance = spark.newSession(), random.Random(seed)
        self.source = SourceLake.open(str(folder / "lake"), "shop")
        self.rows: dict[str, dict[int, tuple[Any, ...]]] = {table: {} for table in TABLES}
        self.versions = dict.fromkeys(TABLES, -1)
        self.cuts = 0
        views = {}
        for name, sql in shapes.items():
            (folder / f"{name}.sql").write_text(sql, encoding="utf-8")
            reads = {t: ("shop", TableName("public", t)) for t in TABLES}
            views[name] = ViewConfig(name=name, sql_file=folder / f"{name}.sql", reads=reads)
        self.config = Config(path=folder / "w.yaml", lake=str(folder / "lake"), sources={}, views=views)

    def change(self, *tables: str, rows: int = 6) -> None:
        """Change some rows of these tables: new, gone, other values, other groups; then put a cut."""
        for table in tables:
            old = self.rows[table]
            few = range(6) if table == "kinds" else range(1, 40)
            keys = self.chance.sample(few, min(rows, len(few)))
            new = {key: self._row(table, key) for key in keys if self.chance.random() < 0.7}
            self._commit(table, [key for key in keys if key in old], new)
            self.rows[table] = {k: v for k, v in old.items() if k not in keys} | new
        self.cut()

    def cut(self) -> None:
        """Put a cut of the tables as they are."""
        self.cuts += 1
        state = {TableName("public", t): self._cut_table(t) for t in TABLES}
        cut = Cut(CycleNumber(self.cuts), CycleKind.APPLY, ONE, Lsn(self.cuts), None, state, 1, "0" * 64, now_text())
        write_cut(self.source, cut)

    def _row(self, table: str, key: int) -> tuple[Any, ...]:
        small = [None, *range(6)]
        if table == "items":
            note = self.chance.choice([None, "", "a", "banana", "é"])
            return key, self.chance.choice(small), self.chance.choice([*small, 9]), note
        if table == "parts":
            return key, self.chance.choice([None, *range(1, 40)]), self.chance.choice(small), self.chance.choice(small)
        return key, self.chance.choice(["x", "y", None])

    def _commit(self, table: str, gone: list[int], new: dict[int, tuple[Any, ...]]) -> None:
        key, columns = TABLES[table]
        frame = self.spark.createDataFrame([(*row, None) for row in new.values()], f"{columns}, _lp_text string")
        deletes = self.spark.createDataFrame([(k,) for k in gone], f"{key} int")
        self.versions[table] += 1
        info = CommitInfo("test", self.versions[table] + 1, "{}")
        path = self.source.url(self.source.paths.current(TableName("public", table)))
        created = TableSpec()
        if self.versions[table] == 0:
            request = CommitRequest(path, NetChange(images=frame), info, create=created)
        else:
            request = CommitRequest(path, NetChange(Removed((key,), deletes), frame), info, create=created)
        self.versions[table] = apply_change(self.spark, request).version

    def _cut_table(self, table: str) -> CutTable:
        key, columns = TABLES[table]
        types = {"int": (Oid(23), "int4"), "string": (Oid(25), "text")}
        named = []
        for number, column in enumerate(columns.split(", "), 1):
            name, kind = column.split()
            oid, own = types[kind]
            named.append(Column(name, oid, -1, own, own, number, identity=name == key))
        version = SchemaVersion(TableName("public", table), Oid(16384), Identity.DEFAULT, tuple(named), (key,))
        return CutTable(Lsn(1), Lsn(1), 0, self.versions[table], version, ONE, ONE)

    def refresh(self) -> dict[str, ViewCut]:
        """Refresh all views, and return their cuts."""
        step.refresh(self.config, None, self.spark)
        cuts = {name: newest_view_cut(self.source.store, name) for name in self.config.views}
        return {name: cut for name, cut in cuts.items() if cut is not None}


class ShapeLake(ViewLake):
    """The lake with a view of each shape, whose rows are compared with Spark's and PostgreSQL's answers."""

    def __init__(self, spark: SparkSession, database: Database, folder: Path, shapes: list[str]) -> None:
        super().__init__(spark, folder, {name: SHAPES[name][1] for name in shapes}, str(SEED))
        self.database = database

    def fill(self, rows: int) -> None:
        """Put as many rows more into `items`, with keys that `change` leaves alone."""
        new = {key: self._row("items", key) for key in range(1000, 1000 + rows)}
        self._commit("items", [], new)
        self.rows["items"] |= new

    def put(self, *rows: tuple[Any, ...]) -> None:
        """Put these rows into `items`; then put a cut."""
        new = {row[0]: row for row in rows}
        self._commit("items", [key for key in new if key in self.rows["items"]], new)
        self.rows["items"] |= new
        self.cut()

    def check(self, when: str) -> None:
        """Compare each view's table with its query over the tables at the newest cut."""
        session = self.spark.newSession()
        cut = newest_cut(self.source)
        assert cut is not None
        opened = OpenedLake(session, self.config.location, {"shop": cut})
        for table in TABLES:
            opened.table("shop", TableName("public", table)).createOrReplaceTempView(table)
        answers = self._answers()
        for name, view in self.config.views.items():
            path = self.source.store.url(f"views/{name}")
            stored = self.spark.read.format("delta").load(path).drop("_lp_key", "_lp_dup").collect()
            assert bag(stored) == bag(session.sql(view.sql()).collect()), f"{name} {when}, seed {SEED}"
            if name in answers:
                assert bag(stored) == answers[name], f"{name} {when}, seed {SEED}: PostgreSQL answers otherwise"

    def _answers(self) -> dict[str, Counter[tuple[str, ...]]]:
        """Return what PostgreSQL answers over the same rows."""
        with self.database.connect() as connection, connection.cursor() as cursor:
            for table, (_, columns) in TABLES.items():
                ddl = columns.replace(" string", ' text COLLATE "C"')
                cursor.execute(f"CREATE TEMP TABLE {table} ({ddl})".encode())
                places = ", ".join(["%s"] * len(columns.split(", ")))
                insert = f"INSERT INTO {table} VALUES ({places})"  # noqa: S608  the test's own tables
                cursor.executemany(insert.encode(), list(self.rows[table].values()))
            names = [name for name in self.config.views if name not in ONLY_SPARK]
            return {name: bag(cursor.execute(SHAPES[name][1].encode()).fetchall()) for name in names}
