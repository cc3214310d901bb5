"""A view from what has changed: which rows that reads, when it computes the whole all the same, and what damage it heals."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.records.views.cuts import newest_view_cut, newest_view_cut_number, put_cut
from lakeproof.names import CycleNumber
from tests.support.servers.fix_postgres import Database
from tests.support.views.view_lake import SEED, TABLES, ShapeLake, ViewLake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
_BASE = 3_000
# Each leaves rows that some strategy meets as soon as it touches them.
_DAMAGES = {
    "projection": ("DELETE FROM {}", "UPDATE {} SET _lp_key = 'another'"),
    "sums": (
        "UPDATE {} SET n = n + 1",
        "INSERT INTO {} SELECT grp, s, c, n, _lp_key, _lp_dup + 1 FROM {}",
        "DELETE FROM {}",
    ),
    "having": ("UPDATE {} SET n = n - 1", "DELETE FROM {}"),
}


def _damage(lake: ShapeLake, view: str, statement: str) -> None:
    """Damage a view's table, and let its cut name the damaged version: no writer is seen."""
    store = lake.source.store
    place = store.url(f"views/{view}")
    lake.spark.sql(statement.replace("{}", f"delta.{quoted(place)}"))
    cut = newest_view_cut(store, view)
    assert cut is not None
    number = CycleNumber(int(newest_view_cut_number(store)) + 1)
    put_cut(store, replace(cut, number=number, delta_version=newest_version(place)))


@pytest.mark.full
def test_rows_read_are_those_of_the_change(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """Linear and added: the files with rows that changed, and of the view. By keys: a scan of the table for them too.

    Rows that the filter drops move the cut on without a commit; more changes than a fifth of the rows are not worth it.
    """
    lake = ShapeLake(spark, database, tmp_path, ["filter", "sums", "having", "count_alone"])
    lake.fill(_BASE)
    lake.change("parts", "kinds", rows=30)
    first = lake.refresh()
    # Spark counts the rows of a table from its log.
    assert all(cut.rows_read >= _BASE for name, cut in first.items() if name != "count_alone")
    lake.put((1, None, 1, "of a small file"), (2, 1, 2, None))
    dropped = lake.refresh()
    assert (dropped["filter"].strategy, dropped["filter"].inserted) == ("linear", 0)
    assert dropped["filter"].number > first["filter"].number
    assert dropped["filter"].delta_version == first["filter"].delta_version
    lake.put((1, 1, 9, None), (3, 1, 9, "b"))
    cuts = lake.refresh()
    lake.check("after two rows changed")
    ways = {"filter": "linear", "sums": "added", "having": "keys", "count_alone": "added"}
    assert {name: cut.strategy for name, cut in cuts.items()} == ways
    assert {name: cut.changed_rows for name, cut in cuts.items()} == dict.fromkeys(ways, 3)
    # The two small files of what changed, and the groups in the view.
    assert cuts["filter"].rows_read <= 4
    assert cuts["sums"].rows_read <= 4 + 16
    # No column is used: the files of what changed are not read at all.
    assert cuts["count_alone"].rows_read <= 1
    assert _BASE <= cuts["having"].rows_read <= _BASE + 4 + 4 + 16
    lake.put(*((key, 1, 1, None) for key in range(1000, 1000 + _BASE // 2)))
    whole = lake.refresh()["filter"]
    assert whole.strategy == "full"
    assert "all of it is cheaper" in (whole.reason or "")


@pytest.mark.full
def test_groups_after_the_year_9999(tmp_path: Path, spark: SparkSession) -> None:
    """Python has no such dates and times: they are compared as whole numbers."""
    days = """SELECT date_add(DATE'9999-12-28', grp) AS d, TIMESTAMP'9999-12-28 00:00:00' + make_dt_interval(grp) AS t,
        count(*) AS n FROM items GROUP BY 1, 2"""
    lake = ViewLake(spark, tmp_path, {"days": days}, str(SEED))
    lake.change(*TABLES, rows=30)
    lake.refresh()
    lake.change("items")
    assert lake.refresh()["days"].strategy == "added"
    frame = spark.read.format("delta").load(lake.source.store.url("views/days"))
    counts = {(day, time): n for day, time, n in frame.selectExpr("string(d)", "string(t)", "n").collect()}
    groups = Counter(row[1] for row in lake.rows["items"].values())
    assert sorted(counts.values()) == sorted(groups.values())
    assert {day for day, _ in counts if day is not None and day.startswith("+10000")}


@pytest.mark.full
def test_damage_is_healed(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """Where the changes meet it in that refresh, computed as a whole then; elsewhere by the next audit."""
    chance = random.Random(SEED)
    lake = ShapeLake(spark, database, tmp_path, sorted(_DAMAGES))
    lake.fill(600)
    lake.change(*TABLES, rows=30)
    lake.refresh()
    damages = {view: chance.choice(statements) for view, statements in _DAMAGES.items()}
    for view, statement in damages.items():
        _damage(lake, view, statement)
    # Every group has a row that goes and one that comes.
    lake.put(*((1000 + key, 0 if key % 7 == 6 else key % 7, 5, None) for key in range(40)))
    cuts = lake.refresh()
    lake.check(f"after {damages}")
    healed = {name: cut.strategy for name, cut in cuts.items() if name != "having"}
    assert healed == {"projection": "full", "sums": "full"}, (damages, cuts)
    _damage(lake, "projection", "INSERT INTO {} SELECT NULL, NULL, md5('NN'), -1")
    lake.put((2000, 1, 5, None))
    assert lake.refresh()["projection"].strategy == "linear"
    for name, definition in lake.config.views.items():
        lake.config.views[name] = definition.model_copy(update={"audit_s": 0})
    lake.put((2001, 1, 5, None))
    audited = lake.refresh()["projection"]
    lake.check("after an audit")
    assert (audited.strategy, audited.retracted > 0) == ("full", True)
