"""Someone else commits to Delta tables of the lake: they are held, the others go on, and a new snapshot repairs them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.commands.status import status
from lakeproof.config.model import Config
from lakeproof.events import Stop, silent
from lakeproof.failpoints import watched
from lakeproof.lake.columns import quoted
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.lake.records.held import WayOut
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.crashes import Crash
from tests.support.faults.foreign_commits import NAMES, begun, foreign_commit, place, write
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.maintain_steps import MUCH_LATER, policy
from tests.support.lake.simulated_rows import rows_of
from tests.support.lake.simulated_source import SOURCE, SimulatedSource
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = pytest.mark.spark
TWO = ("deleted", "good")


def commit_foreign(spark: SparkSession, source: SimulatedSource) -> None:
    """Somebody's session: rows taken away, rows invented, columns added, and an OPTIMIZE, which harms nobody."""
    current, history = ({n: place(source, layer, n) for n in NAMES} for layer in ("current", "history"))
    foreign_commit(spark, "DELETE FROM THE_TABLE WHERE id < 5", current["deleted"])
    foreign_commit(spark, "ALTER TABLE THE_TABLE ADD COLUMN extra string", current["deleted"])
    foreign_commit(spark, "UPDATE THE_TABLE SET extra = 'x', v = 'wrong'", current["deleted"])
    foreign_commit(spark, "INSERT INTO THE_TABLE SELECT * FROM THE_TABLE LIMIT 3", history["history_only"])
    foreign_commit(spark, "UPDATE THE_TABLE SET v = 'wrong'", current["bag"])
    foreign_commit(spark, "DELETE FROM THE_TABLE", history["bag"])
    foreign_commit(spark, "OPTIMIZE THE_TABLE", current["good"])


def states_equal(
    spark: SparkSession, source: SimulatedSource, config: Config, names: tuple[str, ...], position: Lsn
) -> None:
    """History gives the source's rows at a place between cuts."""
    actual = lakeproof.as_of(spark, config, position)
    for name in names:
        table = source.table(name).version
        assert rows_of(actual.table(table.table, hidden=True), table) == source.state_at(position)[table.table], (
            f"{name} at {position}"
        )


@pytest.mark.full
def test_foreign_commits_hold_their_tables_and_a_snapshot_repairs_them(spark: SparkSession, tmp_path: Path) -> None:
    """Foreign commits to current, history or both, or with other columns; the tables stay as before, at and between cuts."""
    source, config = begun(tmp_path)
    run_compact(spark, config)
    first = read_lake(config).cuts[SOURCE]
    commit_foreign(spark, source)
    write(source, range(10, 20))
    (report,) = run_compact(spark, config)

    held = {t.name: h for t, h in report.held.items()}
    assert {name: h.reason for name, h in held.items()} == {
        "deleted": "its current table: version 1 was committed by someone else",
        "history_only": "its history table: version 1 was committed by someone else",
        "bag": "its history table: version 1 was committed by someone else",
    }
    assert {h.way_out for h in held.values()} == {WayOut.SNAPSHOT}
    check(config, source, ["good"])
    for name in held:
        assert read_lake(config).cuts[SOURCE].tables[TableName("app", name)] == first.tables[TableName("app", name)]

    source.snapshot(list(held))
    write(source, range(20, 30))
    (report,) = run_compact(spark, config)
    assert not report.held
    check(config, source, list(NAMES))
    middle = write(source, range(30, 40))
    write(source, range(40, 50))
    run_compact(spark, config)
    states_equal(spark, source, config, NAMES, middle)
    _history_adds_up(spark, source, config, ("history_only",))
    check(config, source, list(NAMES))


def _history_adds_up(spark: SparkSession, source: SimulatedSource, config: Config, names: tuple[str, ...]) -> None:
    """Current made from history alone is current: no foreign row is left in either."""
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(rebuild=[TableName("app", name) for name in names]))
    check(config, source, list(names))


@pytest.mark.parametrize("layer", [pytest.param("history", marks=pytest.mark.full), "current"])
def test_a_foreign_commit_amid_a_cycle_is_noticed_at_once(spark: SparkSession, tmp_path: Path, layer: str) -> None:
    """The commit comes after the check: no cut names what the cycle had written of the table, and it is taken back later."""
    source, config = begun(tmp_path, TWO)
    run_compact(spark, config)
    write(source, range(10, 20))
    done: list[str] = []
    lock, log = (
        threading.Lock(),
        Path(source.lake.url(source.lake.paths.history(TableName("app", "deleted")))) / "_delta_log",
    )

    def pass_by(name: str) -> None:
        with lock:
            if name == "cycle.after_history" and not done and (log / f"{1:020d}.json").exists():
                done.append(name)
                foreign_commit(spark, "DELETE FROM THE_TABLE WHERE id < 5", place(source, layer, "deleted"))

    with watched(pass_by):
        (report,) = run_compact(spark, config)
    assert done
    if layer == "current":
        message = "its current table: version 1 was committed by someone else"
        assert {t.name: h.reason for t, h in report.held.items()} == {"deleted": message}
        # The history that the cycle had written is as foreign as the foreign commit.
    write(source, range(20, 30))
    (report,) = run_compact(spark, config)
    assert {t.name for t in report.held} == {"deleted"}
    check(config, source, ["good"])
    source.snapshot(["deleted"])
    write(source, range(30, 40))
    (report,) = run_compact(spark, config)
    assert not report.held
    _history_adds_up(spark, source, config, ("deleted",))
    check(config, source, ["good"])


@pytest.mark.full
@pytest.mark.parametrize("again", [False, True])
def test_a_repair_that_is_killed_is_finished(spark: SparkSession, tmp_path: Path, *, again: bool) -> None:
    """After either RESTORE; if the stranger commits `again` meanwhile, that is taken back too."""
    source, config = begun(tmp_path, ("bag", "good"))
    run_compact(spark, config)
    for layer in ("current", "history"):
        foreign_commit(spark, "DELETE FROM THE_TABLE", place(source, layer, "bag"))
    write(source, range(10, 20))
    run_compact(spark, config)
    source.snapshot(["bag"])
    write(source, range(20, 30))

    def crash(name: str) -> None:
        if name == "cycle.after_restore":
            raise Crash(name)

    for _ in ("history", "current"):
        with watched(crash), pytest.raises(Crash):
            run_compact(spark, config)
        if again:
            foreign_commit(spark, "DELETE FROM THE_TABLE WHERE id > 5", place(source, "current", "bag"))
    run_compact(spark, config)
    assert not read_lake(config).cuts[SOURCE].held
    _history_adds_up(spark, source, config, ("bag", "good"))


@pytest.mark.full
def test_maintenance_holds_such_a_table_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    """Files are put together, history is trimmed: of the others."""
    source, config = begun(tmp_path, TWO)
    run_compact(spark, config)
    write(source, range(10, 20))
    run_compact(spark, config)
    foreign_commit(spark, "DELETE FROM THE_TABLE WHERE id < 5", place(source, "current", "deleted"))
    config = policy(tmp_path, small_files=2, history_s=1.0)
    done = maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
    assert done.cycles
    assert "deleted" not in {t.name for t in (*done.trimmed, *done.optimized)}
    cut = read_lake(config).cuts[SOURCE]
    assert {t.name for t in cut.held} == {"deleted"}
    source.snapshot(["deleted"])
    write(source, range(20, 30))
    run_compact(spark, config)
    maintain(config, SOURCE, spark, silent, MaintenanceRequest(now=MUCH_LATER))
    assert not read_lake(config).cuts[SOURCE].held
    check(config, source, list(TWO))
    states_equal(spark, source, config, TWO, Lsn(source.lsn))


def commit_as_ours(spark: SparkSession, source: SimulatedSource, config: Config, cycle: int) -> None:
    """Commit as a process would that has been asleep since this cycle."""
    table = TableName("app", "deleted")
    rows = open_lake(spark, config).table(SOURCE, table, hidden=True).limit(2)
    message = {"txnAppId": f"lakeproof/{SOURCE}/1/current/{table.key}", "txnVersion": str(cycle)}
    rows.write.format("delta").options(**message).mode("append").save(source.lake.url(source.lake.paths.current(table)))


@pytest.mark.full
def test_a_zombies_commit_is_no_strangers(spark: SparkSession, tmp_path: Path) -> None:
    """A commit of a cycle of ours that no cut names is taken out of the log, and no cycle takes any notice of it.

    Unless somebody else has built on it. Then Delta would skip the commit of a cycle whose number the table knows.
    """
    source, config = begun(tmp_path, TWO)
    run_compact(spark, config)
    for cycle in (1, 77):
        commit_as_ours(spark, source, config, cycle)
        write(source, range(10 * cycle, 10 * cycle + 10))
        (report,) = run_compact(spark, config)
        assert not report.held
        check(config, source, list(TWO))

    commit_as_ours(spark, source, config, 78)
    foreign_commit(spark, "OPTIMIZE THE_TABLE", place(source, "current", "deleted"))
    write(source, range(30, 40))
    source.snapshot(["deleted"])
    write(source, range(40, 50))
    (held,) = run_compact(spark, config)[-1].held.values()
    assert "is a commit of cycle 78 that no cut names" in held.reason
    assert held.way_out is WayOut.BY_HAND
    check(config, source, ["good"])


@pytest.mark.full
@pytest.mark.postgres
@pytest.mark.slow
def test_foreign_rows_under_a_real_server(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """Rows deleted in one table and invented in another: `status` has both and their remedy, which ends equal."""
    names = ("cut", "invented", "good")
    for name in names:
        database.execute(
            SQL("CREATE TABLE {} (id int PRIMARY KEY, v text)").format(Identifier(name)),
            SQL("INSERT INTO {} SELECT i, 'v' FROM generate_series(1, 20) i").format(Identifier(name)),
        )
    database.execute("CREATE PUBLICATION pub FOR TABLE cut, invented, good")
    source = database.source(buckets=16)
    config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    assert prove(config, "shop", None, spark).equal
    lake = SourceLake.open(config.lake, "shop")
    current, history = (
        lake.paths.current(TableName("public", "cut")),
        lake.paths.history(TableName("public", "invented")),
    )
    foreign_commit(spark, "DELETE FROM THE_TABLE WHERE id = 3", f"delta.{quoted(lake.url(current))}")
    foreign_commit(spark, "INSERT INTO THE_TABLE SELECT * FROM THE_TABLE", f"delta.{quoted(lake.url(history))}")
    for name in names:
        database.execute(SQL("UPDATE {} SET v = 'w' WHERE id < 9").format(Identifier(name)))

    actual = {
        t.name: (p.status, p.reason) for t, p in prove(config, "shop", None, spark, request=TABLES_ALONE).tables.items()
    }
    assert actual["good"][0] == "equal"
    assert {name: message[0] for name, message in actual.items() if name != "good"} == {
        "cut": "held",
        "invented": "held",
    }
    (message,) = status(config, ["shop"]).sources.values()
    assert {t.name: h.remedy for t, h in message.held.items()} == {
        name: f"run `lakeproof bootstrap shop --tables public.{name}`, then compact" for name in ("cut", "invented")
    }
    assert all("was committed by someone else" in h.reason for h in message.held.values())

    bootstrap(config, "shop", [TableName("public", "cut"), TableName("public", "invented")])
    compact(config, "shop", spark, silent, Stop())
    assert prove(config, "shop", None, spark).equal
    for name in names:
        rows = read_lake(config).table("shop", f"public.{name}").arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in rows) == sorted(
            database.rows(SQL("SELECT id, v FROM {}").format(Identifier(name)))
        )
