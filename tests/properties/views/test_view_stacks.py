"""Views on views, four levels with two diamonds and an external table: after each refresh all are what PostgreSQL answers.

The tables are the simulated lake's of `tests/support/views/view_lake.py`; what goes wrong in a stack is in `tests/edges/`.
"""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from psycopg.sql import SQL, Identifier, Placeholder
from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.model import Config, ViewConfig
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.config.view_graph import with_inputs
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.names import TableName
from lakeproof.views.audit import audit_view
from lakeproof.views.open import open_views
from tests.support.servers.fix_postgres import Database
from tests.support.views.view_lake import SEED, TABLES, ViewLake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
# By name, written so that no view follows those that it reads: its SQL, and the views among what it reads.
STACK = {
    "roof": ("SELECT kind, count(*) AS n, sum(total) AS s FROM priced GROUP BY kind", ["priced"]),
    "priced": (
        "SELECT t.id, r.kind, t.qty * r.rate AS total FROM top t JOIN rates r ON r.kind = t.n",
        ["top"],
    ),
    "top": (
        "SELECT w.id, w.qty, g.n, g.s FROM wide w LEFT JOIN groups g ON g.grp = w.grp",
        ["wide", "groups"],
    ),
    "wide": ("SELECT f.id, f.grp, p.qty FROM few f JOIN parts p ON p.item = f.id", ["few"]),
    "groups": ("SELECT grp, count(*) AS n, sum(val) AS s FROM few GROUP BY grp", ["few"]),
    "few": ("SELECT id, grp, val FROM items WHERE val IS NOT NULL", []),
}


class Stack(ViewLake):
    """The lake with a stack of views and rates that somebody else writes."""

    def __init__(self, spark: SparkSession, folder: Path, seed: str) -> None:
        super().__init__(spark, folder, {}, seed)
        self.rates_path = str(folder / "rates")
        self.rates: dict[int, int] = {}
        views = {}
        for name, (sql, others) in STACK.items():
            (folder / f"{name}.sql").write_text(sql, encoding="utf-8")
            views[name] = ViewConfig(
                name=name,
                sql_file=folder / f"{name}.sql",
                reads={t: ("shop", TableName("public", t)) for t in TABLES if f" {t} " in f"{sql} "},
                views={other: other for other in others},
                external={"rates": ExternalTable("delta", self.rates_path)} if " rates " in sql else {},
            )
        self.config = Config(path=folder / "w.yaml", lake=self.config.lake, sources={}, views=views)

    def change_rates(self) -> None:
        """Write some rates anew, in a commit of somebody else's."""
        gone = [kind for kind in self.rates if self.chance.random() < 0.4]
        new = {kind: self.chance.randrange(100) for kind in self.chance.sample(range(8), 3)}
        kinds = ", ".join(map(str, [*gone, *new]))
        self.rates = {k: v for k, v in self.rates.items() if k not in gone} | new
        frame = self.spark.createDataFrame([*new.items()], "kind int, rate int")
        if not Path(self.rates_path).exists():
            frame.limit(0).write.format("delta").save(self.rates_path)
        self.spark.sql(f"DELETE FROM delta.`{self.rates_path}` WHERE kind IN ({kinds})")  # noqa: S608  its own numbers
        frame.write.format("delta").mode("append").save(self.rates_path)

    def give(self, database: Database) -> None:
        """Make PostgreSQL's tables what the lake's are."""
        with database.connect() as connection:
            for table, rows in [*self.rows.items(), ("rates", {k: (k, v) for k, v in self.rates.items()})]:
                connection.execute(SQL("TRUNCATE {}").format(Identifier(table)))
                for row in rows.values():
                    values = SQL(", ").join(Placeholder() for _ in row)
                    connection.execute(SQL("INSERT INTO {} VALUES ({})").format(Identifier(table), values), row)


def _bag(rows: DataFrame | list[tuple[Any, ...]]) -> Counter[Any]:
    collected = rows.collect() if isinstance(rows, DataFrame) else rows
    return Counter(str(tuple(int(v) if isinstance(v, Decimal) else v for v in row)) for row in collected)


def _create(database: Database) -> None:
    with database.connect() as connection:
        for table, (_, columns) in {**TABLES, "rates": ("kind", "kind int, rate int")}.items():
            columns_sql = columns.replace("string", "text")
            connection.execute(f"CREATE TABLE {table} ({columns_sql})".encode())
        for name in with_inputs({n: _shape(n) for n in STACK}, STACK):
            connection.execute(f"CREATE VIEW {name} AS {STACK[name][0]}".encode())


def _shape(name: str) -> ViewConfig:
    return ViewConfig(name=name, sql_file=Path(), reads={}, views={other: other for other in STACK[name][1]})


@pytest.mark.full
def test_a_stack_is_what_postgresql_answers(spark: SparkSession, tmp_path: Path, database: Database) -> None:
    """Random changes of tables and rates; all views of a refresh share one point, and go by the changes of their inputs."""
    lake = Stack(spark, tmp_path, f"stack {SEED}")
    _create(database)
    lake.change(*TABLES, rows=30)
    lake.change_rates()
    strategies: dict[str, set[str]] = {name: set() for name in STACK}
    for number in range(3):
        cuts = lake.refresh()
        when = f"round {number}, seed {SEED}"
        _check_point(cuts, when)
        for name, cut in cuts.items():
            strategies[name].add(cut.strategy)
        lake.give(database)
        opened = open_views(lake.spark.newSession(), lake.config, STACK)
        for name in STACK:
            expected = database.rows(SQL("SELECT * FROM {}").format(Identifier(name)))
            assert _bag(opened.view(name)) == _bag(expected), f"{name}, {when}"
        lake.change(*random.Random(f"{SEED} {number}").sample(sorted(TABLES), 1 + number % 2))
        if number != 1:
            lake.change_rates()
    for name in ("roof", "wide"):
        assert "full" in strategies[name]
        assert strategies[name] - {"full", "unchanged"}, (name, strategies, SEED)
    for name, view in lake.config.views.items():
        assert audit_view(spark.newSession(), lake.source.store, view).status == "equal", name


def _check_point(cuts: dict[str, ViewCut], when: str) -> None:
    assert len({cut.refresh for cut in cuts.values()}) == 1, when
    assert len({cut.sources["shop"] for cut in cuts.values()}) == 1, when
    for name, cut in cuts.items():
        read = {other: version.delta_version for other, version in cut.views.items()}
        assert read == {other: cuts[other].delta_version for other in STACK[name][1]}, (name, when)
