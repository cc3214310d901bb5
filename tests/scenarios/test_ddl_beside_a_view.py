"""Changes of a table's columns beside a view: it goes on from what has changed, or as a whole, and is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.refresh import refresh
from lakeproof.config.model import Config, ViewConfig
from lakeproof.lake.records.views.cuts import view_path
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

_VIEWS = {
    "few": "SELECT id, v FROM t WHERE v > 500",
    "sums": "SELECT grp, sum(v) AS total, count(*) AS n FROM t GROUP BY grp",
    "joined": "SELECT a.id, b.extra FROM t a JOIN u b ON b.id = a.grp",
    "reads_it": "SELECT id, CAST(wide AS bigint) AS w FROM t",
    # It names no column of the join: those are what both tables have.
    "natural": "SELECT id, v FROM t NATURAL JOIN u",
}
_READS = {name: ("t", "u") if name in ("joined", "natural") else ("t",) for name in _VIEWS}
# What comes between two refreshes, each with changed rows before and after it; and the views that are then computed as a
# whole. Delta reads no changes over a column that was renamed, widened or dropped.
_CHANGES: tuple[tuple[LiteralString, tuple[str, ...]], ...] = (
    ("ALTER TABLE t ADD extra int", ("natural",)),
    ("ALTER TABLE t RENAME note TO remark", tuple(_VIEWS)),
    ("ALTER TABLE t ALTER wide TYPE bigint", tuple(_VIEWS)),
    ("ALTER TABLE t DROP extra", tuple(_VIEWS)),
    # Every row of current is written anew with the value, so everything has changed.
    ("ALTER TABLE t ADD filled text DEFAULT 'x'", tuple(_VIEWS)),
)


@pytest.mark.full
def test_a_view_is_its_query_after_each_change_of_columns(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """Added, renamed, widened and dropped columns, with rows changed on both sides; after each the view is its query.

    What is computed as a whole says so; so is a view whose query means another column by the same words.
    """
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, grp int, v int, note text, wide int)",
        "INSERT INTO t SELECT i, i % 50, i, 'n' || i, i FROM generate_series(1, 2000) i",
        "CREATE TABLE u (id int PRIMARY KEY, extra int)",
        "INSERT INTO u SELECT i, 1 FROM generate_series(1, 500) i",
        "CREATE PUBLICATION pub FOR TABLE t, u",
    )
    views = {}
    for name, sql in _VIEWS.items():
        (tmp_path / f"{name}.sql").write_text(sql, encoding="utf-8")
        reads = {table: ("shop", TableName("public", table)) for table in _READS[name]}
        views[name] = ViewConfig(name=name, sql_file=tmp_path / f"{name}.sql", reads=reads)
    config = Config(
        path=tmp_path / "w.yaml",
        lake=str(tmp_path / "lake"),
        sources={"shop": database.source(buckets=16)},
        views=views,
    )
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    refresh(config, None, spark)
    whole = {}
    for number, (statement, _) in enumerate(_CHANGES, 1):
        _alter(database, number, statement)
        into_the_lake(config, spark)
        reports = {report.view: report for report in refresh(config, None, spark)}
        assert not any(report.stands_still for report in reports.values()), (statement, reports)
        for name in _VIEWS:
            _is_its_query(database, config, spark, name, statement)
        whole[statement] = {name: report.reason for name, report in reports.items() if report.strategy == "full"}
    assert {statement: set(views) for statement, views in whole.items()} == {
        statement: set(views) for statement, views in _CHANGES
    }, whole


def _alter(database: Database, number: int, statement: LiteralString) -> None:
    """Change rows before and after the statement."""
    database.execute(
        f"UPDATE t SET v = v + 1 WHERE id = {number}",  # noqa: S608  the test's own numbers
        f"DELETE FROM t WHERE id = {100 + number}",  # noqa: S608  the test's own numbers
        statement,
        f"UPDATE t SET v = v + 1000, grp = grp + 1 WHERE id IN ({200 + number}, {number})",  # noqa: S608  the test's own numbers
        f"INSERT INTO t (id, grp, v) VALUES ({3000 + number}, {number}, 700)",  # noqa: S608  the test's own numbers
    )


def _is_its_query(database: Database, config: Config, spark: SparkSession, name: str, when: str) -> None:
    stored = spark.newSession().read.format("delta").load(view_path(open_store(config.lake), name))
    rows = sorted(tuple(row) for row in stored.drop("_lp_key", "_lp_dup").collect())
    assert rows == sorted(tuple(row) for row in database.rows(_VIEWS[name])), (name, when)
