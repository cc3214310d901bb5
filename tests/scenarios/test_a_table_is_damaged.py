"""Somebody damages a table's files or its log: the other goes on, everything says which it is, and a copy brings it back.

Seen once: one damaged log ended every maintenance of its source, and the sizes of all its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier, Literal
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import lake_sizes, maintain, maintenance_plan
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.events import silent
from lakeproof.failpoints import watched
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.names import TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE, into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

GOOD = TableName("public", "good")


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern))


def _log_cut_short(folder: Path) -> None:
    place = _newest(folder, "_delta_log/*.json")
    place.write_bytes(place.read_bytes()[:-20])


def _log_emptied(folder: Path) -> None:
    """Delta reads such a commit as one of nothing."""
    _newest(folder, "_delta_log/*.json").write_bytes(b"")


def _log_gone(folder: Path) -> None:
    for place in (folder / "_delta_log").glob("*"):
        if place.is_file():
            place.unlink()


def _data_gone(folder: Path) -> None:
    for place in folder.rglob("*.parquet"):
        if "_delta_log" not in place.parts:
            place.unlink()


_DAMAGES: dict[str, Callable[[Path], None]] = {
    "log_cut_short": _log_cut_short,
    "log_emptied": _log_emptied,
    "log_gone": _log_gone,
    "data_gone": _data_gone,
}
DAMAGED = {TableName("public", f"{how}_{layer}"): (how, layer) for how in _DAMAGES for layer in ("current", "history")}
# Logs that are gone are in the test below.
SOME = [TableName("public", name) for name in ("log_cut_short_history", "log_emptied_current", "data_gone_history")]


def _changed(database: Database, tables: Iterable[TableName], value: str, row: int) -> None:
    for table in tables:
        statement = SQL("UPDATE {} SET v = {} WHERE id < {}")
        database.execute(statement.format(Identifier(table.name), Literal(value), Literal(row)))


@pytest.mark.full
@pytest.mark.parametrize("names", [SOME, pytest.param(list(DAMAGED), marks=pytest.mark.full)], ids=["some", "all"])
def test_the_others_are_kept_up_and_copies_bring_all_back(
    database: Database, tmp_path: Path, spark: SparkSession, names: list[TableName]
) -> None:
    """While the damaged ones are idle, then at their next change, then copied anew: equal at the end."""
    damages = {name: DAMAGED[name] for name in names}
    tables = [GOOD, *damages]
    for table in tables:
        name = Identifier(table.name)
        database.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, v text)").format(name))
        database.execute(SQL("INSERT INTO {} SELECT i, 'v' FROM generate_series(1, 10) i").format(name))
    database.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    _changed(database, tables, "w", 4)
    into_the_lake(config, spark)
    lake = SourceLake.open(config.lake, "shop")
    for table, (how, layer) in damages.items():
        _DAMAGES[how](Path(lake.url(lake.paths.current(table) if layer == "current" else lake.paths.history(table))))
    spark.catalog.clearCache()
    emptied, existing = TableName("public", "log_emptied_current"), read_lake(config).cut("shop").number
    with pytest.raises(LakeError, match="is empty, and a cut names it"):
        open_lake(spark, config, existing).table("shop", emptied)

    _changed(database, [GOOD], "x", 5)
    # Whether a log ends where it should is looked at in each cycle, without reading it.
    gone = {table for table, (how, _) in damages.items() if how in {"log_gone", "log_emptied"}}
    assert set(into_the_lake(config, spark)[-1].held) == gone
    short = {str(table) for table, (how, _) in damages.items() if how == "log_cut_short"}
    for damaged in (
        maintenance_plan(config, "shop").damaged,
        maintain(config, "shop", spark, silent).damaged,
        lake_sizes(config, "shop", plan=True).damaged,
    ):
        assert set(damaged) == short
    actual = prove(config, "shop", None, spark, request=TABLES_ALONE)
    assert {table for table, proof in actual.tables.items() if proof.status == "equal"} >= {GOOD}
    assert not actual.equal

    _changed(database, tables, "y", 6)
    into_the_lake(config, spark)
    bootstrap(config, "shop", list(damages))
    into_the_lake(config, spark)
    _changed(database, tables, "z", 7)
    actual = prove(config, "shop", None, spark, request=ProofRequest(history=True))
    assert {str(t): (p.status, p.reason) for t, p in actual.tables.items() if p.status != "equal"} == {}
    assert actual.lake is not None
    # History's files can be restored from a backup as long as its log is there, so a copy leaves them as they are.
    kept = {TableName("public", "data_gone_history")}
    assert {table for table, proof in actual.lake.histories.items() if proof.status != "equal"} == kept
    # What the older cut names is no other table's rows.
    with pytest.raises(Exception, match=r"DELTA_|delta file version"):
        open_lake(spark, config, existing).table("shop", emptied).collect()
    assert not maintain(config, "shop", spark, silent).damaged


def _one_table(
    database: Database, folder: Path, spark: SparkSession, publication: LiteralString
) -> tuple[Config, SourceLake, TableName]:
    """A table of ten rows in the lake."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, v text)",
        "INSERT INTO a SELECT i, 'v' FROM generate_series(1, 10) i",
        publication,
    )
    config = Config(path=folder / "w.yaml", lake=str(folder / "lake"), sources={"shop": database.source(buckets=16)})
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    return config, SourceLake.open(config.lake, "shop"), TableName("public", "a")


def test_a_copy_for_something_else_leaves_a_damaged_history_as_it_is(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """The table was held since it was not published: its history begins again only if a person asks for that."""
    config, lake, table = _one_table(database, tmp_path, spark, "CREATE PUBLICATION pub FOR TABLE a")
    history = Path(lake.url(lake.paths.history(table)))
    database.execute("UPDATE a SET v = 'w' WHERE id < 4")
    into_the_lake(config, spark)
    database.execute("ALTER PUBLICATION pub DROP TABLE a")
    assert into_the_lake(config, spark)[-1].held[table].way_out is WayOut.PUBLISH_THEN_SNAPSHOT
    _log_cut_short(history)
    before = {path.name: path.read_bytes() for path in (history / "_delta_log").iterdir()}
    database.execute("ALTER PUBLICATION pub ADD TABLE a")
    bootstrap(config, "shop", [table])
    held = into_the_lake(config, spark)[-1].held[table]
    assert (held.cause, held.way_out) == (HeldCause.LOG_DAMAGED, WayOut.RESTORE_LOG_OR_SNAPSHOT)
    assert {path.name: path.read_bytes() for path in (history / "_delta_log").iterdir()} == before


class Killed(BaseException):
    """The end of the process."""


BEGUN, DONE = "cycle.after_log_begun", "cycle.after_log_begun_commit"


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([(BEGUN, 1), (DONE, 2)], id="some"),
        pytest.param([(BEGUN, 1), (DONE, 1), (BEGUN, 2), (DONE, 2)], id="all", marks=pytest.mark.full),
    ],
)
def test_beginning_a_log_again_may_be_killed_at_any_step(
    database: Database, tmp_path: Path, spark: SparkSession, steps: list[tuple[str, int]]
) -> None:
    """The rest is above what the cut names, and is taken away by the next run."""
    config, lake, table = _one_table(database, tmp_path, spark, "CREATE PUBLICATION pub FOR ALL TABLES")
    for folder in (lake.paths.current(table), lake.paths.history(table)):
        _log_gone(Path(lake.url(folder)))
    spark.catalog.clearCache()
    database.execute("UPDATE a SET v = 'w' WHERE id < 4")
    bootstrap(config, "shop", [table])
    for step, nth in steps:
        passed = 0

        def passing(name: str, step: str = step, nth: int = nth) -> None:
            nonlocal passed
            passed += name == step
            if name == step and passed == nth:
                raise Killed

        with watched(passing), pytest.raises(Killed):
            into_the_lake(config, spark)
    into_the_lake(config, spark)
    assert prove(config, "shop", None, spark, request=ProofRequest(history=True)).equal
