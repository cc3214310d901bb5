"""Every cut is in the history of its tables' assets once: of runs that were killed, of commands, and of two runs at once.

How often a long run writes an event belongs to `test_throttle.py` and `test_cut_throttle.py`.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from assets.cycle_events import CycleEvents
from assets.cycle_totals import TableTotals
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import CycleNumber, TableName
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build
from resources import Settings
from tests.fix_drain import wait_until
from tests.fix_lake import SPARK
from tests.fix_postgres import Database
from tests.shell.launched import Dagster, dagster
from tests.shell.sample import password_of, write_source
from tests.shell.shared_spark import SharedSpark

pytestmark = [pytest.mark.postgres, pytest.mark.spark]
ORDERS, LINES = TableName("public", "orders"), TableName("public", "lines")
_REST = """\
    buckets: 16
    tables: [public.orders, public.lines]
spark:
  master: local[2]
  driver_memory: 1g
  conf: """


@dataclass
class Shop:
    """Two tables, their lake, and a Dagster instance with the events of their assets."""

    database: Database
    config: Config
    instance: dg.DagsterInstance

    def change(self, table: TableName, rows: int) -> None:
        """Insert so many rows, and land them."""
        self.database.execute(
            f"INSERT INTO {table.name} (note) SELECT 'n' FROM generate_series(1, {rows})"  # noqa: S608  a test's table
        )
        drain(self.config, "shop", Until.caught_up())

    def compact_in_dagster(self, report: str = "all") -> None:
        """Run the job as a person or as the schedule does."""
        job = build(self.config).resolve_job_def("shop_compaction")
        options = {"ops": {"compact_shop": {"config": {"report": report}}}}
        spark = SharedSpark(config_path=str(self.config.path))
        assert job.execute_in_process(run_config=options, instance=self.instance, resources={"compute": spark}).success

    @property
    def newest(self) -> int:
        """The number of the newest cut."""
        cut = newest_cut(SourceLake.open(self.config.location, "shop"))
        return 0 if cut is None else int(cut.number)

    def reported(self, table: TableName, layer: str = "current") -> list[tuple[int, int, int]]:
        """The first cut, the last one and the changes of each event that reports some, oldest first."""
        key = dg.AssetKey([layer, "shop", table.schema, table.name])
        records = self.instance.fetch_materializations(key, limit=1000, ascending=True).records
        metadata = [r.asset_materialization.metadata for r in records if r.asset_materialization is not None]
        values: list[dict[str, Any]] = [{name: value.value for name, value in each.items()} for each in metadata]
        return [(each["first_cut"], each["cut"], each["changes"]) for each in values if "first_cut" in each]

    def assert_reported_once(self, table: TableName, changes: int, *, newest_too: bool = True) -> None:
        """No two events report one cut, and all together report every change."""
        for layer in ("history", "current"):
            reported = self.reported(table, layer)
            assert all(before[1] < after[0] for before, after in itertools.pairwise(reported)), reported
            assert sum(each[2] for each in reported) == changes, reported
        if newest_too:
            assert self.rows_shown(table) == self.database.rows(f"SELECT count(*) FROM {table.name}")[0][0]  # noqa: S608  a test's table

    def rows_shown(self, table: TableName) -> object:
        """The number of rows that the asset's page shows: every event has it."""
        event = self.instance.get_latest_materialization_event(
            dg.AssetKey(["current", "shop", table.schema, table.name])
        )
        assert event is not None
        assert event.asset_materialization is not None
        return event.asset_materialization.metadata["dagster/row_count"].value


@pytest.fixture
def config(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Two tables with a copy each."""
    for table in (ORDERS, LINES):
        database.execute(f"CREATE TABLE {table.name} (id serial PRIMARY KEY, note text)")
    database.execute("INSERT INTO orders (note) VALUES ('first')", "CREATE PUBLICATION pub FOR TABLE orders, lines")
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    result = load(write_source(tmp_path, database, f"{_REST}{json.dumps(SPARK.conf)}\n"))
    bootstrap(result, "shop")
    return result


@pytest.fixture
def shop(database: Database, config: Config, spark: SparkSession, tmp_path: Path) -> Iterator[Shop]:
    """The tables, after the compaction that brought their copies in."""
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        result = Shop(database, config, instance)
        result.compact_in_dagster()
        yield result


def test_what_a_command_has_compacted_is_reported_by_the_next_run(shop: Shop, spark: SparkSession) -> None:
    """A scheduled one is enough, though it reports changed tables alone; a table that nobody changed has no event of it."""
    before = shop.reported(LINES)
    shop.change(ORDERS, 3)
    compact(shop.config, "shop", spark, silent, Stop())
    shop.change(ORDERS, 4)
    compact(shop.config, "shop", spark, silent, Stop())
    shop.change(ORDERS, 5)
    shop.compact_in_dagster("changed")
    assert shop.reported(ORDERS)[1:] == [(2, 4, 12)]
    assert shop.reported(LINES) == before
    shop.compact_in_dagster("changed")
    shop.compact_in_dagster()
    shop.assert_reported_once(ORDERS, 12)


def test_the_cut_of_a_proof_is_reported_and_one_without_new_versions_is_not(shop: Shop, spark: SparkSession) -> None:
    """A proof brings the lake to where it compares; rebuilding a table that is right writes nothing of it."""
    shop.change(ORDERS, 3)
    shop.database.execute("INSERT INTO orders (note) VALUES ('not landed yet')")
    newest = shop.newest
    assert prove(shop.config, "shop", None, spark).equal
    assert shop.newest > newest
    shop.compact_in_dagster("changed")
    assert shop.reported(ORDERS)[-1] == (newest + 1, shop.newest, 4)
    reported = shop.reported(ORDERS)
    maintain(shop.config, "shop", spark, silent, MaintenanceRequest(rebuild=(ORDERS,), nothing_else=True))
    shop.compact_in_dagster("changed")
    assert shop.reported(ORDERS) == reported
    shop.assert_reported_once(ORDERS, 4)


def test_events_of_another_lake_hide_nothing(shop: Shop, spark: SparkSession) -> None:
    """A lake that was made anew begins with cut 1; the old one's events have greater numbers."""
    settings = Settings(config_path=str(shop.config.path))
    key = dg.AssetKey(["current", "shop", "public", "orders"])
    shop.instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata={"cut": 99, "delta_version": 99}))
    shop.change(ORDERS, 3)
    shop.compact_in_dagster("changed")
    assert shop.reported(ORDERS)[-1][1] == shop.newest
    events = CycleEvents(shop.instance, settings, "shop", [ORDERS, LINES])
    assert events.unreported().tables == {}


def test_a_sum_that_another_run_has_reported_in_part_is_counted_again(shop: Shop, spark: SparkSession) -> None:
    """The rest comes from the landing's manifests, whoever has compacted it."""
    settings = Settings(config_path=str(shop.config.path))
    events = CycleEvents(shop.instance, settings, "shop", [ORDERS, LINES])
    shop.change(ORDERS, 3)
    first = compact(shop.config, "shop", spark, silent, Stop())
    shop.compact_in_dagster("changed")
    shop.change(ORDERS, 4)
    second = compact(shop.config, "shop", spark, silent, Stop())
    done = TableTotals(cycles=2, changes=7, first_cut=int(first[0].number), last_cut=int(second[0].number))
    layers = list(events.events({ORDERS: done}, second[0].number))
    assert [(each.metadata["changes"], each.metadata["first_cut"]) for each in layers] == [(4, second[0].number)] * 2
    reported = TableTotals(cycles=1, changes=3, first_cut=int(first[0].number), last_cut=int(first[0].number))
    assert list(events.events({ORDERS: reported}, second[0].number)) == []
    with events.turn(0) as is_mine, CycleEvents(shop.instance, settings, "shop", []).turn(0) as is_others:
        assert (is_mine, is_others) == (True, False)
    assert events.between(99, CycleNumber(100)) == {}


@pytest.mark.full
@pytest.mark.slow
def test_a_run_that_goes_on_and_one_by_hand_report_each_cut_once(
    database: Database, config: Config, spark: SparkSession, tmp_path: Path
) -> None:
    """The first one's events wait; the second reports what it has not, and the first goes on there. Then it is killed."""
    with dagster(tmp_path / "dagster", config.path) as running:
        shop = Shop(database, config, running.instance)
        goes_on = {"compact_shop": {"until": "max_seconds", "max_seconds": 3600, "event_seconds": 3600}}
        run_id = running.start("shop_compaction", ops=goes_on)
        wait_until(lambda: len(shop.reported(ORDERS)) == 1, timeout_s=240)
        _change(shop, 3)
        shop.compact_in_dagster()
        assert sum(reported[2] for reported in shop.reported(ORDERS)) == 3
        _change(shop, 4)
        running.instance.run_launcher.terminate(run_id)
        running.ended(run_id)
        shop.assert_reported_once(ORDERS, 7)

        killed = running.start("shop_compaction", ops=goes_on)
        wait_until(lambda: "has its turn" in _log(running, killed), timeout_s=240)
        _change(shop, 5)
        wait_until(lambda: sum(reported[2] for reported in shop.reported(ORDERS)) == 7 + 5, timeout_s=60)
        _change(shop, 6)
        pids = re.findall(r"pid: (\d+)", _log(running, killed))
        os.kill(int(pids[0]), signal.SIGKILL)
        shop.assert_reported_once(ORDERS, 7 + 5, newest_too=False)
        shop.compact_in_dagster("changed")
        shop.assert_reported_once(ORDERS, 7 + 5 + 6)


def _change(shop: Shop, rows: int) -> None:
    """Change a table, and wait until the run that goes on has it in a cut."""
    before = shop.newest
    shop.change(ORDERS, rows)
    wait_until(lambda: shop.newest > before, timeout_s=120)


def _log(running: Dagster, run_id: str) -> str:
    return "\n".join(str(entry.message) for entry in running.instance.all_logs(run_id))
